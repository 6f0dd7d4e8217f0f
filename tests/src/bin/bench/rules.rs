//! Rules beside a daemon under load: the cost of their thread, and the time from the record that breaks a rule to its alert.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::rules::RuleStatus;
use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::{SourceId, TimeRange, Timestamp};
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::machine;
use rustix::process::Signal;

use super::figures::{Figures, rounded};
use super::ingest::place_in;
use super::options::Sizes;
use super::table::Line;

/// The demo's records a second, of its three sources together.
const RATES: [u64; 2] = [1_000_000, 8_000_000];
/// More than the longest window at the highest rate.
const KEEP: &str = "12GiB";
/// Rules whose latency is measured, each broken in turn.
const RULES: u64 = 16;
/// The time from one record that breaks a rule to the next, which breaks another rule. Each rule has resolved before its next turn.
const TURN: Duration = Duration::from_micros(2500);
/// The interval at which alerts are collected, long before retention removes them.
const COLLECT: Duration = Duration::from_millis(300);

/// The cost and the latency of rules.
pub fn under_load(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for rate in RATES {
        let one = [rule(
            "r",
            "redis_request",
            "latency",
            "max > 300us",
            "10ms",
            "10ms",
        )];
        lines.push(cost(
            folder,
            sizes,
            rate,
            "a rule over 10 ms every 10 ms",
            &one,
        )?);
        let many: Vec<String> = (1..=64)
            .map(|number| {
                let when = format!("p99_99 > {number}ms AND count > 100");
                rule(
                    &format!("r{number}"),
                    "redis_request",
                    "latency",
                    &when,
                    "10s",
                    "1s",
                )
            })
            .collect();
        lines.push(cost(
            folder,
            sizes,
            rate,
            "64 rules over 10 s every 1 s",
            &many,
        )?);
        lines.push(latency(folder, sizes, rate)?);
    }
    Ok(lines)
}

fn rule(name: &str, source: &str, index: &str, when: &str, over: &str, every: &str) -> String {
    format!(
        "[[rule]]\nname = '{name}'\nsource = '{source}'\nindex = '{index}'\nwhen = '{when}'\nover = '{over}'\nevery = '{every}'\n"
    )
}

/// A daemon that records the demo's data for longer than the measurement.
pub fn demo(dir: &Path, rate: u64, keep: &str) -> Result<Daemon> {
    let mut command = Command::new(machine::ingestd()?);
    let rate = rate.to_string();
    command.arg("demo").arg(dir);
    command.args(["--seconds", "600", "--keep", keep, "--rate", &rate]);
    let daemon = Daemon::spawn(command, dir)?;
    let directory = Directory::open(dir)?;
    let flows = wait_until(|| Ok(directory.snapshot()?.newest_ts()?.is_some()))?;
    ensure!(flows, "the demo records nothing");
    Ok(daemon)
}

/// Ends a demo like Ctrl-C, so that it leaves no staging.
pub fn end(daemon: Daemon) -> Result<()> {
    daemon.end(Signal::INT)?;
    Ok(())
}

/// The share of a core that the rules' thread takes.
fn cost(folder: &Path, sizes: &Sizes, rate: u64, what: &str, rules: &[String]) -> Result<Line> {
    let place = place_in(folder)?;
    let dir = place.path().join("demo.loom");
    let daemon = demo(&dir, rate, KEEP)?;
    let client = Client::connect(&dir)?;
    client.add_rules(&rules.concat())?;
    let thread = thread_of(daemon.id(), "loom-rules")?;
    let (began, busy) = (Instant::now(), cpu_of(&thread)?);
    std::thread::sleep(Duration::from_secs(sizes.rule_seconds));
    let share = (cpu_of(&thread)? - busy).as_secs_f64() / began.elapsed().as_secs_f64();
    let status: Vec<RuleStatus> = serde_json::from_str(&client.rules()?)?;
    let of_all = |count: fn(&RuleStatus) -> u64| status.iter().map(count).sum::<u64>();
    let (evaluated, missed) = (of_all(|rule| rule.evaluations), of_all(|rule| rule.missed));
    if let Some(trouble) = status.iter().find_map(|rule| rule.trouble.as_ref()) {
        anyhow::bail!("a rule failed: {trouble}");
    }
    end(daemon)?;
    Ok(Line {
        measure: format!("{what}, at {} M records/s", rate / 1_000_000),
        loom: format!("{evaluated} windows evaluated, {missed} missed"),
        loom_cpu: format!("{} % of a core", rounded(share * 100.0)),
        owed: "≤ 1 % of a core".to_owned(),
        how: format!(
            "`ingestd demo`; the thread of the rules, {} s",
            sizes.rule_seconds
        ),
        ..Line::default()
    })
}

/// The folder in `/proc` of a process' thread.
fn thread_of(process: u32, name: &str) -> Result<PathBuf> {
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let path = thread?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim_end() == name {
            return Ok(path);
        }
    }
    anyhow::bail!("process {process} has no thread {name}")
}

/// The CPU time of a thread, which the scheduler counts in nanoseconds.
pub fn cpu_of(thread: &Path) -> Result<Duration> {
    let text = std::fs::read_to_string(thread.join("schedstat"))?;
    let nanos = text.split(' ').next().context("schedstat is empty")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// The latency from the arrival of the record that breaks a rule to that of its alert.
fn latency(folder: &Path, sizes: &Sizes, rate: u64) -> Result<Line> {
    let place = place_in(folder)?;
    let dir = place.path().join("demo.loom");
    let daemon = demo(&dir, rate, KEEP)?;
    let client = Client::connect(&dir)?;
    let indexes = (0..RULES).map(|number| {
        format!("[[source.index]]\nname = 'i{number}'\nvalue = 'n'\nwhere = 'n = {number}'\n")
    });
    let marks = "[[source]]\nname = 'marks'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n";
    let source = client.define_one(&format!("{marks}{}", indexes.collect::<String>()))?;
    let rules = (0..RULES).map(|number| {
        let (name, index) = (number.to_string(), format!("i{number}"));
        rule(&name, "marks", &index, "count > 0", "10ms", "10ms")
    });
    client.add_rules(&rules.collect::<String>())?;
    let mut collected = Collected::new(&dir)?;
    let wanted = sizes.rule_alerts as usize;
    // The first alerts are evaluated with records from before the rules existed.
    let deadline = Instant::now() + Duration::from_secs(60) + TURN * 4 * u32::try_from(wanted)?;
    let mut collect_at = Instant::now() + COLLECT;
    for number in (0..RULES).cycle() {
        let turn = Instant::now();
        client.push(source, &number.to_le_bytes())?;
        client.sync()?;
        if turn >= collect_at {
            collected.collect(source)?;
            collect_at = Instant::now() + COLLECT;
            if collected.latencies_ms.len() >= wanted {
                break;
            }
            ensure!(
                turn < deadline,
                "{} alerts came",
                collected.latencies_ms.len()
            );
        }
        std::thread::sleep(TURN.saturating_sub(turn.elapsed()));
    }
    let log = collected.directory.status()?.writer;
    end(daemon)?;
    let latencies = &collected.latencies_ms;
    Ok(Line {
        measure: format!(
            "from a record that breaks a rule to its alert, at {} M records/s",
            rate / 1_000_000
        ),
        loom: format!(
            "{} ms; 99 % within {} ms, 99.9 % within {} ms",
            latencies,
            rounded(latencies.percentile(99)),
            rounded(latencies.per_mille(999))
        ),
        owed: "≤ 30 ms".to_owned(),
        how: format!(
            "{} alerts of {RULES} rules over 10 ms every 10 ms, beside `ingestd demo`; arrival of the record to arrival of the alert; the log had no room {} times, {} s in all",
            latencies.len(),
            log.stalls,
            rounded(log.stall_ns as f64 / 1e9)
        ),
        ..Line::default()
    })
}

/// The marks and alerts that were seen so far.
struct Collected {
    directory: Arc<Directory>,
    /// Arrivals of the marks of each rule, by time.
    marks: HashMap<u64, Vec<i64>>,
    marks_to: i64,
    alerts_to: i64,
    latencies_ms: Figures,
}

impl Collected {
    fn new(dir: &Path) -> Result<Collected> {
        let directory = Directory::open(dir)?;
        let now = directory.snapshot()?.newest_ts()?.context("no record")?.0;
        Ok(Collected {
            directory,
            marks: HashMap::new(),
            marks_to: now,
            alerts_to: now,
            latencies_ms: Figures::default(),
        })
    }

    /// Takes the records that arrived since the last call: marks first, so that those of an alert are there.
    fn collect(&mut self, marks: SourceId) -> Result<()> {
        let snapshot = self.directory.snapshot()?;
        let alerts = snapshot.source("loom_alerts")?.id;
        let mut fresh = Vec::new();
        let since = |to: i64| TimeRange {
            first: Timestamp(to + 1),
            last: Timestamp::MAX,
        };
        raw_scan(
            &snapshot,
            marks,
            since(self.marks_to),
            &Poll::never(),
            |record| {
                let number = record.layout.key(0, record.payload).map(|key| key.to_u64());
                fresh.push((record.ts.0, number));
                ControlFlow::Continue(())
            },
        )?;
        for (ts, number) in fresh.into_iter().rev() {
            self.marks_to = ts;
            let number = number.context("a mark without a number")?;
            self.marks.entry(number).or_default().push(ts);
        }
        let mut fired = Vec::new();
        raw_scan(
            &snapshot,
            alerts,
            since(self.alerts_to),
            &Poll::never(),
            |record| {
                let key = |field| record.layout.key(field, record.payload);
                let rule = record.layout.bytes(0, record.payload).map(<[u8]>::to_vec);
                let is_firing = key(1).is_some_and(|state| state.to_u64() == 1);
                let window = key(4)
                    .zip(key(5))
                    .map(|(from, to)| (from.to_i64(), to.to_i64()));
                fired.push((record.ts.0, rule, window, is_firing));
                ControlFlow::Continue(())
            },
        )?;
        for (ts, rule, window, is_firing) in fired.into_iter().rev() {
            self.alerts_to = ts;
            if !is_firing {
                continue;
            }
            let rule: u64 = String::from_utf8(rule.context("no rule")?)?.parse()?;
            let (from, to) = window.context("no window")?;
            let marks = self.marks.get(&rule).context("an alert without a mark")?;
            let broke = marks.iter().find(|mark| (from..to).contains(*mark));
            let broke = broke.with_context(|| format!("no mark of rule {rule} in {from}..{to}"))?;
            self.latencies_ms.push((ts - broke) as f64 / 1e6);
        }
        Ok(())
    }
}
