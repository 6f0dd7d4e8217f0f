//! The rows of `loom_why` about the fields of the source: values, bins, NULL, and all others of each field.

use std::cmp::Reverse;

use loom_engine::query::{Contrast, ContrastValue, FieldContrast, GroupCounts};
use loom_engine::schema::{BinMap, FieldDef, FieldType};
use loom_engine::{Key, ValueKind};

use super::bands::Bands;
use super::why_score::{Table, of_shares};

/// A field with at most this many different integers is shown by value, not by bins.
const VALUES_SHOWN_MOST: usize = 64;

/// A row about a field.
pub struct FieldRow {
    pub field: usize,
    pub kind: &'static str,
    pub value: Option<String>,
    pub lower: Option<f64>,
    pub upper: Option<f64>,
    pub counts: GroupCounts,
    pub score: f64,
    pub all_values: bool,
    pub filter: Option<String>,
}

/// All rows, the greatest score first.
pub fn rows(found: &Contrast, fields: &[FieldDef], most: usize) -> Vec<FieldRow> {
    let mut rows: Vec<FieldRow> = Vec::new();
    for of_field in &found.fields {
        if let Some(def) = fields.get(of_field.field) {
            let field = Field {
                def,
                found: of_field,
                records: found.records,
                fields: found.fields.len(),
                most,
            };
            rows.extend(field.rows());
        }
    }
    let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
    let difference = |counts: GroupCounts| {
        let GroupCounts { selected, others } = found.records;
        (share(counts.selected, selected) - share(counts.others, others)).abs()
    };
    // The sort is stable, so equal rows stay in the order of fields and values.
    rows.sort_by(|one, other| {
        let by_score = other.score.total_cmp(&one.score);
        by_score.then_with(|| difference(other.counts).total_cmp(&difference(one.counts)))
    });
    rows
}

/// The counts of a field in both groups.
struct Field<'a> {
    def: &'a FieldDef,
    found: &'a FieldContrast,
    records: GroupCounts,
    /// The number of fields that are compared.
    fields: usize,
    most: usize,
}

impl Field<'_> {
    fn rows(&self) -> Vec<FieldRow> {
        let values = self.by_value();
        let bins = self.by_bin();
        let best = |rows: &[FieldRow]| rows.iter().map(|row| row.score).fold(0.0, f64::max);
        match (values, bins) {
            (Some(values), Some(bins)) => {
                let different = self
                    .found
                    .values
                    .as_ref()
                    .map_or(0, |all| all.counted.len());
                match different <= VALUES_SHOWN_MOST || best(&values) > best(&bins) {
                    true => values,
                    false => bins,
                }
            }
            (values, bins) => values.or(bins).unwrap_or_default(),
        }
    }

    /// The values that separate most, the greatest score first.
    fn by_value(&self) -> Option<Vec<FieldRow>> {
        let values = self.found.values.as_ref()?;
        let has_null = usize::from(self.found.nulls.total() > 0);
        let different = match values.is_complete {
            true => (values.counted.len() + has_null) as u64,
            // There may be as many as records.
            false => self.records.total(),
        };
        let row = |(value, counts): (&ContrastValue, &GroupCounts)| {
            let (text, filter) = self.shown(value);
            FieldRow {
                value: Some(text),
                filter,
                ..self.row("value", *counts, different, values.is_complete)
            }
        };
        let mut rows: Vec<FieldRow> = values.counted.iter().map(row).collect();
        rows.sort_by(|one, other| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then_with(|| Reverse(one.counts.total()).cmp(&Reverse(other.counts.total())))
        });
        rows.truncate(self.most);
        Some(self.completed(rows, different, values.is_complete))
    }

    /// All numbers in bands of bins, ascending.
    fn by_bin(&self) -> Option<Vec<FieldRow>> {
        let (bins, counts) = self.found.bins.as_ref()?;
        let filled: Vec<u16> = counts.iter().map(|(bin, _)| *bin).collect();
        let bands = Bands::new(bins, &filled, self.most as u64);
        let of_bands = counts.chunk_by(|(one, _), (other, _)| bands.of(*one) == bands.of(*other));
        let has_null = usize::from(self.found.nulls.total() > 0);
        let different = (of_bands.clone().count() + has_null) as u64;
        let row = |of_band: &[(u16, GroupCounts)]| {
            let (bin, _) = of_band.first()?;
            let mut counts = GroupCounts::default();
            of_band.iter().for_each(|(_, more)| counts += *more);
            let band = bands.of(*bin);
            let (lower, upper) = (bands.start(band), bands.start(band + 1));
            Some(FieldRow {
                value: Some(range_text(bins, lower, upper)),
                filter: Some(self.range_filter(bins, lower, upper)),
                lower: lower.map(|key| bands.number(key)),
                upper: upper.map(|key| bands.number(key)),
                ..self.row("bin", counts, different, true)
            })
        };
        let rows = of_bands.filter_map(row).collect();
        Some(self.completed(rows, different, true))
    }

    /// Adds the rows of NULL and of all other values.
    fn completed(
        &self,
        mut rows: Vec<FieldRow>,
        different: u64,
        all_values: bool,
    ) -> Vec<FieldRow> {
        if self.found.nulls.total() > 0 {
            rows.push(FieldRow {
                filter: Some(format!("{} IS NULL", self.def.name)),
                ..self.row("null", self.found.nulls, different, all_values)
            });
        }
        let mut rest = self.records;
        for row in &rows {
            rest.selected -= row.counts.selected;
            rest.others -= row.counts.others;
        }
        if rest.total() > 0 {
            rows.push(self.row("others", rest, different, all_values));
        }
        rows
    }

    fn row(
        &self,
        kind: &'static str,
        counts: GroupCounts,
        different: u64,
        all_values: bool,
    ) -> FieldRow {
        let table = Table {
            selected: counts.selected,
            selected_all: self.records.selected,
            others: counts.others,
            others_all: self.records.others,
        };
        FieldRow {
            field: self.found.field,
            kind,
            value: None,
            lower: None,
            upper: None,
            counts,
            score: of_shares(table, different as f64 * self.fields as f64),
            all_values,
            filter: None,
        }
    }

    /// A value as text, and the filter that selects it.
    fn shown(&self, value: &ContrastValue) -> (String, Option<String>) {
        let FieldDef { name, ty, .. } = self.def;
        match (value, ty) {
            (ContrastValue::Number(key), FieldType::Bool) => {
                let text = (key.to_u64() != 0).to_string();
                let filter = format!("{name} = {text}");
                (text, Some(filter))
            }
            (ContrastValue::Number(key), _) => {
                let text = number(ty.kind().unwrap_or(ValueKind::Signed), *key);
                let filter = format!("{name} = {text}");
                (text, Some(filter))
            }
            (ContrastValue::Text(bytes), _) => {
                let text = match ty {
                    FieldType::Bytes(_) | FieldType::VarBytes => escaped(bytes),
                    _ => String::from_utf8_lossy(bytes).into_owned(),
                };
                let filter = self.text_filter(&text);
                (text, filter)
            }
        }
    }

    /// `None` if no filter selects exactly the records with this text: its bytes may not be UTF-8, or it shows two numbers.
    fn text_filter(&self, text: &str) -> Option<String> {
        let FieldDef { name, labels, .. } = self.def;
        let is_ambiguous = match labels.is_empty() {
            true => text.contains('\u{fffd}'),
            false => {
                let same = labels.values().filter(|label| *label == text).count();
                let bare = text.parse().ok();
                same + usize::from(bare.is_some_and(|number| !labels.contains_key(&number))) != 1
            }
        };
        (!is_ambiguous).then(|| format!("{name} = '{}'", text.replace('\'', "''")))
    }

    fn range_filter(&self, bins: &BinMap, lower: Option<Key>, upper: Option<Key>) -> String {
        let name = &self.def.name;
        let from = lower.map(|key| format!("{name} >= {}", number(bins.kind(), key)));
        let to = upper.map(|key| format!("{name} < {}", number(bins.kind(), key)));
        let sides: Vec<String> = from.into_iter().chain(to).collect();
        match sides.is_empty() {
            true => format!("{name} IS NOT NULL"),
            false => sides.join(" AND "),
        }
    }
}

/// A number as a filter takes it. A float has an exponent, so that it is compared with its full width.
fn number(kind: ValueKind, key: Key) -> String {
    match kind {
        ValueKind::Unsigned => key.to_u64().to_string(),
        ValueKind::Signed => key.to_i64().to_string(),
        ValueKind::Float => format!("{:e}", key.to_f64()),
    }
}

fn range_text(bins: &BinMap, lower: Option<Key>, upper: Option<Key>) -> String {
    let text = |key: Key| match bins.kind() {
        ValueKind::Float => key.to_f64().to_string(),
        kind => number(kind, key),
    };
    match (lower.map(text), upper.map(text)) {
        (Some(lower), Some(upper)) => format!("[{lower}, {upper})"),
        (Some(lower), None) => format!(">= {lower}"),
        (None, Some(upper)) => format!("< {upper}"),
        (None, None) => "any".to_owned(),
    }
}

/// Bytes as DuckDB shows them.
fn escaped(bytes: &[u8]) -> String {
    let shown = bytes.iter().map(|byte| match byte {
        b'\\' | b'\'' | b'"' => format!("\\x{byte:02X}"),
        32..=126 => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    });
    shown.collect()
}
