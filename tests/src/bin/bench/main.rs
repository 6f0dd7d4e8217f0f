//! `make bench`: Loom beside other stores on this machine, as one Markdown table.
//!
//! Each part measures one quantity and returns lines of the table. Compared systems run in turn, so that a slow minute of the machine
//! affects all of them. A time counts only if the answer was right. A part that fails reports that in its place, and the others continue.

mod cache;
mod charts;
mod clock;
mod columns;
mod dataset;
mod devops;
mod devops_questions;
mod figures;
mod flush;
mod ingest;
mod keys;
mod large;
mod live;
mod load;
mod lookback;
mod options;
mod payloads;
mod peer;
mod plain;
mod producer;
mod pruning;
mod questions;
mod raw;
mod readers;
mod ring;
mod rocksdb;
mod rules;
mod socket;
mod sources;
mod speed;
mod table;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use dataset::Dataset;
use options::{Options, Part, Sizes};
use table::{Line, render};

/// Records a second of P8 and C8.
const LOOKBACK_RATE: u64 = 8_000_000;
const COLUMN_LOOKBACK_RATE: u64 = 3_000_000;

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let sizes = options.sizes();
    let mut report = Report::default();
    let folder = options.folder.as_path();
    let mut part = |part, measure: &dyn Fn() -> Result<Vec<Line>>| {
        if options.wants(part) {
            report.part(part, measure);
        }
    };
    part(Part::Ingest, &|| speed::one_source(folder, &sizes));
    part(Part::Sustained, &|| speed::sustained(folder, &sizes));
    part(Part::Shapes, &|| speed::shapes(folder, &sizes));
    part(Part::Sources, &|| sources::many_sources(folder, &sizes));
    part(Part::Socket, &|| socket::through_the_socket(folder, &sizes));
    part(Part::Ring, &|| ring::through_rings(folder, &sizes));
    part(Part::Stores, &|| speed::stores(folder, &sizes));
    part(Part::Load, &|| load::files(folder, &sizes));
    part(Part::Lengths, &|| speed::lengths(folder, &sizes));
    if options.wants(Part::Queries) || options.wants(Part::Ablation) {
        report.part(Part::Queries, &|| queries(&options, &sizes));
    }
    let mut part = |part, measure: &dyn Fn() -> Result<Vec<Line>>| {
        if options.wants(part) {
            report.part(part, measure);
        }
    };
    part(Part::Columns, &|| columns::of_units(folder, &sizes));
    part(Part::Plain, &|| plain::questions(folder, &sizes));
    part(Part::Keys, &|| keys::one_key(folder, &sizes));
    part(Part::Words, &|| keys::words(folder, &sizes));
    part(Part::Flush, &|| flush::of_the_demo(folder, &sizes));
    part(Part::Live, &|| live::live_against_idle(folder, &sizes));
    part(Part::Charts, &|| charts::live_beside_a_view(folder, &sizes));
    part(Part::Readers, &|| readers::beside_ingest(folder, &sizes));
    part(Part::Rules, &|| rules::under_load(folder, &sizes));
    part(Part::Devops, &|| {
        let hosts = match options.hosts.as_slice() {
            [] => sizes.devops_hosts,
            hosts => hosts,
        };
        devops_questions::ask(folder, hosts, &sizes)
    });
    part(Part::Large, &|| large::directories(folder, &sizes));
    part(Part::Lookback, &|| {
        lookback::of_rows(folder, &options.live_sizes(LOOKBACK_RATE))
    });
    part(Part::ColumnLookback, &|| {
        lookback::of_columns(folder, &options.live_sizes(COLUMN_LOOKBACK_RATE))
    });
    let what = if options.full {
        "full sizes"
    } else {
        "small sizes"
    };
    let text = render(&report.lines, what, folder);
    print!("{text}");
    if let Some(path) = &options.out {
        let sections = sections_of(path)?;
        std::fs::write(path, format!("# Benchmarks\n\n{text}{sections}"))
            .with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::from(u8::from(report.failed)))
}

/// The sections behind the table of a file: other measurements, which stay.
fn sections_of(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.find("\n## ").map_or("", |at| &text[at..]).to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Both parts that need the directory of the queries and the peers' copies of it.
fn queries(options: &Options, sizes: &Sizes) -> Result<Vec<Line>> {
    let data = Dataset::make(&options.folder, options.dataset.as_deref(), sizes)?;
    data.share()?;
    let mut lines = Vec::new();
    if options.wants(Part::Queries) {
        lines.extend(questions::ask_all(&data, sizes)?);
    }
    if options.wants(Part::Ablation) {
        lines.extend(pruning::ablate(&data, sizes)?);
    }
    Ok(lines)
}

#[derive(Default)]
struct Report {
    lines: Vec<Line>,
    failed: bool,
}

impl Report {
    fn part(&mut self, part: Part, measure: &dyn Fn() -> Result<Vec<Line>>) {
        eprintln!("{part:?} …");
        let began = Instant::now();
        match measure() {
            Ok(lines) => self.lines.extend(lines),
            Err(error) => {
                eprintln!("{part:?} failed: {error:#}");
                self.failed = true;
                self.lines.push(Line {
                    measure: format!("{part:?}"),
                    how: format!("failed: {}", format!("{error:#}").replace(['|', '\n'], " ")),
                    ..Line::default()
                });
            }
        }
        eprintln!("{part:?} took {:.1} s", began.elapsed().as_secs_f64());
    }
}
