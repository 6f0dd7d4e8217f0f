//! Checks that several directories can be read as one: the source must have the same layout in all, and the index the same meaning. The
//! error says what differs.

use loom_engine::schema::{FieldDef, Source};

use super::part::Part;
use crate::error::{Problem, Result};

/// The fields of the directory that has the most; every other directory has the first of these fields.
pub fn fields(parts: &[Part]) -> Result<&[FieldDef]> {
    let most = parts
        .iter()
        .rev()
        .max_by_key(|part| part.source.fields.len())
        .expect("a call reads at least one directory");
    for part in parts {
        if let Some(difference) =
            of_sources(&most.source, &part.source).or_else(|| of_indexes(most, part))
        {
            return Err(Problem::binder(format!(
                "cannot read source '{}' of '{}' and '{}' as one: {difference}; query each directory by itself",
                part.source.name, most.dir, part.dir
            )));
        }
    }
    Ok(&most.source.fields)
}

/// Refuses an index whose bins differ between directories, because their counts cannot be added.
pub fn bins(parts: &[Part]) -> Result<()> {
    let (first, others) = parts
        .split_first()
        .expect("a call reads at least one directory");
    let own = first.chosen.required_index()?;
    for other in others {
        if own.bins != other.chosen.required_index()?.bins {
            return Err(Problem::binder(format!(
                "cannot count index '{}' of '{}' and '{}' together: its bins differ, as loom_indexes shows; query each directory by itself",
                own.name, first.dir, other.dir
            )));
        }
    }
    Ok(())
}

/// `most` has at least as many fields as `other`.
fn of_sources(most: &Source, other: &Source) -> Option<String> {
    let time = |source: &Source| {
        if source.own_time() {
            "its own times"
        } else {
            "times of arrival"
        }
    };
    if most.own_time() != other.own_time() {
        return Some(format!(
            "it has {} in the first and {} in the second",
            time(most),
            time(other)
        ));
    }
    if most.fields.is_empty() != other.fields.is_empty() {
        return Some("it has fields in the first, none in the second".to_owned());
    }
    let pairs = most.fields.iter().zip(&other.fields).enumerate();
    for (at, (here, there)) in pairs {
        if !is_same_column(here, there) {
            let text = |field: &FieldDef| {
                let nullable = if field.nullable { " nullable" } else { "" };
                let labels = if field.labels.is_empty() {
                    ""
                } else {
                    " with labels"
                };
                format!("{} {}{nullable}{labels}", field.name, field.ty)
            };
            return Some(format!(
                "field {} is {} in the first, {} in the second",
                at + 1,
                text(here),
                text(there)
            ));
        }
    }
    None
}

/// Whether two fields make the same column. Labels may differ: each record shows the labels of its own directory.
pub fn is_same_column(here: &FieldDef, there: &FieldDef) -> bool {
    here.name == there.name
        && here.ty == there.ty
        && here.nullable == there.nullable
        && here.labels.is_empty() == there.labels.is_empty()
}

fn of_indexes(most: &Part, other: &Part) -> Option<String> {
    let (here, there) = (most.chosen.index.as_ref()?, other.chosen.index.as_ref()?);
    if here.def.value == there.def.value && here.def.filter == there.def.filter {
        return None;
    }
    let text = |index: &loom_engine::schema::Index| {
        let value = index.def.value.as_deref().unwrap_or("nothing");
        match &index.def.filter {
            Some(filter) => format!("{value} where {filter}"),
            None => value.to_owned(),
        }
    };
    Some(format!(
        "index '{}' summarises {} in the first, {} in the second",
        here.name,
        text(here),
        text(there)
    ))
}
