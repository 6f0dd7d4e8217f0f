//! Small tables that are made whole before their first row is given: every function but `loom_scan`.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::group::{At, nulls};
use super::vectors::{CAPACITY, Huge, Output, Plain, RawVectors};
use crate::error::{Problem, Result};
use crate::plan::types::SqlType;

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    /// Any integer type, and timestamps in their own unit.
    Int(i128),
    Float(f64),
    Text(String),
}

impl From<Option<Cell>> for Cell {
    fn from(cell: Option<Cell>) -> Cell {
        cell.unwrap_or(Cell::Null)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Int(i128::from(value))
    }
}

/// A table and the place of its reader; one thread reads it.
pub struct TableRun {
    rows: Vec<Vec<Cell>>,
    /// The table's column for each of the output; beyond the table where DuckDB made it up.
    projected: Vec<usize>,
    next: AtomicUsize,
}

impl TableRun {
    pub fn new(rows: Vec<Vec<Cell>>, projected: Vec<usize>) -> TableRun {
        TableRun {
            rows,
            projected,
            next: AtomicUsize::new(0),
        }
    }

    /// Writes up to a vector of rows. 0: there are no more.
    pub fn fill<V: RawVectors>(&self, out: &mut Output<'_, V>) -> Result<usize> {
        let from = self.next.fetch_add(CAPACITY, Ordering::Relaxed);
        let pending = self.rows.get(from..).unwrap_or_default();
        let rows = pending.get(..CAPACITY).unwrap_or(pending);
        for (position, &column) in self.projected.iter().enumerate() {
            let Some(&ty) = out.types().get(position) else {
                continue;
            };
            for (row, cells) in rows.iter().enumerate() {
                let at = At {
                    position,
                    from: row,
                };
                match cells.get(column) {
                    None | Some(Cell::Null) => nulls(out, at, 1)?,
                    Some(cell) => write(out, at, ty, cell)?,
                }
            }
        }
        Ok(rows.len())
    }
}

fn write<V: RawVectors>(out: &mut Output<'_, V>, at: At, ty: SqlType, cell: &Cell) -> Result<()> {
    match (ty, cell) {
        (SqlType::Bool, Cell::Bool(value)) => put(out, at, u8::from(*value)),
        (SqlType::I8, Cell::Int(value)) => put(out, at, *value as i8),
        (SqlType::I16, Cell::Int(value)) => put(out, at, *value as i16),
        (SqlType::I32, Cell::Int(value)) => put(out, at, *value as i32),
        (SqlType::I64 | SqlType::TimestampTz | SqlType::TimestampNs, Cell::Int(value)) => {
            put(out, at, *value as i64)
        }
        (SqlType::U8, Cell::Int(value)) => put(out, at, *value as u8),
        (SqlType::U16, Cell::Int(value)) => put(out, at, *value as u16),
        (SqlType::U32, Cell::Int(value)) => put(out, at, *value as u32),
        (SqlType::U64, Cell::Int(value)) => put(out, at, *value as u64),
        (SqlType::Huge, Cell::Int(value)) => put(out, at, Huge::from(*value)),
        (SqlType::F32, Cell::Float(value)) => put(out, at, *value as f32),
        (SqlType::F64, Cell::Float(value)) => put(out, at, *value),
        (SqlType::Text, Cell::Text(text)) => out.strings(at.position, at.from, &[text]),
        (ty, cell) => Err(Problem::input(format!(
            "loom: {cell:?} in a column of {ty:?}; please report it"
        ))),
    }
}

fn put<T: Plain, V: RawVectors>(out: &mut Output<'_, V>, at: At, value: T) -> Result<()> {
    for entry in out.column::<T>(at.position, at.from, 1)? {
        entry.write(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::Memory;

    #[test]
    fn cells_take_the_form_of_their_column() {
        let types = [
            SqlType::U8,
            SqlType::Huge,
            SqlType::Text,
            SqlType::TimestampTz,
        ];
        let mut memory = Memory::new(&types);
        let long = "a text that is longer than an entry";
        let rows = vec![
            vec![
                Cell::Int(200),
                Cell::Int(-1 << 100),
                Cell::Text(long.into()),
                Cell::Int(-5),
            ],
            vec![Cell::Null, Cell::Int(7), Cell::from("short"), Cell::Null],
        ];
        let run = TableRun::new(rows, vec![0, 1, 2, 3]);
        let mut out = Output::new(&mut memory, &types);
        assert_eq!(run.fill(&mut out).unwrap(), 2);
        assert_eq!(run.fill(&mut out).unwrap(), 0);
        assert_eq!(memory.integer(0, 1, 0) as u8, 200);
        assert_eq!(memory.integer(1, 16, 0), -1 << 100);
        assert_eq!(memory.string(2, 0), long.as_bytes());
        assert_eq!(memory.string(2, 1), b"short");
        assert_eq!(memory.integer(3, 8, 0), -5);
        assert!(!memory.valid(0, 1) && !memory.valid(3, 1) && memory.valid(1, 1));
    }

    #[test]
    fn a_cell_of_another_type_is_refused() {
        let types = [SqlType::U8];
        let mut memory = Memory::new(&types);
        let run = TableRun::new(vec![vec![Cell::from("x")]], vec![0]);
        assert!(run.fill(&mut Output::new(&mut memory, &types)).is_err());
    }
}
