//! The aggregates and scalar functions of bins: mergeable counts of any numeric column. `exec/bins_rows.rs` runs them.
//!
//! `loom_quantile` is a macro over an index, and DuckDB keeps macros and functions under one name. So all of these begin with `loom_bins`.

use super::parameters::Parameter;
use super::types::SqlType;

pub struct BinsFunction {
    pub name: &'static str,
    pub description: &'static str,
    pub examples: &'static [&'static str],
    /// An aggregate has one, because C API v2 cannot give it another.
    pub forms: &'static [Form],
}

/// One overload.
pub struct Form {
    pub parameters: &'static [Parameter],
    pub returns: SqlType,
    pub work: Work,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// An aggregate.
    Gather(Input),
    /// A scalar function.
    Ask(Question),
}

/// The values that a row of an aggregate adds to its group.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Value,
    Repeated,
    Bins,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Question {
    Quantile,
    Quantiles,
    Count,
}

const fn parameter(name: &'static str, ty: SqlType, about: &'static str) -> Parameter {
    Parameter {
        name,
        ty,
        about,
        omitted: None,
    }
}

const X: Parameter = parameter(
    "x",
    SqlType::F64,
    "a number of any type, which counts as DOUBLE; NULL is not counted",
);
const TIMES: Parameter = parameter(
    "times",
    SqlType::I64,
    "how often to count x: the column count of loom_histogram, for example",
);
const BINS: Parameter = parameter(
    "bins",
    SqlType::Blob,
    "what loom_bins or loom_bins_merge returned; NULL counts as no value",
);
const Q: Parameter = parameter("q", SqlType::F64, "a fraction from 0 to 1");
const QS: Parameter = parameter(
    "q",
    SqlType::F64List,
    "a list of fractions from 0 to 1, which gives a list of answers",
);

pub const BINS_FUNCTIONS: &[BinsFunction] = &[
    BinsFunction {
        name: "loom_bins",
        description: "Aggregate: exact counts of numbers in bins that are 1/32 of their value wide, as a BLOB to keep, merge and ask for quantiles; NULL without values.",
        examples: &[
            "SELECT op, loom_bins_quantile(loom_bins(latency_ns), 0.99) FROM loom_scan('telemetry.loom', 'requests') GROUP BY op",
        ],
        forms: &[Form {
            parameters: &[X],
            returns: SqlType::Blob,
            work: Work::Gather(Input::Value),
        }],
    },
    BinsFunction {
        name: "loom_bins_weighted",
        description: "Aggregate: the bins of numbers that are counted already, each as often as its row says.",
        examples: &[
            "SELECT loom_bins_weighted(lower, count) FROM loom_histogram('telemetry.loom', 'requests', 'latency')",
        ],
        forms: &[Form {
            parameters: &[X, TIMES],
            returns: SqlType::Blob,
            work: Work::Gather(Input::Repeated),
        }],
    },
    BinsFunction {
        name: "loom_bins_merge",
        description: "Aggregate: the bins of all values that several bins count, the same as if they had been counted together.",
        examples: &[
            "SELECT loom_bins_merge(bins) FROM (SELECT loom_bins(latency_ns) AS bins FROM loom_scan('telemetry.loom', 'requests') GROUP BY op)",
        ],
        forms: &[Form {
            parameters: &[BINS],
            returns: SqlType::Blob,
            work: Work::Gather(Input::Bins),
        }],
    },
    BinsFunction {
        name: "loom_bins_quantile",
        description: "The quantile of the values that bins count: as quantile_disc, with an error of at most 1/64 of the value.",
        examples: &[
            "SELECT loom_bins_quantile(loom_bins(latency_ns), [0.5, 0.99, 0.999]) FROM loom_scan('telemetry.loom', 'requests')",
        ],
        forms: &[
            Form {
                parameters: &[BINS, Q],
                returns: SqlType::F64,
                work: Work::Ask(Question::Quantile),
            },
            Form {
                parameters: &[BINS, QS],
                returns: SqlType::F64List,
                work: Work::Ask(Question::Quantiles),
            },
        ],
    },
    BinsFunction {
        name: "loom_bins_count",
        description: "The number of values that bins count.",
        examples: &[
            "SELECT loom_bins_count(loom_bins(latency_ns)) FROM loom_scan('telemetry.loom', 'requests')",
        ],
        forms: &[Form {
            parameters: &[BINS],
            returns: SqlType::I64,
            work: Work::Ask(Question::Count),
        }],
    },
];

impl BinsFunction {
    /// The description, and the meaning of each parameter of a form.
    pub fn documentation(&self, form: &Form) -> String {
        let parameters = form.parameters.iter();
        let about = parameters.map(|one| format!("\n{}: {}", one.name, one.about));
        format!("{}{}", self.description, about.collect::<String>())
    }
}
