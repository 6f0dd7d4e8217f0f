//! `ingestd generate`: writes the man pages and shell completions, which `ingestd/packaging` puts into packages.
//!
//! They come from the definition of the command line and the keys of the configuration, so they always agree with `--help` and with the daemon.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use ingestd::config::{KeyDefault, key_tables};

use super::{complete, record};

/// The path of each shell's completions below a `share` folder.
const COMPLETIONS: [(&dyn EnvCompleter, &str); 3] = [
    (&Bash, "bash-completion/completions/ingestd"),
    (&Zsh, "zsh/vendor-completions/_ingestd"),
    (&Fish, "fish/vendor_completions.d/ingestd.fish"),
];

/// The program in the footer of a page.
const SOURCE: &str = concat!("Loom ", env!("CARGO_PKG_VERSION"));
/// No date, so that the same program makes the same pages. An empty word would be left out of the line.
const NO_DATE: &str = " ";

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
        let mut pages = Vec::new();
        pages_of(&shown(), &mut pages)?;
        pages.push(("man5/loom.toml.5".to_owned(), configuration()?));
        for (path, page) in pages {
            write(&self.share.join("man").join(path), &page)?;
        }
        for (shell, path) in COMPLETIONS {
            write(&self.share.join(path), &complete::script(shell)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The command line without hidden commands, and with the captures of `record`.
fn shown() -> Command {
    let whole = super::definition();
    let subcommands = whole.get_subcommands().filter(|each| !each.is_hide_set());
    let mut shown = Command::new("ingestd")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .subcommands(subcommands.cloned())
        .mut_subcommand("record", |command| {
            record::with_captures(command, |capture| capture)
        })
        .disable_help_subcommand(true);
    shown.build();
    shown
}

/// Collects the pages of a command and its subcommands, each with its path below `man`.
fn pages_of(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    for below in command.get_subcommands() {
        pages_of(below, pages)?;
    }
    let man = Man::new(command.clone()).date(NO_DATE).source(SOURCE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::default();
    if let Some(help) = command.get_after_help() {
        roff.control("SH", ["EXAMPLES"]);
        examples(&mut roff, &help.to_string());
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut also = vec![bold("loom.toml"), roman("(5)")];
    if let Some((above, _)) = command
        .get_display_name()
        .and_then(|name| name.rsplit_once('-'))
    {
        also.splice(0..0, [bold(above), roman("(1), ")]);
    }
    roff.text(also);
    roff.to_writer(&mut page)?;
    pages.push((format!("man1/{}", man.get_filename()), page));
    Ok(())
}

/// Writes the end of a help text: indented lines are examples and stay as they are; the lines `Example:` are dropped.
fn examples(roff: &mut Roff, help: &str) {
    for (at, paragraph) in help.split("\n\n").enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        let mut is_example = false;
        for line in paragraph.lines() {
            if line.starts_with(' ') != is_example {
                is_example = !is_example;
                roff.control(if is_example { "nf" } else { "fi" }, []);
            }
            if !["Example:", "Examples:"].contains(&line) {
                roff.text([roman(line)]);
            }
        }
        if is_example {
            roff.control("fi", []);
        }
    }
}

/// The page loom.toml(5).
fn configuration() -> anyhow::Result<Vec<u8>> {
    let mut roff = Roff::default();
    roff.control("TH", ["loom.toml", "5", NO_DATE, SOURCE]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("loom.toml - configuration of the Loom daemon")]);
    roff.control("SH", ["DESCRIPTION"]);
    for (at, paragraph) in [
        "'ingestd run DIR --config FILE' reads a TOML file; the Debian package's service reads /etc/loom/loom.toml. Every key has a default, unless it is required. A key that is not listed here is an error, which names its line.",
        "A size is a number of bytes with a unit, such as 64MiB or 10MB. A duration is a number with a unit: 500ms, 10s, 24h or 7d.",
        "'ingestd validate --config FILE' checks a configuration. 'ingestd validate --keys' prints one with every key. On SIGHUP the daemon reads it again.",
    ]
    .into_iter()
    .enumerate()
    {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph)]);
    }
    for table in key_tables() {
        roff.control("SH", [table.heading]);
        roff.text([roman(table.about)]);
        for key in table.keys {
            roff.control("TP", []);
            roff.text([bold(key.name), roman(format!(" = {}", key.example))]);
            let default = match key.default {
                KeyDefault::Required => "required".to_owned(),
                KeyDefault::Is(value) => format!("default {value}"),
            };
            roff.text([
                roman(key.meaning),
                Inline::LineBreak,
                roman(format!("Type: {}; {default}.", key.ty)),
            ]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("ingestd-run"),
        roman("(1), "),
        bold("ingestd-validate"),
        roman("(1)"),
    ]);
    let mut page = Vec::new();
    roff.to_writer(&mut page)?;
    Ok(page)
}
