//! A source as the random questions see it: its place in Loom, its columns, and how to draw values of them.
//!
//! `mixed` describes the rows of one Parquet file in this way, and `world` those of random sources. The same rows are in the session's
//! table `plain`, with the columns `ts` and `ts_ns` and the fields.

use std::sync::Arc;

use crate::seed::Seed;

pub struct Table {
    pub dir: String,
    pub source: String,
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// Filters of its rows that mean the same in SQL.
    pub filters: Vec<String>,
    pub times: Times,
}

#[derive(Clone)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// Draws a literal of a value that some rows hold, or a near one; never NULL.
    pub value: Draw,
}

pub type Draw = Arc<dyn Fn(&mut Seed) -> String + Send + Sync>;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Integer {
        bits: u8,
    },
    Float,
    Bool,
    Time,
    /// Text that represents a number.
    Label,
    Text,
    Blob,
}

impl Kind {
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Integer { .. } | Kind::Float)
    }
}

/// An index by its name, and the rows that it covers, in SQL.
#[derive(Clone)]
pub struct Index {
    pub name: String,
    /// The column of its values; `None` if it only counts.
    pub value: Option<Column>,
    pub filter: Option<String>,
}

/// The times of the rows.
#[derive(Copy, Clone)]
pub struct Times {
    pub first_ns: i64,
    pub span_ns: i64,
    /// Whether to use a time of the rows itself now and then.
    pub wild: bool,
}

/// A time as a constant of SQL, exact to the microsecond.
pub fn instant(ns: i64) -> String {
    format!("make_timestamptz({})", ns.div_euclid(1000))
}

impl Times {
    /// A time within or around the rows, of whole microseconds.
    pub fn near(self, seed: &mut Seed) -> i64 {
        if self.wild && seed.chance(10) {
            return seed.pick(&[
                0,
                -1_000_000,
                1_000,
                i64::MIN / 1000 * 1000,
                i64::MAX / 1000 * 1000,
            ]);
        }
        let margin = self.span_ns / 8;
        let at = seed.between(
            self.first_ns.saturating_sub(margin),
            self.first_ns
                .saturating_add(self.span_ns)
                .saturating_add(margin),
        );
        at / 1000 * 1000
    }

    /// A window within or around the rows, from most of them down to microseconds. Its ends are whole microseconds.
    pub fn window(self, seed: &mut Seed) -> (i64, i64) {
        let width = self.span_ns >> seed.between(0, 24);
        let from = self.near(seed);
        (from, from.saturating_add(width) / 1000 * 1000)
    }
}

impl Table {
    /// The indexes that have values, except those of labels, which are indexed by other values than they show.
    pub fn valued(&self) -> Vec<(Index, Column)> {
        let valued = self
            .indexes
            .iter()
            .filter_map(|index| Some((index.clone(), index.value.clone()?)))
            .filter(|(_, column)| column.kind != Kind::Label);
        valued.collect()
    }
}
