//! `ingestd validate`: says whether a configuration would be taken, before a daemon is asked to.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::Config;

/// What `sysexits.h` calls a configuration error.
const EX_CONFIG: u8 = 78;

/// Check a configuration: exit code 0, or 78 with the line that is wrong
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd validate --config /etc/loom.toml")]
pub struct Args {
    /// The configuration (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.config.display();
        match Config::load(&self.config) {
            Ok(config) => {
                println!("{path}: sound, with {} sources", config.sources.len());
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                match error.line {
                    Some(line) => eprintln!("ingestd: {path}:{line}: {}", error.message),
                    None => eprintln!("ingestd: {path}: {error}"),
                }
                Ok(ExitCode::from(EX_CONFIG))
            }
        }
    }
}
