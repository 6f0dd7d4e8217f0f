//! The writer's part of the catalog. Sources and indexes are defined and closed at the start of a chunk, and are in the file before they
//! take effect. Sources are forgotten with their records.

use crate::error::Result;
use crate::schema::{
    BinsDef, Catalog, Event, IndexDef, Source, SourceDef, decode_catalog, encode_line,
};
use crate::types::{Address, IndexId, LogKind, SourceId, ValueKind};

use super::intake::Intakes;
use super::native::NativeKey;
use super::writer::Writer;

/// A catalog is not rewritten for fewer bytes than this.
const FORGOTTEN_BYTES_MIN: u64 = 64 << 10;

/// One of the catalog's two ways to define a source.
type Define = fn(&mut Catalog, &SourceDef, Address) -> Result<(SourceId, Vec<Event>)>;

impl Writer {
    /// Defines a source with its indexes (Figure 9). The same definition again changes nothing. Further fields and indexes hold from the
    /// next chunk on. A closed source is opened again.
    pub fn define_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_source)
    }

    /// As `define_source`, for built-in sources: their names begin with `loom_`.
    pub fn define_builtin_source(&mut self, def: &SourceDef) -> Result<SourceId> {
        self.define(def, Catalog::define_builtin_source)
    }

    /// Defines several sources, all or none: each is tried before the first is defined.
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

    /// Ends a source: it takes no more records, and those it has stay.
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

    /// Ends an index. It stays readable over the records that it covered.
    pub fn close_index(&mut self, index: IndexId) -> Result<()> {
        self.seal()?;
        self.change_catalog(|catalog, at| Ok(((), vec![catalog.close_index(index, at)?])))?;
        self.natives.remove(&index);
        Ok(())
    }

    /// Rewrites the catalog without those `forgettable` sources that have no retained record, if they take at least an eighth of it. So
    /// definitions from strangers are removed with their records. Returns whether it rewrote the catalog.
    ///
    /// # Errors
    /// As [`Writer::rewrite_catalog`].
    pub fn forget(&mut self, forgettable: impl Fn(&Source) -> bool) -> Result<bool> {
        let below = self.given_up_below();
        let is_gone = |source: &Source| self.is_gone(source, below) && forgettable(source);
        let gone = self.catalog.sources().filter(|source| is_gone(source));
        let gone_bytes: u64 = gone.map(|source| source.definition_bytes()).sum();
        let is_worth_it = gone_bytes >= (self.catalog_bytes() / 8).max(FORGOTTEN_BYTES_MIN);
        if is_worth_it {
            self.rewrite_catalog(forgettable)?;
        }
        Ok(is_worth_it)
    }

    /// Rewrites the catalog: it keeps only what describes retained records, and drops those `forgettable` sources that have none. The names
    /// of dropped sources keep their ids, and a new definition brings them back.
    ///
    /// # Errors
    /// The log or the catalog cannot be written; the catalog is as before.
    pub fn rewrite_catalog(&mut self, forgettable: impl Fn(&Source) -> bool) -> Result<()> {
        if self.catalog.event_count() == 0 {
            return Ok(());
        }
        // Only sealed chunks say which sources' records they hold.
        self.seal()?;
        let uuid = self.logs.meta().uuid;
        let bytes = self.logs.catalog_bytes_ever()?;
        let below = self.given_up_below();
        let is_gone = |source: &Source| self.is_gone(source, below) && forgettable(source);
        let text = self.catalog.rewritten_text(&uuid, bytes, below, is_gone);
        let (catalog, ..) = decode_catalog(&uuid, text.as_bytes())?;
        self.logs.rewrite_catalog(text.into_bytes())?;
        self.intakes = Intakes::new(&catalog, self.intakes.payload_bytes_max);
        self.catalog = catalog;
        Ok(())
    }

    /// The address below which no start finds records again, whatever is lost.
    fn given_up_below(&self) -> Address {
        self.logs.evicted(LogKind::Records)
    }

    /// Whether a source has no record at `below` or past it and none is expected, because it got its last field before `below`.
    fn is_gone(&self, source: &Source, below: Address) -> bool {
        let last = self.latest.get(source.id);
        let is_retained = last.is_some_and(|chunk| chunk.address(self.chunk_bytes) >= below);
        let is_old = (source.layouts.last()).is_some_and(|(since, _)| *since < below);
        is_old && !is_retained && source.indexes.is_empty()
    }

    /// Changes the catalog from the next chunk on. Each event is written before it takes effect, so that the catalog here equals the one on
    /// the disk, whichever write fails.
    fn change_catalog<T>(
        &mut self,
        change: impl FnOnce(&mut Catalog, Address) -> Result<(T, Vec<Event>)>,
    ) -> Result<T> {
        let at = self.chunk_start();
        let (made, events) = self.catalog.plan(|catalog| change(catalog, at))?;
        let uuid = self.logs.meta().uuid;
        let written = events.iter().try_for_each(|event| {
            let line_no = self.catalog.event_count();
            self.logs
                .append_catalog(&encode_line(&uuid, line_no, event))?;
            self.catalog.apply(event)
        });
        // Only the changed sources are refreshed: there may be tens of thousands of others.
        for source in events.iter().filter_map(Event::source) {
            self.intakes.refresh(&self.catalog, source);
            self.templates.refresh(&self.catalog, source);
        }
        written.map(|()| made)
    }
}
