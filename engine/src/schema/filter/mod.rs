//! Filters: they select the records that an index covers or a query reads, such as `syscall = 17 AND latency_ns >= 1000`.
//!
//! A filter is a text in a definition or a query. `grammar` parses it, `resolve` adds types, and `expr` is the result. An index evaluates
//! it for every record of the source. It follows SQL: a comparison with NULL does not match.

mod expr;
mod grammar;
mod resolve;

pub use expr::Expr;
pub(crate) use expr::compared;

use super::field::FieldDef;
use super::layout::Layout;
use super::names::shown;
use crate::error::{Error, Result};

/// The longest filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 16 << 10;

/// A filter over the fields of one source.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    text: String,
    expr: Expr,
}

impl Filter {
    /// Parses a filter. Errors name the place and what is expected there.
    pub fn parse(text: &str, fields: &[FieldDef]) -> Result<Filter> {
        if text.len() > FILTER_BYTES_MAX {
            return Err(Error::schema(format!(
                "the filter has {} bytes; the limit is {FILTER_BYTES_MAX}",
                text.len()
            )));
        }
        let wrong = |message| Error::schema(format!("filter \"{}\": {message}", shown(text, 120)));
        let node = grammar::parse(text).map_err(wrong)?;
        let expr = resolve::resolve(&node, fields).map_err(|error| wrong(error.to_string()))?;
        Ok(Filter {
            text: text.to_owned(),
            expr,
        })
    }

    /// Whether a record matches: the filter is TRUE for it, neither FALSE nor NULL.
    #[inline]
    pub fn matches(&self, layout: &Layout, payload: &[u8]) -> bool {
        self.expr.matches(layout, payload)
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tests, to check whether a predicate implies them.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }
}

#[cfg(test)]
mod tests;
