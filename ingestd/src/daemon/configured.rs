//! Sources as a configuration has them, beside the catalog that has gone on since it was written.

use loom_engine::schema::{Catalog, SourceDef};

/// A definition, with the fields that were added to its source since it was written.
pub(super) fn grown(mut def: SourceDef, catalog: &Catalog) -> SourceDef {
    if let Some(known) = catalog.find(&def.name)
        && !def.fields.is_empty()
        && let Some(added) = known.fields.get(def.fields.len()..)
    {
        def.fields.extend_from_slice(added);
    }
    def
}

/// What of a configured source is to be defined. What was closed since stays so, and is told in `notes`.
pub(super) fn wanted(
    mut def: SourceDef,
    catalog: &Catalog,
    notes: &mut Vec<String>,
) -> Option<SourceDef> {
    let Some(known) = catalog.find(&def.name) else {
        return Some(def);
    };
    if !known.is_open() {
        notes.push(format!(
            "source '{}' was closed and stays so: take it out of the configuration, or reopen it with `ingestd source add`",
            def.name
        ));
        return None;
    }
    def.indexes.retain(|index| {
        let closed = known
            .index(&index.name)
            .is_some_and(|found| found.until.is_some() && found.def == *index);
        if closed {
            notes.push(format!(
                "index '{}' of source '{}' was closed and stays so: take it out of the configuration, or open another with \
                 `ingestd index add`",
                index.name, known.name
            ));
        }
        !closed
    });
    Some(grown(def, catalog))
}

#[cfg(test)]
mod tests {
    use loom_engine::Address;
    use loom_engine::schema::parse_sources;

    use super::*;

    #[test]
    fn what_was_closed_stays_closed_unless_it_is_defined_otherwise() {
        let toml = "[[source]]\nname = 'x'\n[[source.field]]\nname = 'a'\ntype = 'u64'\n\
                    [[source.index]]\nname = 'i'\nvalue = 'a'\n[[source.index]]\nname = 'j'\nvalue = 'a'\n";
        let def = parse_sources(toml).unwrap().remove(0);
        let mut catalog = Catalog::new();
        let (id, _) = catalog.define_source(&def, Address(0)).unwrap();
        let index = catalog.source(id).unwrap().index("i").unwrap().id;
        catalog.close_index(index, Address(4096)).unwrap();
        let mut notes = Vec::new();
        let found = wanted(def.clone(), &catalog, &mut notes).unwrap();
        assert_eq!(found.indexes.len(), 1);
        assert!(notes[0].contains("index 'i'"), "{notes:?}");

        notes.clear();
        let mut other = def.clone();
        other.indexes[0].filter = Some("a > 3".to_owned());
        assert_eq!(
            wanted(other, &catalog, &mut notes).unwrap().indexes.len(),
            2
        );
        assert!(notes.is_empty());

        catalog.close_source(id, Address(8192)).unwrap();
        assert_eq!(wanted(def, &catalog, &mut notes), None);
        assert!(notes[0].contains("source 'x'"), "{notes:?}");
    }
}
