//! A table function, and the life of a call: it is bound once, started for each execution, and one or more threads work on it. Each
//! function has a file of its own beside this one; `functions.rs` lists them.

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
    /// The columns, in Markdown.
    pub columns: &'static str,
    /// Example statements, which run on a directory that has these names.
    pub examples: &'static [&'static str],
    pub positional: &'static [Parameter],
    pub named: &'static [Parameter],
    pub bind: fn(&Arguments, &Ambient<'_>) -> Result<Bound>,
}

pub type Bound = Box<dyn Plan>;

/// A bound call. It can be executed many times, also concurrently.
pub trait Plan: Send + Sync {
    fn columns(&self) -> &[Column];

    /// An estimate of the number of rows of an execution. It is not a bound, because sources keep growing.
    fn rows_estimate(&self) -> Option<u64> {
        None
    }

    /// Whether a `WHERE` clause can save reads.
    fn prunes(&self) -> bool {
        false
    }

    /// Takes the `WHERE` clause, which is only used to prune; each offer replaces the earlier ones.
    fn offer(&self, _: Clause) {}

    /// Starts an execution that shows these columns, given by their declared numbers.
    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>>;
}

impl Function {
    /// The description, the columns, and the meaning of each parameter.
    pub fn documentation(&self) -> String {
        let columns = self.columns.replace('`', "");
        let mut text = format!("{}\ncolumns: {columns}", self.description);
        for parameter in self.positional.iter().chain(self.named) {
            text.push_str(&format!("\n{}: {}", parameter.name, parameter.about));
        }
        text
    }
}

/// A call that shows a small table; each execution builds the whole table.
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

/// An execution, which its threads share.
pub struct Running {
    /// The types of the output's vectors.
    types: Vec<SqlType>,
    run: Arc<dyn Run>,
}

impl Running {
    /// Starts an execution that shows these columns, given by their declared numbers.
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

    /// Writes at most one vector of rows with a worker, and reports their number to DuckDB; 0 rows mean the end.
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
