//! The records of a source between two commits: sorted by time within each group, a file for each hour and for each break of the order.
//!
//! Each file is read back before it counts (`parquet`). Readers see nothing of it before `move_in`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{SortColumn, lexsort_to_indices, take_record_batch};
use arrow::datatypes::Int64Type;
use loom_engine::query::Batch;
use loom_engine::{Address, Timestamp, proven};

use super::manifest::ArchivedFile;
use super::place::{self, Hour};
use crate::output::columns::{BatchMost, Columns, Form, Unsigned};
use crate::output::out::Out;
use crate::output::parquet::{GROUP_ROWS, ParquetFile};

/// The amounts that are gathered before they are written, and written before they are committed.
#[derive(Copy, Clone)]
pub(super) struct Sizes {
    /// Rows that are sorted together, and are a row group.
    pub group: BatchMost,
    /// Records between two commits.
    pub span_records: u64,
}

impl Sizes {
    pub const USUAL: Sizes = Sizes {
        group: BatchMost {
            rows: GROUP_ROWS,
            bytes: 64 << 20,
        },
        span_records: 8 << 20,
    };
}

pub(super) struct Span<'a> {
    /// The folder for files before they are moved in.
    tmp: &'a Path,
    /// The source's folder.
    folder: String,
    columns: Columns,
    sizes: Sizes,
    /// Records in groups that are written.
    records: u64,
    open: Option<OpenFile>,
    closed: Vec<(PathBuf, ArchivedFile)>,
}

struct OpenFile {
    file: ParquetFile,
    path: PathBuf,
    hour: Hour,
    entry: ArchivedFile,
}

/// The columns of a batch that place its rows.
struct Keys {
    ts_ns: ArrayRef,
    addr: ArrayRef,
}

impl Keys {
    fn of(batch: &RecordBatch) -> Keys {
        let column = |name| {
            let column = batch.column_by_name(name);
            Arc::clone(column.expect("every archive has the column"))
        };
        Keys {
            ts_ns: column("ts_ns"),
            addr: column("addr"),
        }
    }

    fn ts_ns(&self) -> &[i64] {
        self.ts_ns.as_primitive::<Int64Type>().values()
    }

    fn addr(&self) -> &[i64] {
        self.addr.as_primitive::<Int64Type>().values()
    }
}

impl<'a> Span<'a> {
    pub fn new(
        tmp: &'a Path,
        folder: &str,
        source: &loom_engine::schema::Source,
        unsigned: Unsigned,
        sizes: Sizes,
    ) -> Span<'a> {
        Span {
            tmp,
            folder: folder.to_owned(),
            columns: Columns::new(source, Form::Archive(unsigned)),
            sizes,
            records: 0,
            open: None,
            closed: Vec::new(),
        }
    }

    /// Whether these rows belong to the next group.
    pub fn is_full(&self, rows: &Batch<'_>) -> bool {
        self.columns.is_full_before(rows, self.sizes.group)
    }

    /// True if the written files are to be committed.
    pub fn is_due(&self) -> bool {
        self.records >= self.sizes.span_records
    }

    pub fn append(&mut self, rows: Batch<'_>) {
        self.columns.append(rows);
    }

    /// Writes the gathered rows.
    pub fn end_group(&mut self) -> anyhow::Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let batch = sorted(self.columns.finish()?)?;
        let keys = Keys::of(&batch);
        let mut at = 0;
        while let Some(&first) = keys.ts_ns().get(at) {
            let hour = Hour::of(Timestamp(first));
            let rest = proven::at(keys.ts_ns(), at..);
            let rows = rest.partition_point(|ts| Hour::of(Timestamp(*ts)) == hour);
            self.write(hour, &batch.slice(at, rows))?;
            at += rows;
        }
        self.records += batch.num_rows() as u64;
        Ok(())
    }

    /// Writes rows of one hour, in order.
    fn write(&mut self, hour: Hour, rows: &RecordBatch) -> anyhow::Result<()> {
        let keys = Keys::of(rows);
        let (Some(&first), Some(&last)) = (keys.ts_ns().first(), keys.ts_ns().last()) else {
            return Ok(());
        };
        let goes_on = |open: &OpenFile| open.hour == hour && open.entry.last_ts_ns.0 <= first;
        if !self.open.as_ref().is_some_and(goes_on) {
            self.close()?;
            let least = keys.addr().iter().min().expect("each row has an address");
            let least = Address(least.cast_unsigned());
            let path = self.tmp.join(format!("{}.tmp", self.closed.len()));
            self.open = Some(OpenFile {
                file: ParquetFile::create(Out::File(path.clone()), self.columns.schema())?,
                path,
                hour,
                entry: ArchivedFile {
                    path: place::file(&self.folder, hour, least),
                    records: 0,
                    bytes: 0,
                    first_ts_ns: Timestamp(first),
                    last_ts_ns: Timestamp(last),
                },
            });
        }
        let open = self.open.as_mut().expect("it was opened");
        open.file.write(rows)?;
        open.file.end_group()?;
        open.entry.records += rows.num_rows() as u64;
        open.entry.last_ts_ns = Timestamp(last);
        Ok(())
    }

    fn close(&mut self) -> anyhow::Result<()> {
        if let Some(open) = self.open.take() {
            let mut entry = open.entry;
            entry.bytes = open.file.finish()?;
            self.closed.push((open.path, entry));
        }
        Ok(())
    }

    /// Puts the files in their places in the archive, and begins again. Returns their entries.
    pub fn move_in(&mut self, archive: &Path) -> anyhow::Result<Vec<ArchivedFile>> {
        self.close()?;
        self.records = 0;
        let mut files = Vec::new();
        for (path, entry) in self.closed.drain(..) {
            place::move_in(archive, &path, &entry.path)?;
            files.push(entry);
        }
        Ok(files)
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        self.open = None;
        for entry in fs::read_dir(self.tmp).into_iter().flatten().flatten() {
            // The next start removes the others.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Sorts by time, and by address where times are equal. Arrival times are sorted already.
fn sorted(batch: RecordBatch) -> anyhow::Result<RecordBatch> {
    let keys = Keys::of(&batch);
    if keys.ts_ns().is_sorted() {
        return Ok(batch);
    }
    let by = [keys.ts_ns, keys.addr].map(|values| SortColumn {
        values,
        options: None,
    });
    Ok(take_record_batch(&batch, &lexsort_to_indices(&by, None)?)?)
}
