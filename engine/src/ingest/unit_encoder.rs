//! The encoder that a writer hands to its flusher: it knows how each source's payloads are taken apart, as the catalog says of a chunk.
//!
//! The writer notes a definition before it publishes a record of it, so the flusher, which comes later, finds it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::format::{Template, UnitEncoder};
use crate::log::Encoder;
use crate::proven::at_mut;
use crate::schema::{Catalog, Pieces};
use crate::types::{Address, SourceId};

/// How the payloads of all sources are taken apart. The writer and its flusher share it.
#[derive(Clone, Default)]
pub(super) struct Templates(Arc<RwLock<Vec<Layouts>>>);

/// The templates of a source, by where they begin to hold; by source id.
type Layouts = Vec<(Address, Template)>;

impl Templates {
    pub fn of(catalog: &Catalog) -> Templates {
        let templates = Templates::default();
        for source in catalog.sources() {
            templates.refresh(catalog, source.id);
        }
        templates
    }

    /// Takes over what the catalog says of a source now. Of one that it forgot there are no records.
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

    /// Of the records of a source in the chunk at an address. Payloads of a source that nobody knows are any bytes.
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
    pub fn new(uuid: [u8; 16], chunk_bytes: u32, templates: Templates) -> ColumnUnits {
        ColumnUnits {
            templates,
            encoder: UnitEncoder::new(uuid, chunk_bytes),
        }
    }
}

impl Encoder for ColumnUnits {
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        let templates = &self.templates;
        let template_of = |source, chunk| templates.find(source, chunk);
        self.encoder.encode(first, chunks, template_of, out);
    }
}

impl fmt::Debug for ColumnUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnUnits").finish_non_exhaustive()
    }
}
