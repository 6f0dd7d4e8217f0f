//! `ingestd generate`: the man pages and shell completions of this program, which `ingestd/packaging` puts into packages.
//!
//! Both are made of the command line's own definition, so they never differ from `--help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;

/// Where each shell looks, below a `share` folder.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/ingestd"),
    (Shell::Zsh, "zsh/vendor-completions/_ingestd"),
    (Shell::Fish, "fish/vendor_completions.d/ingestd.fish"),
];

/// Write man pages and shell completions
#[derive(clap::Args)]
#[command(
    hide = true,
    after_help = "Example:\n  ingestd generate ~/.local/share"
)]
pub struct Args {
    /// Folder for `man`, `bash-completion`, `zsh` and `fish`; created if it does not exist
    share: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let manual = self.share.join("man/man1");
        create(&manual)?;
        clap_mangen::generate_to(shown(), &manual)
            .with_context(|| format!("cannot write man pages into {}", manual.display()))?;
        for (shell, path) in COMPLETIONS {
            let path = self.share.join(path);
            create(path.parent().unwrap_or(&self.share))?;
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(), "ingestd", &mut script);
            std::fs::write(&path, script)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The command line as people see it, without what is hidden: completions would offer that too.
fn shown() -> clap::Command {
    let whole = super::definition();
    let subcommands = whole.get_subcommands().filter(|each| !each.is_hide_set());
    clap::Command::new("ingestd")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .subcommands(subcommands.cloned())
}

fn create(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
