//! Completes command lines for shells. `main` calls it first; the scripts that `generate` writes call the program with the line.
//!
//! The line is parsed with the command line's own definition, so that its words decide about the candidates: the sources of its directory, and the
//! captures after a directory. Nothing is written, and an unreadable directory has no candidates.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command, ValueHint};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Shells, Zsh};
use loom_engine::schema::{Source, is_builtin};

use super::catalog::read_catalog;
use super::record;

/// A shell that asks for candidates sets it to the shell's name.
const VARIABLE: &str = "INGESTD_COMPLETE";

/// Answers a shell that asks for candidates, and then ends the process.
pub(super) fn answer() {
    CompleteEnv::with_factory(|| offers(std::env::args_os()))
        .var(VARIABLE)
        .shells(Shells(&[&Bash, &Zsh, &Fish]))
        .complete();
}

/// The script that a shell needs to ask for candidates.
pub(super) fn script(shell: &dyn EnvCompleter) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "ingestd", "ingestd", "ingestd", &mut script)?;
    if shell.is(Zsh.name()) {
        // Zsh loads the file as a function, and calls it for the first completion.
        script.extend(b"\nif [ \"$funcstack[1]\" = \"_ingestd\" ]; then\n    _clap_dynamic_completer_ingestd \"$@\"\nfi\n");
    }
    Ok(script)
}

/// The directory, source and captures in a command line.
#[derive(Default)]
struct Line {
    dir: Option<PathBuf>,
    source: Option<String>,
    /// The words after the directory of `record`, with '+' between captures.
    captures: Vec<OsString>,
}

impl Line {
    fn read(words: impl Iterator<Item = OsString>) -> Line {
        let definition = super::definition().ignore_errors(true);
        let Ok(matches) = definition.try_get_matches_from(words) else {
            return Line::default();
        };
        let mut innermost = &matches;
        while let Some((_, deeper)) = innermost.subcommand() {
            innermost = deeper;
        }
        let captures = all::<OsString>(innermost, "captures");
        Line {
            dir: all::<PathBuf>(innermost, "dir").pop().map(at_home),
            source: all::<String>(innermost, "source").pop(),
            captures,
        }
    }
}

/// The values of an argument; none if the command does not have it.
fn all<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<T> {
    match matches.try_get_many(id) {
        Ok(Some(values)) => values.cloned().collect(),
        _ => Vec::new(),
    }
}

/// Replaces a leading `~/`, which the shell has not done yet.
fn at_home(path: PathBuf) -> PathBuf {
    if let (Ok(rest), Some(home)) = (path.strip_prefix("~"), std::env::home_dir()) {
        return home.join(rest);
    }
    path
}

/// The definition with the candidates for this line. The words follow '--'.
fn offers(arguments: impl Iterator<Item = OsString>) -> Command {
    let line = Line::read(arguments.skip_while(|word| word != "--").skip(1));
    let parts: Vec<_> = line.captures.split(|word| word == "+").collect();
    let definition = super::definition();
    let definition = match &line.dir {
        Some(_) => definition.mut_subcommand("record", |record| {
            record::with_captures(record, |capture| with_further(capture, &parts))
        }),
        None => definition,
    };
    with_names(definition, &line)
}

/// Adds '+' and the captures after it. They are needed only if the line has them, in the parts after this capture.
fn with_further(capture: Command, parts: &[&[OsString]]) -> Command {
    let mut further = Command::new("+").about("Record something else at the same time");
    if let Some(([name, ..], rest)) = parts.split_first()
        && name == capture.get_name()
    {
        further =
            further.subcommands(record::captures().map(|capture| with_further(capture, rest)));
    }
    capture.subcommand(further)
}

/// Gives the arguments of a command and its subcommands the names in the directory of the line.
fn with_names(command: Command, line: &Line) -> Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "dir" | "dirs" => arg.value_hint(ValueHint::DirPath),
        "source" => {
            let dir = line.dir.clone();
            arg.add(ArgValueCandidates::new(move || {
                candidates(dir.as_deref(), |source| vec![source.name.clone()])
            }))
        }
        // `--index` of `load` is a column.
        "index" if arg.get_value_names().is_some_and(|names| names == ["NAME"]) => {
            let (dir, of) = (line.dir.clone(), line.source.clone());
            arg.add(ArgValueCandidates::new(move || {
                candidates(dir.as_deref(), |source| match &of {
                    Some(name) if *name != source.name => Vec::new(),
                    _ => source
                        .indexes
                        .iter()
                        .map(|index| index.name.clone())
                        .collect(),
                })
            }))
        }
        _ => arg,
    });
    command.mut_subcommands(|command| with_names(command, line))
}

/// Names from the sources of a directory; those of built-in sources are offered only if no other matches.
fn candidates(
    dir: Option<&Path>,
    names: impl Fn(&Source) -> Vec<String>,
) -> Vec<CompletionCandidate> {
    let Some(Ok(catalog)) = dir.map(read_catalog) else {
        return Vec::new();
    };
    let found: BTreeSet<(bool, String)> = catalog
        .sources()
        .flat_map(|source| {
            let is_builtin = is_builtin(&source.name);
            names(source)
                .into_iter()
                .map(move |name| (is_builtin, name))
        })
        .collect();
    found
        .into_iter()
        .map(|(is_builtin, name)| CompletionCandidate::new(name).hide(is_builtin))
        .collect()
}
