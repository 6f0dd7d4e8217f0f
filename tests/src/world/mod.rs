//! Random sources with any fields, indexes and rows. The engine's own writer writes them as a daemon would; a Parquet file holds the same
//! rows, so that plain DuckDB can be asked the same questions.
//!
//! A source's life has stages, between which fields, indexes and writers are added and removed. Small chunks give many chunks from few
//! rows.

mod schema;
mod value;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use loom_engine::SourceId;
use loom_engine::Timestamp;
use loom_engine::format::UNIT_CHUNKS;
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::Durability;
use loom_engine::schema::{FieldDef, Filter, PayloadEncoder, Source, SourceDef, TimeKind};
use loom_engine::testkit::options;

use self::schema::Schema;
use self::value::{Value, draw, from_text, kind};
use crate::duckdb::Session;
use crate::seed::Seed;
use crate::table::{Column, Index, Table, Times};

/// The number of filters that are drawn for a source.
const FILTERS: usize = 12;
const SOURCE: &str = "random";
const NOISE: &str = "noise";
/// The segments are small, so that many worlds have some full ones.
const SEGMENT_BYTES: u64 = 256 << 10;

pub struct World {
    pub table: Table,
    pub rows: i64,
    parquet: PathBuf,
    /// The events of the source's life, to help with finding a fault.
    pub story: String,
    /// Set while the source is still being written.
    writer: Option<Writer>,
}

/// A world that is being made.
struct Making<'a> {
    seed: &'a mut Seed,
    schema: Schema,
    options: WriterOptions,
    dir: PathBuf,
    /// `None` only while one writer replaces another.
    writer: Option<Writer>,
    source: SourceId,
    noise: SourceId,
    /// The number of records of the other source before each row.
    noise_records: i64,
    /// How many of the schema's fields the source has.
    fields: usize,
    times: OwnTimes,
    csv: String,
    rows: i64,
    story: String,
}

/// The relation of own times to the rows.
#[derive(Copy, Clone, Debug)]
struct OwnTimes {
    first_ns: i64,
    step_ns: i64,
    jitter_ns: i64,
    wild: bool,
}

impl OwnTimes {
    fn draw(seed: &mut Seed) -> OwnTimes {
        let step_ns = seed.pick(&[0, 1, 1001, 1_000_000, 3_600_000_000_000]);
        let first_ns = seed.pick(&[
            1_700_000_000_000_000_000,
            1_700_000_000_000_000_000,
            -5_000_000_000,
            -2_000_000_000_000_000_000,
            6_000_000_000_000_000_000,
        ]);
        OwnTimes {
            first_ns,
            step_ns,
            jitter_ns: step_ns * seed.pick(&[0, 1, 1, 30]),
            wild: seed.chance(20),
        }
    }

    fn at(self, seed: &mut Seed, row: i64) -> i64 {
        if self.wild && seed.chance(2) {
            let any = seed.draw().cast_signed();
            return seed.pick(&[i64::MIN, i64::MAX, 0, -1, -1000, 999, any]);
        }
        let near = seed.between(-self.jitter_ns, self.jitter_ns + 1);
        self.first_ns
            .saturating_add(self.step_ns.saturating_mul(row))
            .saturating_add(near)
    }
}

impl World {
    /// Draws a world, in a directory below `place`. `duckdb` writes its Parquet file.
    pub fn draw(seed: &mut Seed, place: &Path, duckdb: &mut Session) -> Result<World> {
        let rows = seed.pick(&[0, 1, 3, 40, 500, 500, 3000, 3000, 10_000, 20_000, 60_000]);
        let stages = seed.between(1, 5);
        let mut making = Making::begin(seed, place)?;
        for _ in 0..stages {
            making.push(rows / stages + 1)?;
            making.change()?;
        }
        making.push(rows % 7)?;
        if making.seed.chance(10) {
            let source = making.source;
            making.writer()?.close_source(source)?;
            making.tell("the source closed");
        }
        making.end(place, duckdb)
    }

    /// Fills the session's table `plain` with the rows.
    pub fn give_plain(&self, session: &mut Session) -> Result<()> {
        let file = self.parquet.display();
        session.query(&format!(
            "CREATE OR REPLACE TABLE plain AS FROM read_parquet('{file}')"
        ))?;
        Ok(())
    }

    /// Writes every whole unit. Returns whether a writer did so.
    pub fn sync(&mut self) -> Result<bool> {
        let Some(writer) = &mut self.writer else {
            return Ok(false);
        };
        writer.sync_durable()?;
        Ok(true)
    }
}

impl<'a> Making<'a> {
    fn begin(seed: &'a mut Seed, place: &Path) -> Result<Making<'a>> {
        let schema = Schema::draw(seed)?;
        let chunk_bytes = seed.pick(&[4 << 10, 4 << 10, 8 << 10, 64 << 10]);
        let bytes = SEGMENT_BYTES.max(UNIT_CHUNKS * u64::from(chunk_bytes));
        let mut options = options(bytes, bytes);
        options.log.chunk_bytes = chunk_bytes;
        options.log.durability = Durability::None;
        options.accept_clock = true;
        let dir = place.join("random.loom");
        let mut writer = Writer::open(&dir, options.clone())?;
        let noise = writer.define_source(&SourceDef::new(NOISE))?;
        let fields = if seed.chance(30) {
            1 + (seed.draw() % schema.fields.len() as u64) as usize
        } else {
            schema.fields.len()
        };
        let source = writer.define_source(&source_def(&schema, fields))?;
        let mut making = Making {
            noise_records: seed.pick(&[0, 0, 0, 1, 30]),
            times: OwnTimes::draw(seed),
            csv: String::new(),
            rows: 0,
            story: format!("{:?}, chunks of {chunk_bytes} bytes", schema.time),
            seed,
            options,
            schema,
            dir,
            writer: Some(writer),
            source,
            noise,
            fields,
        };
        making.tell(&format!("{} fields", making.fields));
        for at in 0..making.schema.indexes.len() {
            if making.seed.chance(80) {
                making.define(at)?;
            }
        }
        Ok(making)
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        self.writer.as_mut().context("no writer")
    }

    fn catalogued(&self) -> Option<&Arc<Source>> {
        self.writer.as_ref()?.catalog().source(self.source)
    }

    fn tell(&mut self, event: &str) {
        self.story
            .push_str(&format!("; {event} at row {}", self.rows));
    }

    fn known(&self) -> &[FieldDef] {
        self.schema.fields.get(..self.fields).unwrap_or_default()
    }

    /// Defines an index, even one that was closed, if the source has the fields that it needs.
    fn define(&mut self, at: usize) -> Result<()> {
        let Some(def) = self.schema.indexes.get(at).cloned() else {
            return Ok(());
        };
        let source = self.source;
        if self.writer()?.define_index(source, &def).is_ok() {
            self.tell(&format!("index {}", serde_json::to_string(&def)?));
        }
        Ok(())
    }

    /// Makes a change between two stages.
    fn change(&mut self) -> Result<()> {
        match self.seed.between(0, 8) {
            0 if self.fields < self.schema.fields.len() => {
                self.fields += 1;
                let def = source_def(&self.schema, self.fields);
                self.writer()?.define_source(&def)?;
                self.tell("a field more");
            }
            1 | 2 if !self.schema.indexes.is_empty() => {
                let at = (self.seed.draw() % self.schema.indexes.len() as u64) as usize;
                self.define(at)?;
            }
            3 => {
                let indexes = self
                    .catalogued()
                    .into_iter()
                    .flat_map(|source| source.open_indexes());
                let open: Vec<_> = indexes.map(|index| index.id).collect();
                if !open.is_empty() {
                    let id = self.seed.pick(&open);
                    self.writer()?.close_index(id)?;
                    self.tell("an index closed");
                }
            }
            4 => {
                let (source, def) = (self.source, source_def(&self.schema, self.fields));
                self.writer()?.close_source(source)?;
                self.writer()?.define_source(&def)?;
                self.tell("closed and opened again");
            }
            5 => {
                self.writer()?.sync_durable()?;
                self.tell("synced");
            }
            _ => {
                if let Some(writer) = self.writer.take() {
                    writer.close()?;
                }
                self.writer = Some(Writer::open(&self.dir, self.options.clone())?);
                self.tell("another writer");
            }
        }
        Ok(())
    }

    fn push(&mut self, rows: i64) -> Result<()> {
        let defs = self.known().to_vec();
        let mut encoder = PayloadEncoder::new(self.schema.time, &defs)?;
        let mut payload = Vec::new();
        for _ in 0..rows {
            for _ in 0..self.noise_records {
                let noise = self.noise;
                self.writer()?.push(noise, &[7; 40])?;
            }
            let values: Vec<Value> = defs
                .iter()
                .zip(self.schema.spreads.clone())
                .map(|(def, spread)| match def.nullable && self.seed.chance(20) {
                    true => Value::Null,
                    false => draw(self.seed, def, spread, self.rows),
                })
                .collect();
            let own = (self.schema.time == TimeKind::Own)
                .then(|| Timestamp(self.times.at(self.seed, self.rows)));
            let encoded: Vec<_> = values.iter().map(Value::encoded).collect();
            payload.clear();
            encoder.encode(own, &encoded, &mut payload)?;
            let source = self.source;
            self.writer()?.push(source, &payload)?;
            self.note(own, &defs, &values);
        }
        self.writer()?.publish()?;
        Ok(())
    }

    /// Adds the row as a line of CSV. Every text is quoted, so that an empty field is NULL.
    fn note(&mut self, own: Option<Timestamp>, defs: &[FieldDef], values: &[Value]) {
        self.csv.push_str(&self.rows.to_string());
        self.csv.push(',');
        if let Some(own) = own {
            self.csv.push_str(&own.0.to_string());
        }
        for at in 0..self.schema.fields.len() {
            self.csv.push(',');
            let text = defs
                .get(at)
                .zip(values.get(at))
                .and_then(|(def, value)| value.text(def));
            if let Some(text) = text {
                self.csv
                    .push_str(&format!("\"{}\"", text.replace('"', "\"\"")));
            }
        }
        self.csv.push('\n');
        self.rows += 1;
    }

    fn end(mut self, place: &Path, duckdb: &mut Session) -> Result<World> {
        self.writer()?.sync()?;
        let columns = self.columns();
        let indexes = self.indexes(&columns);
        let filters = self.filters();
        let csv = place.join("random.csv");
        std::fs::write(&csv, &self.csv)?;
        let parquet = place.join("random.parquet");
        let dir = self.dir.display().to_string();
        let times = write_parquet(duckdb, &self, &csv, &parquet, &dir)?;
        let mut writer = self.writer.take();
        if self.seed.chance(50) {
            self.tell("still open");
        } else if let Some(writer) = writer.take() {
            writer.close()?;
        }
        Ok(World {
            table: Table {
                dir,
                source: SOURCE.to_owned(),
                columns,
                indexes,
                filters,
                times: Times {
                    wild: self.times.wild,
                    ..times
                },
            },
            rows: self.rows,
            parquet,
            story: self.story,
            writer,
        })
    }

    fn columns(&self) -> Vec<Column> {
        let rows = self.rows.max(1);
        let known = self.known().iter().zip(&self.schema.spreads);
        known
            .map(|(def, spread)| {
                let (of, spread) = (def.clone(), *spread);
                Column {
                    name: def.name.clone(),
                    kind: kind(def),
                    value: Arc::new(move |seed| {
                        let row = seed.between(0, rows);
                        draw(seed, &of, spread, row).literal(&of)
                    }),
                }
            })
            .collect()
    }

    /// Draws filters on the fields that the source has.
    fn filters(&mut self) -> Vec<String> {
        let drawn: Vec<String> = (0..FILTERS)
            .filter_map(|_| self.schema.filter(self.seed, 2))
            .collect();
        let fields = self.catalogued().map(|source| &source.fields);
        let is_known =
            |text: &String| fields.is_some_and(|fields| Filter::parse(text, fields).is_ok());
        drawn.into_iter().filter(is_known).collect()
    }

    fn indexes(&self, columns: &[Column]) -> Vec<Index> {
        let Some(source) = self.catalogued() else {
            return Vec::new();
        };
        let known = self
            .schema
            .indexes
            .iter()
            .filter(|def| source.index(&def.name).is_some());
        known
            .map(|def| Index {
                name: def.name.clone(),
                value: def
                    .value
                    .as_ref()
                    .and_then(|name| columns.iter().find(|column| column.name == *name).cloned()),
                filter: def.filter.clone(),
            })
            .collect()
    }
}

fn source_def(schema: &Schema, fields: usize) -> SourceDef {
    SourceDef {
        time: schema.time,
        fields: schema.fields.iter().take(fields).cloned().collect(),
        ..SourceDef::new(SOURCE)
    }
}

/// Writes the rows with the types that Loom gives them, and returns their times. Only Loom knows times of arrival.
fn write_parquet(
    duckdb: &mut Session,
    making: &Making,
    csv: &Path,
    parquet: &Path,
    dir: &str,
) -> Result<Times> {
    let names: Vec<String> = (0..making.schema.fields.len())
        .map(|at| format!("'c{at}': 'VARCHAR'"))
        .collect();
    let fields: Vec<String> = making
        .known()
        .iter()
        .enumerate()
        .map(|(at, def)| format!("{} AS {}", from_text(def, &format!("c{at}")), def.name))
        .collect();
    let file = format!(
        "read_csv('{}', header = false, nullstr = '', allow_quoted_nulls = false, delim = ',', quote = '\"', escape = '\"',
            columns = {{'n': 'BIGINT', 'own': 'BIGINT', {}}})",
        csv.display(),
        names.join(", ")
    );
    let rows = match making.schema.time {
        TimeKind::Own => format!("SELECT n, own AS t, * EXCLUDE (n, own) FROM {file}"),
        TimeKind::Arrival => format!(
            "SELECT n, t, * EXCLUDE (n, own, t, m) FROM {file}
             JOIN (SELECT row_number() OVER () - 1 AS m, ts_ns AS t FROM loom_scan('{dir}', '{SOURCE}')) ON n = m"
        ),
    };
    let floor = "((t::HUGEINT - ((t % 1000 + 1000) % 1000)) // 1000)::BIGINT";
    let made = format!(
        "COPY (SELECT make_timestamptz({floor}) AS ts, t AS ts_ns, {} FROM ({rows}) ORDER BY n) TO '{}'",
        fields.join(", "),
        parquet.display()
    );
    duckdb.query(&made).with_context(|| made.clone())?;
    let span = duckdb.query(&format!(
        "SELECT count(*), approx_quantile(ts_ns, 0.02), approx_quantile(ts_ns, 0.98) FROM '{}'",
        parquet.display()
    ))?;
    let number = |at: usize| -> Option<i64> { span.first()?.get(at)?.as_ref()?.parse().ok() };
    ensure!(
        number(0) == Some(making.rows),
        "{:?} rows in the file, not {}",
        number(0),
        making.rows
    );
    let (first_ns, last_ns) = (number(1).unwrap_or(0), number(2).unwrap_or(0));
    Ok(Times {
        first_ns,
        span_ns: last_ns.saturating_sub(first_ns).max(1_000_000),
        wild: false,
    })
}
