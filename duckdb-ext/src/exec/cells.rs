//! Tables of cells, for functions that show no records. Small tables are built whole before the first row is returned, others piece by
//! piece.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::proven;
use loom_engine::query::Poll;

use super::place::{At, nulls};
use super::run::{Run, Worker};
use super::vectors::{CAPACITY, Huge, Output, Plain};
use crate::error::{Problem, Result};
use crate::plan::types::SqlType;

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    /// Any integer, and timestamps in their own unit.
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

/// The rows of a table, made as they are read.
pub trait Pieces: Send {
    /// The next rows; `None` after the last.
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>>;
}

/// A table that was built whole.
struct Whole(Option<Vec<Vec<Cell>>>);

impl Pieces for Whole {
    fn next(&mut self, _: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        Ok(self.0.take())
    }
}

/// A table that one thread reads.
pub struct TableRun {
    state: Mutex<State>,
    /// The table's column for each output column. A number past the last column stands for one that DuckDB made up.
    projected: Vec<usize>,
}

struct State {
    pieces: Box<dyn Pieces>,
    /// Rows that are made and not returned yet.
    rows: VecDeque<Vec<Cell>>,
}

impl TableRun {
    pub fn of_rows(rows: Vec<Vec<Cell>>, projected: &[usize]) -> Arc<dyn Run> {
        TableRun::of(Whole(Some(rows)), projected)
    }

    pub fn of(pieces: impl Pieces + 'static, projected: &[usize]) -> Arc<dyn Run> {
        Arc::new(TableRun {
            state: Mutex::new(State {
                pieces: Box::new(pieces),
                rows: VecDeque::new(),
            }),
            projected: projected.to_vec(),
        })
    }
}

impl Run for TableRun {
    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(self)
    }
}

impl Worker for Arc<TableRun> {
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.rows.len() < CAPACITY {
            match state.pieces.next(poll)? {
                Some(rows) => state.rows.extend(rows),
                None => break,
            }
        }
        let given = state.rows.len().min(CAPACITY);
        let rows: Vec<Vec<Cell>> = state.rows.drain(..given).collect();
        for (position, &column) in self.projected.iter().enumerate() {
            let ty = *proven::at(out.types(), position);
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

fn write(out: &mut Output<'_>, at: At, ty: SqlType, cell: &Cell) -> Result<()> {
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
        (SqlType::Text, Cell::Text(text)) => out.strings(at.position, at.from, [text].iter()),
        (ty, cell) => Err(Problem::input(format!(
            "cannot write {cell:?} into a column of {ty:?}; please report it"
        ))),
    }
}

fn put<T: Plain>(out: &mut Output<'_>, at: At, value: T) -> Result<()> {
    for entry in out.column::<T>(at.position, at.from, 1)? {
        entry.write(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::MemoryVectors;

    #[test]
    fn cells_take_the_form_of_their_column() {
        let types = [
            SqlType::U8,
            SqlType::Huge,
            SqlType::Text,
            SqlType::TimestampTz,
        ];
        let mut memory = MemoryVectors::new(&types);
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
        let mut worker = TableRun::of_rows(rows, &[0, 1, 2, 3]).worker();
        let mut out = Output::new(&mut memory, &types);
        assert_eq!(worker.fill(&mut out, &Poll::never()).unwrap(), 2);
        assert_eq!(worker.fill(&mut out, &Poll::never()).unwrap(), 0);
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
        let mut memory = MemoryVectors::new(&types);
        let mut worker = TableRun::of_rows(vec![vec![Cell::from("x")]], &[0]).worker();
        let mut out = Output::new(&mut memory, &types);
        assert!(worker.fill(&mut out, &Poll::never()).is_err());
    }

    /// The numbers up to 5000, a few at a time.
    struct Counting(i128);

    impl Pieces for Counting {
        fn next(&mut self, _: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
            let from = self.0;
            self.0 += from % 7;
            self.0 += i128::from(from % 7 == 0);
            let piece = (from..self.0).filter(|number| *number <= 5000);
            let rows = piece.map(|number| vec![Cell::Int(number)]).collect();
            Ok((from <= 5000).then_some(rows))
        }
    }

    #[test]
    fn a_table_in_pieces_comes_out_whole_and_in_order() {
        let types = [SqlType::I64];
        let mut worker = TableRun::of(Counting(0), &[0]).worker();
        let mut numbers = Vec::new();
        loop {
            let mut memory = MemoryVectors::new(&types);
            let rows = worker
                .fill(&mut Output::new(&mut memory, &types), &Poll::never())
                .unwrap();
            assert!(rows <= CAPACITY && (rows == CAPACITY || numbers.len() + rows >= 5001));
            if rows == 0 {
                break;
            }
            numbers.extend((0..rows).map(|row| memory.integer(0, 8, row)));
        }
        assert_eq!(numbers, (0..=5000).collect::<Vec<i128>>());
    }
}
