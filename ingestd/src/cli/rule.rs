//! `ingestd rule add|close|list|test`: through the running daemon, or on the directory's file if none runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use ingestd::client::{Client, ClientError};
use ingestd::config::{Config, RuleDef};
use ingestd::counted;
use ingestd::rfc3339;
use ingestd::rules::RuleStatus;
use ingestd::rules::file::{self, RuleFile};
use ingestd::rules::judge::{self, Known};
use ingestd::rules::records::stopped;
use ingestd::rules::watch::{Change, Phase, Watch, nanos};
use loom_engine::Timestamp;
use loom_engine::log::LogReader;
use loom_engine::query::{Directory, Poll};
use serde::Serialize;

use super::catalog::Editor;
use super::form::Form;
use super::stdout::{say, show};
use super::table::Column::{Number, Text};
use super::table::Table;

/// Add, close, list and try out rules, with or without a running daemon
///
/// A rule watches an index: when its condition holds over a window, the daemon writes a record to the source loom_alerts. A rule that is added here
/// has no action and no pin: programs, webhooks and pins are allowed in the configuration only. At most 64 rules can be added.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd rule test /var/lib/loom --source redis_request --index latency \\
    --when 'p99_99 > 5ms' --over 10s
  ingestd rule add /var/lib/loom --name slow --source redis_request \\
    --index latency --when 'p99_99 > 5ms' --over 10s
  ingestd rule list /var/lib/loom
  ingestd rule close /var/lib/loom --name slow")]
pub struct Args {
    #[command(subcommand)]
    command: RuleCommand,
}

#[derive(Subcommand)]
enum RuleCommand {
    /// Add a rule
    ///
    /// It watches the records that arrive from now on, also after a restart of the daemon.
    #[command(after_help = "\
Example:
  ingestd rule add /var/lib/loom --name slow --source redis_request \\
    --index latency --when 'p99_99 > 5ms AND count > 100' --over 10s")]
    Add {
        /// Loom directory
        dir: PathBuf,
        /// Name of the rule
        #[arg(long, value_name = "NAME")]
        name: String,
        #[command(flatten)]
        condition: Condition,
    },
    /// Close a rule that was added
    #[command(after_help = "Example:\n  ingestd rule close /var/lib/loom --name slow")]
    Close {
        /// Loom directory
        dir: PathBuf,
        /// Rule to close
        #[arg(long, value_name = "NAME")]
        name: String,
    },
    /// List the rules, and how far each was evaluated
    ///
    /// If no daemon runs, it lists only the rules that were added, not those of a configuration.
    #[command(after_help = "Example:\n  ingestd rule list /var/lib/loom")]
    List {
        /// Loom directory
        dir: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Evaluate a rule over the records of a directory, and list when it would have fired
    ///
    /// Give either the rule, or --config and --name of one in a configuration. Nothing is written.
    #[command(after_help = "\
Examples:
  ingestd rule test /var/lib/loom --source redis_request --index latency \\
    --when 'p99_99 > 5ms' --over 10s --last 1h
  ingestd rule test /var/lib/loom --config /etc/loom/loom.toml --name slow")]
    Test {
        /// Loom directory
        dir: PathBuf,
        /// Configuration that holds the rule
        #[arg(long, value_name = "FILE", requires = "name", conflicts_with_all = ["source", "index", "when", "unit", "over", "every", "hold", "pin"])]
        config: Option<PathBuf>,
        /// Name of the rule
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        condition: GivenCondition,
        /// Only windows that end within this time before the newest record
        #[arg(long, value_name = "DURATION")]
        last: Option<ingestd::config::Span>,
    },
}

#[derive(clap::Args)]
struct Condition {
    /// Source of the index
    #[arg(long, value_name = "NAME")]
    source: String,
    /// Index whose values are aggregated
    #[arg(long, value_name = "NAME")]
    index: String,
    /// Comparisons of count, rate, sum, min, max, avg or percentiles such as p99_99, with AND and OR
    #[arg(long, value_name = "CONDITION")]
    when: String,
    /// Unit of the values: ns, us, ms or s; needed for a duration in the condition if the name of the field does not end in it
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Length of the window
    #[arg(long, value_name = "DURATION")]
    over: String,
    /// Time from the end of a window to the end of the next [default: a tenth of the window]
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// How long the condition must hold before the rule fires
    #[arg(long, value_name = "DURATION")]
    hold: Option<String>,
    /// Refused with the reason: pins are allowed in the configuration only
    #[arg(long, value_name = "DURATION", hide = true)]
    pin: Option<String>,
    #[arg(long, value_name = "DURATION", requires = "pin", hide = true)]
    pin_after: Option<String>,
}

/// A condition that is optional if a configuration has the rule.
struct GivenCondition(Option<Condition>);

impl Condition {
    /// The definition of a rule in TOML.
    fn definition(self, name: String) -> String {
        let texts = [
            ("name", Some(name)),
            ("source", Some(self.source)),
            ("index", Some(self.index)),
            ("when", Some(self.when)),
            ("unit", self.unit),
            ("over", Some(self.over)),
            ("every", self.every),
            ("hold", self.hold),
            ("pin", self.pin),
            ("pin_after", self.pin_after),
        ];
        let given = texts.into_iter();
        let given = given.filter_map(|(key, text)| Some((key.to_owned(), text?.into())));
        let rules = vec![toml::Table::from_iter(given)];
        toml::Table::from_iter([("rule".to_owned(), rules.into())]).to_string()
    }
}

impl FromArgMatches for GivenCondition {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenCondition, clap::Error> {
        // `source` is required unless `--config` is given, which conflicts with it.
        Ok(GivenCondition(match matches.contains_id("source") {
            true => Some(Condition::from_arg_matches(matches)?),
            false => None,
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = GivenCondition::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for GivenCondition {
    fn augment_args(command: Command) -> Command {
        let names = ["source", "index", "when", "over"];
        let command = Condition::augment_args_for_update(command);
        names.into_iter().fold(command, |command, name| {
            command.mut_arg(name, |arg| arg.required_unless_present("config"))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Condition::augment_args_for_update(command)
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            RuleCommand::Add {
                dir,
                name,
                condition,
            } => Editor::open_existing(&dir)?.add_rules(&condition.definition(name))?,
            RuleCommand::Close { dir, name } => Editor::open_existing(&dir)?.close_rule(&name)?,
            RuleCommand::List { dir, form } => list(&dir, form)?,
            RuleCommand::Test {
                dir,
                config,
                name,
                condition,
                last,
            } => {
                let name = name.unwrap_or_else(|| "test".to_owned());
                let def = match (config, condition.0) {
                    (Some(config), _) => configured(&config, &name)?,
                    (None, condition) => {
                        let condition = condition.expect("without --config the flags are the rule");
                        let mut rules = file::parse(&condition.definition(name))?;
                        rules.pop().expect("a condition is one rule").0
                    }
                };
                test(&dir, &def, last.map(|last| last.0))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Connects to the daemon of an existing directory; `None` if none runs.
fn daemon(dir: &Path) -> anyhow::Result<Option<Client>> {
    LogReader::open(dir)?;
    match Client::connect(dir) {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NotRunning(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The document of `rule list --json`.
#[derive(Serialize)]
struct Rules<'a> {
    rules: Vec<Rule<'a>>,
}

/// Counts are those of a running daemon, since its start.
#[derive(Serialize)]
struct Rule<'a> {
    name: &'a str,
    definition: &'a str,
    added: bool,
    state: &'a str,
    evaluated_to: Option<String>,
    evaluations: Option<u64>,
    missed: Option<u64>,
    failures: Option<u64>,
    busy_ns: Option<u64>,
    trouble: Option<&'a str>,
}

impl Rule<'_> {
    fn of(rule: &RuleStatus, is_running: bool) -> Rule<'_> {
        let counted = |count| is_running.then_some(count);
        let evaluated_to = Some(rule.evaluated_to_ns).filter(|time| *time != 0);
        Rule {
            name: &rule.name,
            definition: &rule.definition,
            added: rule.added,
            state: &rule.state,
            evaluated_to: evaluated_to.map(|time| rfc3339(Timestamp(time))),
            evaluations: counted(rule.evaluations),
            missed: counted(rule.missed),
            failures: counted(rule.failures),
            busy_ns: counted(rule.busy_ns),
            trouble: rule.trouble.as_deref(),
        }
    }
}

fn list(dir: &Path, form: Form) -> anyhow::Result<()> {
    let client = daemon(dir)?;
    let rules = match &client {
        Some(client) => {
            serde_json::from_str(&client.rules()?).context("an answer of the daemon")?
        }
        None => at_rest(dir)?,
    };
    let documents = rules.iter().map(|rule| Rule::of(rule, client.is_some()));
    form.answer(
        || Rules {
            rules: documents.collect(),
        },
        || text(&rules),
    )
}

fn text(rules: &[RuleStatus]) -> String {
    let mut table = Table::new([
        Text("rule"),
        Text("definition"),
        Text("from"),
        Text("state"),
        Number("evaluations"),
        Number("missed"),
        Number("failures"),
        Number("busy"),
        Text("trouble"),
    ]);
    for rule in rules {
        table.row([
            rule.name.clone(),
            rule.definition.clone(),
            if rule.added { "added" } else { "configuration" }.to_owned(),
            rule.state.clone(),
            rule.evaluations.to_string(),
            rule.missed.to_string(),
            rule.failures.to_string(),
            format!("{} ms", rule.busy_ns / 1_000_000),
            rule.trouble.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render()
}

/// The rules that were added, without a daemon.
fn at_rest(dir: &Path) -> anyhow::Result<Vec<RuleStatus>> {
    let file = RuleFile::open(dir)?;
    let snapshot = Directory::open(dir)?.snapshot()?;
    let stopped = stopped(&snapshot)?;
    let rules = file.rules().map(|def| {
        let stopped = stopped.get(&def.name);
        let phase = stopped.map(|stopped| stopped.phase);
        RuleStatus {
            name: def.name.clone(),
            definition: def.definition(),
            added: true,
            state: phase.map_or("new", Phase::name).to_owned(),
            evaluated_to_ns: stopped.map_or(0, |stopped| stopped.evaluated_to.0),
            ..RuleStatus::default()
        }
    });
    Ok(rules.collect())
}

fn configured(path: &Path, name: &str) -> anyhow::Result<RuleDef> {
    let config = Config::load(path).with_context(|| path.display().to_string())?;
    let found = config.rules.into_iter().find(|rule| rule.name == name);
    found.with_context(|| format!("{} has no rule '{name}'", path.display()))
}

/// Evaluates each window of the directory's records and lists the alerts.
fn test(dir: &Path, def: &RuleDef, last: Option<Duration>) -> anyhow::Result<()> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let subject = judge::subject(snapshot.catalog(), def)?;
    let (Some(oldest), Some(newest)) = (snapshot.oldest_ts()?, snapshot.newest_ts()?) else {
        bail!(
            "{} holds no records to evaluate the rule over",
            dir.display()
        );
    };
    let from = match last {
        Some(last) => Timestamp(newest.0.saturating_sub(nanos(last))).max(oldest),
        None => oldest,
    };
    // The first window with all its records; if nothing was evicted, the first window at all.
    let evicted = snapshot.begin().0 > 0;
    let whole = Timestamp(oldest.0.saturating_add(nanos(def.over)));
    let after = if evicted {
        from.max(whole)
    } else {
        Timestamp(from.0 - 1)
    };
    let mut watch = Watch::new(def.every, def.hold, Phase::Normal, after);
    let mut known = Known::default();
    let (mut windows, mut alerts) = (0, 0);
    let mut table = Table::new([Text("end of the window"), Text("state"), Number("value")]);
    while watch.evaluated_to() <= newest {
        let end = watch.next();
        let window = judge::window(def.over, end);
        let judged = judge::judge(&snapshot, &mut known, subject, def, window, &Poll::never())?;
        windows += 1;
        let Some(change) = watch.step(judged.holds) else {
            continue;
        };
        let exact = judged.exact(&snapshot, &mut known, subject, def, window, &Poll::never())?;
        let value = exact.shown.value;
        alerts += u64::from(change == Change::Fires);
        table.row([
            rfc3339(end),
            match change {
                Change::Fires => "firing",
                Change::Resolves => "resolved",
            }
            .to_owned(),
            value.map_or_else(|| "-".to_owned(), |value| value.to_string()),
        ]);
    }
    if alerts > 0 {
        show(table.render())?;
    }
    let (windows, times) = (counted(windows, "window"), counted(alerts, "time"));
    say(format_args!(
        "{}\nfired {times} in {windows}",
        def.definition()
    ))?;
    Ok(())
}
