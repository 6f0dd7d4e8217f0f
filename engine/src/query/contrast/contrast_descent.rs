//! A descent over the records of both groups, which counts their fields.

use std::ops::Range;
use std::sync::Arc;

use super::group_counts::GroupCounts;
use super::grouped_rows::GroupedRows;
use super::tally::{Buffers, FieldTally};
use crate::error::Result;
use crate::format::Node;
use crate::query::aggregate::shared_descent::Descent;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::Visitor;
use crate::query::predicate::Test;
use crate::query::scan::ask::Ask;
use crate::query::scan::batch::Batch;
use crate::query::scan::source_reader::SourceReader;
use crate::query::scan::unit_pruning::UnitPruning;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{Source, TimeKind};
use crate::types::{Address, ChunkNo, TimeRange};

/// The records of one snapshot's source to compare.
pub struct ContrastQuestion {
    pub logs: Arc<SnapshotLogs>,
    pub source: Arc<Source>,
    /// Both groups together.
    pub all: UnitPruning,
    pub selected: Test,
}

pub struct ContrastDescent<'a> {
    question: &'a ContrastQuestion,
    pub records: GroupCounts,
    pub tallies: Vec<FieldTally>,
    is_selected: Vec<bool>,
    buffers: Buffers,
}

impl<'a> ContrastDescent<'a> {
    pub fn new(question: &'a ContrastQuestion, tallies: Vec<FieldTally>) -> ContrastDescent<'a> {
        ContrastDescent {
            question,
            records: GroupCounts::default(),
            tallies,
            is_selected: Vec::new(),
            buffers: Buffers::default(),
        }
    }
}

impl Visitor for ContrastDescent<'_> {
    fn arrivals(&self) -> TimeRange {
        match self.question.source.time {
            TimeKind::Arrival => self.question.all.test().time_hull(),
            TimeKind::Own => TimeRange::ALL,
        }
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.question.source.id) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        Ok(self.question.all.test().masks(&view).may)
    }

    fn is_outside(&mut self, chunks: Range<ChunkNo>) -> bool {
        self.question.all.is_outside(chunks)
    }
}

impl Descent for ContrastDescent<'_> {
    type Note = ();

    fn note(&mut self) {}

    fn rows(&self) -> SourceReader {
        let ContrastQuestion {
            source,
            all,
            selected,
            ..
        } = self.question;
        let mut fields: Vec<usize> = self.tallies.iter().map(|tally| tally.field).collect();
        let is_known = selected.each_field(&mut |field| fields.push(field));
        fields.sort_unstable();
        fields.dedup();
        let ask = Ask {
            fields,
            payloads: !is_known,
            times: selected.needs_times(),
            ..Ask::default()
        };
        let (times, test) = all.test().split_times();
        SourceReader::new(source, ask, test, times, Address::ZERO)
    }

    fn take(&mut self, (): (), batch: Batch<'_>) -> Result<()> {
        let rows = batch.count();
        if rows == 0 {
            return Ok(());
        }
        self.is_selected.clear();
        self.is_selected.resize(rows, true);
        self.question.selected.keep(&batch, &mut self.is_selected);
        let selected = self.is_selected.iter().filter(|is| **is).count() as u64;
        let counts = GroupCounts {
            selected,
            others: rows as u64 - selected,
        };
        self.records += counts;
        let rows = GroupedRows {
            batch: &batch,
            is_selected: &self.is_selected,
            counts,
        };
        for tally in &mut self.tallies {
            tally.take(&rows, &mut self.buffers);
        }
        Ok(())
    }

    fn fork(&self) -> Self {
        let tallies = self.tallies.iter().map(FieldTally::fork);
        ContrastDescent::new(self.question, tallies.collect())
    }

    fn absorb(&mut self, other: Self) -> Result<()> {
        self.records += other.records;
        for (tally, other) in self.tallies.iter_mut().zip(other.tallies) {
            tally.absorb(other);
        }
        Ok(())
    }
}
