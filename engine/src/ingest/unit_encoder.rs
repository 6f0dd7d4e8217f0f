//! The encoder that a writer hands to its flusher. It takes each source's payloads apart according to the catalog's definition for the
//! chunk.
//!
//! The writer notes a definition before it publishes a record of it, so the flusher finds it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::format::{Template, UnitEncoder};
use crate::log::{DirMeta, Encoder};
use crate::proven::at_mut;
use crate::schema::{Catalog, Pieces};
use crate::types::{Address, SourceId};

/// The templates by which the payloads of all sources are taken apart. The writer and its flusher share them.
#[derive(Clone, Default)]
pub(super) struct Templates(Arc<RwLock<Vec<Layouts>>>);

/// The templates of a source, each with the address from which it holds.
type Layouts = Vec<(Address, Template)>;

impl Templates {
    pub fn of(catalog: &Catalog) -> Templates {
        let templates = Templates::default();
        for source in catalog.sources() {
            templates.refresh(catalog, source.id);
        }
        templates
    }

    /// Takes over the catalog's current definition of a source. A forgotten source has no records.
    pub fn refresh(&self, catalog: &Catalog, source: SourceId) {
        let known = catalog.source(source).map(|known| {
            let layouts = known.layouts.iter();
            layouts
                .map(|(since, layout)| (*since, Pieces::of(source, layout).into_template()))
                .collect()
        });
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(source.0);
        if all.len() <= place {
            all.resize(place + 1, Layouts::new());
        }
        *at_mut(&mut all, place) = known.unwrap_or_default();
    }

    /// The template for the records of a source in the chunk at an address. The payloads of an unknown source are plain bytes.
    fn find(&self, source: SourceId, chunk: Address) -> Template {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let layouts = all.get(usize::from(source.0));
        let layouts = layouts.map_or(&[][..], Vec::as_slice);
        let known = layouts.iter().rev().find(|(since, _)| *since <= chunk);
        let known = known.or_else(|| layouts.first());
        known.map_or_else(
            || Template {
                source,
                pieces: Vec::new(),
                has_rest: true,
                fields: [].into(),
            },
            |(_, template)| template.clone(),
        )
    }
}

/// Makes units of columns.
pub(super) struct ColumnUnits {
    templates: Templates,
    encoder: UnitEncoder,
}

impl ColumnUnits {
    pub fn new(meta: &DirMeta, templates: Templates) -> ColumnUnits {
        let new = match meta.shares_strings() {
            true => UnitEncoder::new,
            false => UnitEncoder::without_shared_strings,
        };
        ColumnUnits {
            templates,
            encoder: new(meta.uuid, meta.chunk_bytes),
        }
    }
}

impl Encoder for ColumnUnits {
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        let templates = &self.templates;
        let template_of = |source, chunk| templates.find(source, chunk);
        self.encoder.encode(first, chunks, template_of, out);
    }

    fn another(&self) -> Box<dyn Encoder> {
        Box::new(ColumnUnits {
            templates: self.templates.clone(),
            encoder: self.encoder.another(),
        })
    }
}

impl fmt::Debug for ColumnUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnUnits").finish_non_exhaustive()
    }
}
