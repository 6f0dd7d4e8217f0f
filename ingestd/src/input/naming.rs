//! Chooses the field names of an input's columns, in the same way for all formats, so that a column has the same field in every file.
//!
//! A column keeps its spelling if that is a valid name, and prefers the field of the same spelling. The order of columns only decides the numbers of
//! equal names.

use std::collections::{HashMap, HashSet};

use loom_engine::schema::{FieldDef, NAME_BYTES_MAX, is_reserved_field};

/// The part of a long name in messages.
const SHOWN_CHARS: usize = 64;

/// The field names of columns, in order. A column first gets the existing field of the same name, then one that differs only in case. Of columns with
/// equal names (ignoring case), the later ones get a number that makes them unique.
pub(crate) fn field_names<'a>(
    columns: impl Iterator<Item = &'a str>,
    known: &[FieldDef],
) -> Vec<String> {
    let columns: Vec<&str> = columns.collect();
    let base = |(place, column): (usize, &&str)| match field_name(column) {
        name if name.is_empty() => format!("column{place}"),
        name => name,
    };
    let bases: Vec<String> = columns.iter().enumerate().map(base).collect();
    let mut places: Vec<usize> = (0..columns.len()).collect();
    // Columns with valid names choose first.
    places
        .sort_by_key(|place| bases.get(*place).map(String::as_str) != columns.get(*place).copied());
    let mut claims = Claims::new(known);
    let mut names: Vec<Option<String>> = vec![None; columns.len()];
    for claim in [Claims::exact, Claims::alike, Claims::numbered] {
        for place in &places {
            if let (Some(name @ None), Some(base)) = (names.get_mut(*place), bases.get(*place)) {
                *name = claim(&mut claims, base);
            }
        }
    }
    let names: Option<Vec<String>> = names.into_iter().collect();
    names.expect("names with numbers are without end")
}

/// The names of columns so far, and the fields without a column.
struct Claims<'a> {
    /// Existing fields without a column, by lower-case name.
    free: HashMap<String, &'a str>,
    /// Lower-case names of columns.
    taken: HashSet<String>,
}

impl<'a> Claims<'a> {
    fn new(known: &'a [FieldDef]) -> Claims<'a> {
        let known = known.iter().map(|field| field.name.as_str());
        Claims {
            free: known.map(|name| (name.to_lowercase(), name)).collect(),
            taken: HashSet::new(),
        }
    }

    /// The existing field of this spelling.
    fn exact(&mut self, base: &str) -> Option<String> {
        let lower = base.to_lowercase();
        self.free.get(&lower).filter(|known| **known == base)?;
        self.claim(base)
    }

    /// The existing field that differs only in case, or a new name.
    fn alike(&mut self, base: &str) -> Option<String> {
        let known = self.free.get(&base.to_lowercase());
        let became = known.and_then(|_| numbered(base, self.free.values().copied()));
        let name = became.unwrap_or(base).to_owned();
        self.claim(&name)
    }

    /// The first free name with a number.
    fn numbered(&mut self, base: &str) -> Option<String> {
        (1_u64..).find_map(|number| {
            let number = format!("_{number}");
            let kept = base.floor_char_boundary(NAME_BYTES_MAX - number.len());
            let (kept, _) = base.split_at(kept);
            self.claim(&format!("{kept}{number}"))
        })
    }

    /// The name in the spelling of an existing field, unless another column has it.
    fn claim(&mut self, name: &str) -> Option<String> {
        let lower = name.to_lowercase();
        let known = self.free.remove(&lower);
        let is_new = self.taken.insert(lower);
        is_new.then(|| known.unwrap_or(name).to_owned())
    }
}

/// The existing field with the lowest number that a column of this name became earlier, because another column had the same name in another case.
pub(crate) fn numbered<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let number = |field: &'a str| -> Option<(u64, &'a str)> {
        let number = field.strip_prefix(name)?.strip_prefix('_')?;
        Some((number.parse().ok()?, field))
    };
    let (_, field) = known.filter_map(number).min()?;
    Some(field)
}

/// The valid field name of a column: reserved names get an underscore, control characters become spaces, long names are cut. It is empty only if the
/// column has no name. A NUL stays, and the definition is refused.
pub(crate) fn field_name(column: &str) -> String {
    let is_odd = |c: char| c.is_control() && c != '\0';
    let words: Vec<&str> = match column.contains(is_odd) {
        true => column
            .split(is_odd)
            .filter(|word| !word.is_empty())
            .collect(),
        false => vec![column],
    };
    let mut name = words.join(" ");
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    if is_reserved_field(&name) {
        name.push('_');
    }
    name
}

/// A note for the user if the field has another name than its column.
pub(crate) fn renamed(column: &str, field: &str) -> Option<String> {
    let why = match column {
        "" => "it has no name",
        _ if is_reserved_field(column) => "the name is reserved",
        _ if column.contains(char::is_control) => "the name holds a control character",
        _ if column.len() > NAME_BYTES_MAX => "the name is longer than 255 bytes",
        _ => "the name is taken",
    };
    let [from, to] = [column, field].map(shown);
    (column != field).then(|| format!("column '{from}' becomes field '{to}': {why}"))
}

pub(crate) fn shown(name: &str) -> String {
    let begins: String = name.chars().take(SHOWN_CHARS).collect();
    let more = if begins.len() < name.len() { "…" } else { "" };
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    let begins: String = begins.chars().map(escaped).collect();
    format!("{begins}{more}")
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::FieldType;

    use super::*;

    fn fields(names: &[&str]) -> Vec<FieldDef> {
        let field = |name: &&str| FieldDef::new(*name, FieldType::I64);
        names.iter().map(field).collect()
    }

    #[test]
    fn reserved_and_repeated_names_change_and_are_noted() {
        let columns = ["ts", "TS_NS", "value", "Value", "", "ts_"];
        let names = field_names(columns.into_iter(), &[]);
        assert_eq!(
            names,
            ["ts__1", "TS_NS_", "value", "Value_1", "column4", "ts_"]
        );
        let notes = columns.iter().zip(&names);
        let notes: Vec<_> = notes
            .filter_map(|(column, field)| renamed(column, field))
            .collect();
        assert_eq!(
            notes,
            [
                "column 'ts' becomes field 'ts__1': the name is reserved",
                "column 'TS_NS' becomes field 'TS_NS_': the name is reserved",
                "column 'Value' becomes field 'Value_1': the name is taken",
                "column '' becomes field 'column4': it has no name"
            ]
        );
    }

    #[test]
    fn columns_fill_the_fields_of_their_name_first_and_then_those_of_another_case() {
        for (known, columns, expected) in [
            (&["a", "B", "c_1"][..], &["A", "b"][..], &["a", "B"][..]),
            (&["a"], &["A", "a"], &["A_1", "a"]),
            (&["c_1"], &["c", "c", "c"], &["c", "c_1", "c_2"]),
            (&["B"], &["B", "b", "d"], &["B", "b_1", "d"]),
            (&["a", "A_1"], &["A"], &["A_1"]),
            (&["a", "A_2", "a_1"], &["A"], &["A_2"]),
            (&["a", "a_1"], &["A"], &["a"]),
        ] {
            let names = field_names(columns.iter().copied(), &fields(known));
            assert_eq!(names, expected, "{columns:?}");
        }
    }

    #[test]
    fn columns_in_another_order_find_the_fields_that_they_became() {
        for columns in [
            vec!["a", "A"],
            vec!["ts", "ts_"],
            vec!["x\ny", "x y"],
            vec!["a", "A", "A_1"],
            vec!["a", "A", "a_1"],
        ] {
            let made = field_names(columns.iter().copied(), &[]);
            let known: Vec<&str> = made.iter().map(String::as_str).collect();
            let known = fields(&known);
            let reversed = field_names(columns.iter().rev().copied(), &known);
            assert!(
                reversed.iter().eq(made.iter().rev()),
                "{columns:?}: {made:?}, {reversed:?}"
            );
        }
    }

    #[test]
    fn names_that_no_field_may_have_are_cleaned_and_cut() {
        let long = "ä".repeat(200);
        let columns = ["price\r\n(USD)", "a\tb", &long, &long, "\n"];
        let names = field_names(columns.into_iter(), &[]);
        assert_eq!(names.first().unwrap(), "price (USD)");
        assert_eq!(
            names,
            [
                "price (USD)".to_owned(),
                "a b".to_owned(),
                "ä".repeat(127),
                format!("{}_1", "ä".repeat(126)),
                "column4".to_owned()
            ]
        );
        assert_eq!(
            renamed("a\tb", "a b").unwrap(),
            "column 'a\\tb' becomes field 'a b': the name holds a control character"
        );
        let note = renamed(&long, &names[2]).unwrap();
        assert!(
            note.ends_with("…': the name is longer than 255 bytes"),
            "{note}"
        );
    }
}
