//! `ingestd validate`: checks a configuration before a daemon reads it.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::{Config, EXAMPLE};
use ingestd::counted;
use ingestd::daemon::orphaned_staging;
use ingestd::daemon::rehearsal::{check_files, doubts, rehearse, rehearse_alone};
use loom_engine::Error;

use super::stdout::{complain, say, show};

/// The exit status that `sysexits.h` calls a configuration error.
const EX_CONFIG: u8 = 78;

/// Check a configuration, alone or with a Loom directory
///
/// It reports the wrong line or source, and notes problems that do not prevent a start: rules without their source, programs and files that are
/// missing. With DIR it also checks that a daemon can use DIR and that the configuration fits its sources. The exit status is 0 if the configuration
/// is sound, 78 if it is not, and 1 if a daemon cannot use DIR.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd validate /var/lib/loom --config /etc/loom/loom.toml
  ingestd validate --keys")]
pub struct Args {
    /// Loom directory, or the path of a new one
    dir: Option<PathBuf>,
    /// Configuration (TOML)
    #[arg(long, value_name = "FILE", required_unless_present = "keys")]
    config: Option<PathBuf>,
    /// Print a configuration that describes every key with its type and default, and check nothing
    #[arg(long, conflicts_with_all = ["dir", "config"])]
    keys: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Some(file) = &self.config else {
            show(EXAMPLE)?;
            return Ok(ExitCode::SUCCESS);
        };
        let path = file.display();
        let config = match Config::load(file) {
            Ok(config) => config,
            Err(error) => {
                match error.line {
                    Some(line) => complain(format_args!("{path}:{line}: {}", error.message)),
                    None => complain(format_args!("{path}: {error}")),
                }
                return Ok(ExitCode::from(EX_CONFIG));
            }
        };
        if let Err(error) = check_files(&config) {
            complain(format_args!("{path}: {error}"));
            return Ok(ExitCode::from(EX_CONFIG));
        }
        let rehearsed = match &self.dir {
            Some(dir) => rehearse(dir, &config),
            None => rehearse_alone(&config),
        };
        let mut notes = match rehearsed {
            Err(error @ Error::Schema(_)) => {
                match &self.dir {
                    Some(dir) => {
                        let dir = dir.display();
                        complain(format_args!(
                            "{path} does not fit the Loom directory {dir}: {error}"
                        ));
                    }
                    None => complain(format_args!("{path}: {error}")),
                }
                return Ok(ExitCode::from(EX_CONFIG));
            }
            notes => notes?,
        };
        notes.extend(doubts(&config));
        let sources = counted(config.sources.len() as u64, "source");
        say(format_args!("{path}: sound, with {sources}"))?;
        notes.extend(orphaned_staging(config.log.staging.get_ref(), None));
        for note in notes {
            say(format_args!("note: {note}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
