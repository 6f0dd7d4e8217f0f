//! What a table function is, and the life of a call: bound once, started for each execution, worked on by one or more threads.
//! Each function stands in a file of its own beside this one; `functions.rs` lists them.

use std::sync::Arc;

use loom_engine::query::Poll;

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::clause::Clause;
use super::columns::Column;
use super::parameters::Parameter;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::{Cell, TableRun};
use crate::exec::run::{Run, Worker};
use crate::exec::vectors::{Output, RawVectors};

pub struct Function {
    pub name: &'static str,
    pub description: &'static str,
    /// The columns of its rows, in Markdown.
    pub columns: &'static str,
    /// Statements that may be run as they are where a directory has such names.
    pub examples: &'static [&'static str],
    pub positional: &'static [Parameter],
    pub named: &'static [Parameter],
    pub bind: fn(&Arguments, &Ambient<'_>) -> Result<Bound>,
}

/// A call whose arguments have been understood.
pub type Bound = Box<dyn Plan>;

/// A bound call. It may be executed many times, also at once.
pub trait Plan: Send + Sync {
    fn columns(&self) -> &[Column];

    /// About how many rows an execution gives, where that is known; no bound, since a source goes on growing.
    fn rows_estimate(&self) -> Option<u64> {
        None
    }

    /// Whether a `WHERE` clause can save reads.
    fn prunes(&self) -> bool {
        false
    }

    /// Takes the `WHERE` clause, to prune by and no more: each offer stands for all before it.
    fn offer(&self, _: Clause) {}

    /// Begins an execution that shows these columns, by their declared numbers.
    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>>;
}

impl Function {
    /// The description, the columns, and what each parameter means.
    pub fn documentation(&self) -> String {
        let columns = self.columns.replace('`', "");
        let mut text = format!("{}\ncolumns: {columns}", self.description);
        for parameter in self.positional.iter().chain(self.named) {
            text.push_str(&format!("\n{}: {}", parameter.name, parameter.about));
        }
        text
    }
}

/// A call that shows a small table, which each execution makes whole.
pub struct SmallTable<F> {
    columns: Vec<Column>,
    rows: F,
}

impl<F> SmallTable<F>
where
    F: Fn(&Ambient<'_>) -> Result<Vec<Vec<Cell>>> + Send + Sync + 'static,
{
    pub fn bound(columns: Vec<Column>, rows: F) -> Bound {
        Box::new(SmallTable { columns, rows })
    }
}

impl<F> Plan for SmallTable<F>
where
    F: Fn(&Ambient<'_>) -> Result<Vec<Vec<Cell>>> + Send + Sync,
{
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        Ok(TableRun::of_rows((self.rows)(ambient)?, projected))
    }
}

/// One execution, shared by its threads.
pub struct Running {
    /// Of the output's vectors.
    types: Vec<SqlType>,
    run: Arc<dyn Run>,
}

impl Running {
    /// Begins an execution that shows these columns, by their declared numbers.
    pub fn start(plan: &dyn Plan, projected: &[usize], ambient: &Ambient<'_>) -> Result<Running> {
        let columns = plan.columns();
        let type_of = |column: &usize| {
            columns
                .get(*column)
                .map_or(SqlType::Any, |column| column.ty)
        };
        Ok(Running {
            types: projected.iter().map(type_of).collect(),
            run: plan.start(projected, ambient)?,
        })
    }

    pub fn threads(&self) -> usize {
        self.run.threads()
    }

    pub fn progress(&self) -> f64 {
        self.run.progress().clamp(0.0, 1.0)
    }

    pub fn worker(&self) -> Box<dyn Worker> {
        Arc::clone(&self.run).worker()
    }

    /// Writes up to a vector of rows with one of its workers, and reports their number to DuckDB: 0 when there are no more.
    pub fn fill(
        &self,
        worker: &mut dyn Worker,
        vectors: &mut dyn RawVectors,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut out = Output::new(vectors, &self.types);
        let rows = worker.fill(&mut out, &Poll::new(stop))?;
        out.finish(rows)
    }
}
