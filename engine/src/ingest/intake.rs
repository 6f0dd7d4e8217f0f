//! The payloads that fit each source, looked up by id at each push. It follows the catalog after each change.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::proven::at_mut;
use crate::schema::{Catalog, Layout};
use crate::types::{Address, SourceId};

/// The intakes of all sources of a catalog.
pub(super) struct Intakes {
    /// By source id.
    intakes: Vec<Intake>,
    pub payload_bytes_max: usize,
}

#[derive(Clone, Default)]
struct Intake {
    /// The length of payloads that need no check.
    plain_bytes: Option<usize>,
    /// `None` while the source takes no records.
    layout: Option<Arc<Layout>>,
}

impl Intakes {
    pub fn new(catalog: &Catalog, payload_bytes_max: usize) -> Intakes {
        let mut intakes = Intakes {
            intakes: Vec::new(),
            payload_bytes_max,
        };
        for source in catalog.sources() {
            intakes.refresh(catalog, source.id);
        }
        intakes
    }

    /// Takes over the catalog's current definition of a source.
    pub fn refresh(&mut self, catalog: &Catalog, source: SourceId) {
        let open = catalog.source(source).filter(|source| source.is_open());
        let intake = open.map_or_else(Intake::default, |source| {
            let layout = source.layout_at(Address::MAX);
            let plain_bytes = layout.plain_bytes();
            Intake {
                plain_bytes: plain_bytes
                    .filter(|bytes| (1..=self.payload_bytes_max).contains(bytes)),
                layout: Some(Arc::clone(layout)),
            }
        });
        let at = usize::from(source.0);
        if self.intakes.len() <= at {
            self.intakes.resize(at + 1, Intake::default());
        }
        *at_mut(&mut self.intakes, at) = intake;
    }

    /// Whether payloads of that length need no check.
    #[inline]
    pub fn is_plain(&self, source: SourceId, payload_bytes: usize) -> bool {
        let intake = self.intakes.get(usize::from(source.0));
        intake.is_some_and(|intake| intake.plain_bytes == Some(payload_bytes))
    }

    /// Checks a payload against the layout.
    #[cold]
    pub fn check(&self, catalog: &Catalog, source: SourceId, payload: &[u8]) -> Result<()> {
        check(
            self.layout(catalog, source)?,
            payload,
            self.payload_bytes_max,
        )
    }

    /// The layout of a source that takes records.
    pub fn layout(&self, catalog: &Catalog, source: SourceId) -> Result<&Arc<Layout>> {
        let intake = self.intakes.get(usize::from(source.0));
        match intake.and_then(|intake| intake.layout.as_ref()) {
            Some(layout) => Ok(layout),
            None => Err(not_open(catalog, source)),
        }
    }
}

#[inline]
pub(super) fn check(layout: &Layout, payload: &[u8], payload_bytes_max: usize) -> Result<()> {
    if payload.len() > payload_bytes_max {
        return Err(Error::TooLong {
            bytes: payload.len(),
            limit: payload_bytes_max,
        });
    }
    layout.validate(payload)?;
    Ok(())
}

#[cold]
fn not_open(catalog: &Catalog, source: SourceId) -> Error {
    match catalog.source(source) {
        Some(closed) => Error::SourceClosed {
            name: closed.name.clone(),
        },
        None => Error::schema(format!("no source has the id {source}")),
    }
}
