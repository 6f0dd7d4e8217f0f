//! The writer's part of the catalog: sources and indexes are defined and closed at the start of a chunk, and stand in the file before they
//! count.

use crate::error::Result;
use crate::schema::{BinsDef, Catalog, Event, IndexDef, SourceDef, encode_line};
use crate::types::{Address, IndexId, SourceId, ValueKind};

use super::native::NativeKey;
use super::writer::Writer;

/// One of the catalog's two ways to define a source.
type Define = fn(&mut Catalog, &SourceDef, Address) -> Result<(SourceId, Vec<Event>)>;

impl Writer {
    /// Defines a source with its indexes (Figure 9). The same definition again changes nothing; further fields and indexes are
    /// added from the next chunk on; a closed source is opened again.
    pub fn define_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_source)
    }

    /// As `define_source`, for sources that are built in: their names begin with `loom_`.
    pub fn define_builtin_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_builtin_source)
    }

    /// Defines several sources, all or none: each is tried before the first is made.
    pub fn define_sources(&mut self, defs: &[SourceDef]) -> Result<Vec<SourceId>> {
        let at = self.chunk_start();
        self.catalog.plan(|catalog| {
            defs.iter()
                .try_for_each(|def| catalog.define_source(def, at).map(drop))
        })?;
        defs.iter().map(|def| self.define_source(def)).collect()
    }

    fn define(&mut self, def: &SourceDef, define: Define) -> Result<SourceId> {
        if self.catalog.find(&def.name).is_some() {
            let at = self.chunk_start();
            let (id, events) = self.catalog.plan(|catalog| define(catalog, def, at))?;
            if events.is_empty() {
                return Ok(id);
            }
            self.seal()?;
        }
        self.change_catalog(|catalog, at| define(catalog, def, at))
    }

    /// Ends a source: its records stay, it takes no more.
    pub fn close_source(&mut self, source: SourceId) -> Result<()> {
        self.seal()?;
        self.change_catalog(|catalog, at| Ok(((), vec![catalog.close_source(source, at)?])))
    }

    /// Defines an index for the records from the next chunk on (§5.3).
    pub fn define_index(&mut self, source: SourceId, def: &IndexDef) -> Result<IndexId> {
        self.seal()?;
        self.change_catalog(|catalog, at| {
            let (id, event) = catalog.define_index(source, def, at)?;
            Ok((id, event.into_iter().collect()))
        })
    }

    /// Defines an index by a closure, for as long as this writer lives. Only library users of this process can query it.
    pub fn define_index_fn(
        &mut self,
        source: SourceId,
        name: &str,
        kind: ValueKind,
        bins: &BinsDef,
        key: NativeKey,
    ) -> Result<IndexId> {
        self.seal()?;
        let id = self.change_catalog(|catalog, at| {
            let (id, event) = catalog.define_native_index(source, name, kind, bins, at)?;
            Ok((id, vec![event]))
        })?;
        self.natives.insert(id, key);
        Ok(id)
    }

    /// Ends an index; it stays readable over the records that it covered.
    pub fn close_index(&mut self, index: IndexId) -> Result<()> {
        self.seal()?;
        self.change_catalog(|catalog, at| Ok(((), vec![catalog.close_index(index, at)?])))?;
        self.natives.remove(&index);
        Ok(())
    }

    /// Makes a change of the catalog from the next chunk on: each of its events is written before it counts, so that the catalog here is always
    /// the one on the disk, whichever write fails.
    fn change_catalog<T>(
        &mut self,
        change: impl FnOnce(&mut Catalog, Address) -> Result<(T, Vec<Event>)>,
    ) -> Result<T> {
        let at = self.chunk_start();
        let (made, events) = self.catalog.plan(|catalog| change(catalog, at))?;
        let uuid = self.logs.meta().uuid;
        let written = events.iter().try_for_each(|event| {
            self.logs
                .append_catalog(&encode_line(&uuid, self.catalog_lines, event))?;
            self.catalog_lines += 1;
            self.catalog.apply(event)
        });
        // Only theirs: there may be tens of thousands of others.
        for source in events.iter().filter_map(Event::source) {
            self.intakes.refresh(&self.catalog, source);
        }
        written.map(|()| made)
    }
}
