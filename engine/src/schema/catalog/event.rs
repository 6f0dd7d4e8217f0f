//! The changes of a catalog: each line of its file is one event, apart from the first line of a rewritten file (`format/line.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::field::{FieldDef, label_keys};
use crate::schema::index::IndexDef;
use crate::schema::layout::TimeKind;
use crate::schema::source::Overload;
use crate::types::{Address, IndexId, SourceId, ValueKind};

/// One event. `at` is the address from which it holds, the start of a chunk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    SourceDefined {
        source: SourceId,
        at: Address,
        name: String,
        time: TimeKind,
        on_overload: Overload,
        #[serde(rename = "field", default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldDef>,
    },
    /// Fields added after the existing ones.
    FieldsAdded {
        source: SourceId,
        at: Address,
        #[serde(rename = "field")]
        fields: Vec<FieldDef>,
    },
    /// Labels added to a field; fields count from 0.
    LabelsAdded {
        source: SourceId,
        at: Address,
        field: usize,
        #[serde(with = "label_keys")]
        labels: BTreeMap<i128, String>,
    },
    /// A field gets look-ups; fields count from 0. Old records get them too.
    LookupAdded {
        source: SourceId,
        at: Address,
        field: usize,
    },
    /// The words of a field get look-ups; fields count from 0. Old records get them too.
    WordsAdded {
        source: SourceId,
        at: Address,
        field: usize,
    },
    OverloadChanged {
        source: SourceId,
        at: Address,
        on_overload: Overload,
    },
    /// A source was defined at `at`, and the log retains none of its records. Only a rewritten catalog has this event; a later definition
    /// of that name may follow it.
    SourceForgotten {
        source: SourceId,
        at: Address,
        name: String,
        time: TimeKind,
    },
    SourceClosed {
        source: SourceId,
        at: Address,
    },
    SourceReopened {
        source: SourceId,
        at: Address,
    },
    IndexDefined {
        index: IndexId,
        source: SourceId,
        at: Address,
        def: IndexDef,
        /// The kind of value that a closure of the writing process computes; absent for declared indexes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<ValueKind>,
    },
    IndexClosed {
        index: IndexId,
        at: Address,
    },
}

impl Event {
    /// The address from which the event holds.
    pub fn at(&self) -> Address {
        match *self {
            Event::SourceDefined { at, .. }
            | Event::FieldsAdded { at, .. }
            | Event::LabelsAdded { at, .. }
            | Event::LookupAdded { at, .. }
            | Event::WordsAdded { at, .. }
            | Event::OverloadChanged { at, .. }
            | Event::SourceForgotten { at, .. }
            | Event::SourceClosed { at, .. }
            | Event::SourceReopened { at, .. }
            | Event::IndexDefined { at, .. }
            | Event::IndexClosed { at, .. } => at,
        }
    }

    /// The source whose definition it changes; `None` if it names only an index.
    pub fn source(&self) -> Option<SourceId> {
        match *self {
            Event::SourceDefined { source, .. }
            | Event::FieldsAdded { source, .. }
            | Event::LabelsAdded { source, .. }
            | Event::LookupAdded { source, .. }
            | Event::WordsAdded { source, .. }
            | Event::OverloadChanged { source, .. }
            | Event::SourceForgotten { source, .. }
            | Event::SourceClosed { source, .. }
            | Event::SourceReopened { source, .. }
            | Event::IndexDefined { source, .. } => Some(source),
            Event::IndexClosed { .. } => None,
        }
    }
}
