//! An index: it summarises the records of a source. `Index::key` is called for every record of the source.

use serde::{Deserialize, Serialize};

use super::bin_map::BinMap;
use super::bins::BinsDef;
use super::field::{FieldDef, find_field};
use super::filter::Filter;
use super::layout::Layout;
use super::names::check_name;
use super::payloads::Payloads;
use crate::error::{Error, Result};
use crate::proven::at;
use crate::types::{Address, IndexId, Key, SourceId, ValueKind};

/// The most open indexes of a source.
pub const INDEXES_MAX: usize = 64;

/// An index as it is declared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexDef {
    pub name: String,
    /// The field that is summarised; without it the index counts records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Selects the indexed records; without it all are indexed.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(default, skip_serializing_if = "is_auto")]
    pub bins: BinsDef,
}

impl IndexDef {
    /// An index of all records with `auto` bins.
    pub fn new(name: impl Into<String>, value: Option<&str>) -> IndexDef {
        IndexDef {
            name: name.into(),
            value: value.map(str::to_owned),
            filter: None,
            bins: BinsDef::Auto,
        }
    }

    pub(super) fn check(&self, fields: &[FieldDef]) -> Result<()> {
        Rule::new(self, fields).map(|_| ())
    }
}

/// A definition, resolved against the fields.
#[derive(Clone, PartialEq, Debug)]
struct Rule {
    value: Option<usize>,
    filter: Option<Filter>,
    bins: BinMap,
}

impl Rule {
    fn new(def: &IndexDef, fields: &[FieldDef]) -> Result<Rule> {
        check_name("index", &def.name)?;
        Rule::resolve(def, fields)
            .map_err(|error| Error::schema(format!("index '{}': {error}", def.name)))
    }

    fn native(def: &IndexDef, kind: ValueKind) -> Result<Rule> {
        check_name("index", &def.name)?;
        if def.value.is_some() || def.filter.is_some() {
            return Err(Error::schema(format!(
                "index '{}' is a function and cannot have a value or a filter",
                def.name
            )));
        }
        Ok(Rule {
            value: None,
            filter: None,
            bins: BinMap::new(&def.bins, kind)?,
        })
    }

    fn resolve(def: &IndexDef, fields: &[FieldDef]) -> Result<Rule> {
        let filter = def.filter.as_deref().map(|text| filter_of(text, fields));
        let filter = filter.transpose()?;
        let Some(name) = &def.value else {
            if def.bins != BinsDef::Auto {
                return Err(Error::schema(
                    "bins are declared without a value; give the field whose values they divide",
                ));
            }
            let bins = BinMap::new(&BinsDef::Auto, ValueKind::Unsigned)?;
            return Ok(Rule {
                value: None,
                filter,
                bins,
            });
        };
        let (value, field) = find_field(fields, name)?;
        let Some(kind) = field.ty.kind() else {
            return Err(Error::schema(format!(
                "the value '{name}' is {}; only numbers, bools and timestamps have bins",
                field.ty
            )));
        };
        Ok(Rule {
            value: Some(value),
            filter,
            bins: BinMap::new(&def.bins, kind)?,
        })
    }
}

/// Parses the filter of an index. It runs for every record of the source, so it may not compare texts of variable length.
fn filter_of(text: &str, fields: &[FieldDef]) -> Result<Filter> {
    let filter = Filter::parse(text, fields)?;
    let mut long = None;
    filter.expr().each_compared(&mut |field| {
        let def = at(fields, field);
        if def.ty.fixed_bytes().is_none() {
            long = Some(def);
        }
    });
    match long {
        None => Ok(filter),
        Some(FieldDef { name, ty, .. }) => Err(Error::schema(format!(
            "'{name}' is {ty}, of variable length; the filter of an index tests only fields of fixed width"
        ))),
    }
}

/// An index of a source, open or closed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Index {
    pub id: IndexId,
    pub source: SourceId,
    pub name: String,
    pub def: IndexDef,
    /// The kind of value to which keys decode; `Unsigned` without a value.
    pub kind: ValueKind,
    pub bins: BinMap,
    /// The first address that it covers.
    pub since: Address,
    /// The first address that it no longer covers; `None` while it is open.
    pub until: Option<Address>,
    value: Option<usize>,
    filter: Option<Filter>,
    native: bool,
}

impl Index {
    /// An index over `fields`. With `native`, a closure of the writing process computes its keys, of that kind.
    pub(super) fn new(
        id: IndexId,
        source: SourceId,
        def: &IndexDef,
        fields: &[FieldDef],
        native: Option<ValueKind>,
        since: Address,
    ) -> Result<Index> {
        let rule = match native {
            None => Rule::new(def, fields)?,
            Some(kind) => Rule::native(def, kind)?,
        };
        Ok(Index {
            id,
            source,
            name: def.name.clone(),
            def: def.clone(),
            kind: rule.bins.kind(),
            bins: rule.bins,
            since,
            until: None,
            value: rule.value,
            filter: rule.filter,
            native: native.is_some(),
        })
    }

    /// The record's key: `None` if the filter does not match, the value is NULL, or the layout is older than the field. Without a value, a
    /// match has key 0. A native index has no key here, because its closure computes it.
    #[inline]
    pub fn key(&self, layout: &Layout, payload: &[u8]) -> Option<Key> {
        if self.native
            || self
                .filter
                .as_ref()
                .is_some_and(|f| !f.matches(layout, payload))
        {
            return None;
        }
        match self.value {
            Some(field) => layout.key(field, payload),
            None => Some(Key::MIN),
        }
    }

    /// Appends the result of `key` for each payload. Returns false, perhaps with some appended, if a payload may have no key.
    pub fn load_keys<'a>(
        &self,
        layout: &Layout,
        payloads: impl Iterator<Item = Payloads<'a>>,
        keys: &mut Vec<Key>,
    ) -> bool {
        match (self.native, &self.filter, self.value) {
            (false, None, Some(field)) => layout.load_keys(field, payloads, keys),
            (false, None, None) => {
                let records = payloads.map(|payloads| payloads.records).sum();
                keys.extend(std::iter::repeat_n(Key::MIN, records));
                true
            }
            _ => false,
        }
    }

    /// Whether it covers all of `[from, to)`.
    pub fn covers(&self, from: Address, to: Address) -> bool {
        self.since <= from && self.until.is_none_or(|until| to <= until)
    }

    /// The field that it summarises.
    pub fn value_field(&self) -> Option<usize> {
        self.value
    }

    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Whether a closure computes its keys, so only the writing process can evaluate it. SQL does not show such an index.
    pub fn is_native(&self) -> bool {
        self.native
    }

    pub fn is_open(&self) -> bool {
        self.until.is_none()
    }

    /// Whether a definition over `fields` means the same, even if it is written differently.
    pub(super) fn is_same(&self, def: &IndexDef, fields: &[FieldDef]) -> Result<bool> {
        let rule = Rule::new(def, fields)?;
        Ok(!self.native
            && rule.value == self.value
            && rule.bins == self.bins
            && rule.filter.as_ref().map(Filter::expr) == self.filter.as_ref().map(Filter::expr))
    }
}

fn is_auto(bins: &BinsDef) -> bool {
    *bins == BinsDef::Auto
}

#[cfg(test)]
mod tests {
    use super::super::field::FieldType;
    use super::super::layout::TimeKind;
    use super::*;

    fn fields() -> Vec<FieldDef> {
        vec![
            FieldDef::nullable("latency", FieldType::I32),
            FieldDef::new("name", FieldType::Char(4)),
            FieldDef::new("more", FieldType::Utf8),
        ]
    }

    fn refused(value: Option<&str>, filter: Option<&str>, bins: &str) -> String {
        let def = IndexDef {
            filter: filter.map(str::to_owned),
            bins: serde_json::from_str(bins).unwrap(),
            ..IndexDef::new("i", value)
        };
        def.check(&fields()).unwrap_err().to_string()
    }

    #[test]
    fn values_without_a_key_have_no_bins() {
        let auto = "\"auto\"";
        let message = refused(Some("name"), None, auto);
        assert_eq!(
            message,
            "index 'i': the value 'name' is char[4]; only numbers, bools and timestamps have bins"
        );
        assert!(refused(Some("more"), None, auto).contains("utf8"));
        assert!(refused(Some("latncy"), None, auto).contains("did you mean 'latency'?"));
        assert!(refused(None, None, "[1, 2]").contains("without a value"));
        assert!(refused(Some("latency"), None, "[2, 1]").contains("edges must ascend"));
        assert!(refused(None, Some("more = 'x'"), auto).contains("variable length"));
        assert!(IndexDef::new("", None).check(&fields()).is_err());
    }

    #[test]
    fn a_key_is_that_of_a_matching_value() {
        let def = IndexDef {
            filter: Some("name <> 'no'".to_owned()),
            ..IndexDef::new("latency", Some("latency"))
        };
        let index =
            Index::new(IndexId(1), SourceId(1), &def, &fields(), None, Address(64)).unwrap();
        let layout = Layout::new(TimeKind::Arrival, &fields()).unwrap();
        let key = |payload: &[u8]| index.key(&layout, payload);
        assert_eq!(key(b"\0\x05\0\0\0yes\0\0\0"), Some(Key::from_i64(5)));
        assert_eq!(key(b"\x01\x05\0\0\0yes\0\0\0"), None, "NULL");
        assert_eq!(key(b"\0\x05\0\0\0no\0\0\0\0"), None, "filtered");
        assert_eq!(key(b"\0\x05"), None, "cut short");
        let older = Layout::new(TimeKind::Arrival, &[FieldDef::new("x", FieldType::Utf8)]).unwrap();
        assert_eq!(index.key(&older, b"\0\0"), None, "no number there");
        assert_eq!(index.kind, ValueKind::Signed);
    }

    #[test]
    fn it_covers_from_its_opening_to_its_closing() {
        let def = IndexDef::new("all", None);
        let mut index = Index::new(IndexId(1), SourceId(1), &def, &[], None, Address(64)).unwrap();
        assert!(index.covers(Address(64), Address::MAX) && !index.covers(Address(63), Address(65)));
        index.until = Some(Address(128));
        assert!(
            index.covers(Address(64), Address(128)) && !index.covers(Address(64), Address(129))
        );
    }
}
