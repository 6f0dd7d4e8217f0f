//! `rules.toml` in a Loom directory: the rules that were added with `ingestd rule add`, as they were written. They have no actions and no pins.
//!
//! The writer of the directory, a daemon or `ingestd rule`, replaces the file as a whole under its lock, so it is always the old or the new one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use loom_engine::log::Access;
use loom_engine::log::storage::{OsStorage, read_file};

use crate::config::{Config, RuleDef, check_rules};

const NAME: &str = "rules.toml";
/// The most rules that may be added.
const RULES_MAX: usize = 64;
/// The longest file or definition.
const BYTES_MAX: u64 = 4 << 20;

/// The rules of the file, and their text.
#[derive(Debug)]
pub struct RuleFile {
    path: PathBuf,
    rules: Vec<(RuleDef, toml::Table)>,
}

impl RuleFile {
    /// Reads the file; a missing file has no rules.
    ///
    /// # Errors
    /// It cannot be read, or holds something that cannot be a rule.
    pub fn open(dir: &Path) -> anyhow::Result<RuleFile> {
        let path = dir.join(NAME);
        let shown = path.display();
        let text = read_file(&OsStorage::default(), &path, BYTES_MAX)?.unwrap_or_default();
        let text = String::from_utf8(text).with_context(|| format!("cannot read {shown}"))?;
        let rules = parse(&text).with_context(|| format!("{shown}; mend or remove the file"))?;
        Ok(RuleFile { path, rules })
    }

    /// Gives the file the mode and the group of the directory, which follow `[access]`.
    ///
    /// # Errors
    /// It belongs to another user.
    pub fn share(&self) -> anyhow::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        Ok(Access::of_directory(dir)?.set(&self.path)?)
    }

    pub fn rules(&self) -> impl Iterator<Item = &RuleDef> + Clone {
        self.rules.iter().map(|(def, _)| def)
    }

    /// Refuses rules that do not go with those of a configuration.
    ///
    /// # Errors
    /// Two rules have one name, or a window is longer than the retained records.
    pub fn fits(&self, config: &Config) -> anyhow::Result<()> {
        let mut rules = self.rules();
        check_rules(self.rules().chain(&config.rules))
            .and_then(|()| rules.try_for_each(|rule| config.retention.keeps(rule)))
            .map_err(|why| anyhow!("{why}; {} holds rules too", self.path.display()))
    }

    /// Adds the rules of a text, all or none, beside `others`, which stand in the configuration.
    ///
    /// # Errors
    /// A rule is not sound, has an action or a pin, is one too many, or has the name of another; the file cannot be written.
    pub fn add(&mut self, text: &str, others: &[RuleDef]) -> anyhow::Result<()> {
        let added = parse(text)?;
        let count = self.rules.len() + added.len();
        if count > RULES_MAX {
            bail!(
                "there would be {count} rules that were added; the limit is {RULES_MAX}: close some, or put them into the daemon's configuration"
            );
        }
        let all = self.rules().chain(added.iter().map(|(def, _)| def));
        check_rules(all.chain(others)).map_err(|why| anyhow!(why))?;
        let mut rules = self.rules.clone();
        rules.extend(added);
        self.replace(rules)
    }

    /// Removes the rule of this name; false if there is none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remove(&mut self, name: &str) -> anyhow::Result<bool> {
        let mut rules = self.rules.clone();
        rules.retain(|(def, _)| def.name != name);
        let found = rules.len() < self.rules.len();
        if found {
            self.replace(rules)?;
        }
        Ok(found)
    }

    fn replace(&mut self, rules: Vec<(RuleDef, toml::Table)>) -> anyhow::Result<()> {
        let tables = rules.iter().map(|(_, table)| table.clone().into());
        let mut document = toml::Table::new();
        document.insert("rule".to_owned(), toml::Value::Array(tables.collect()));
        write(&self.path, &document.to_string())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.rules = rules;
        Ok(())
    }
}

/// Reads `[[rule]]` tables.
///
/// # Errors
/// A table is not a rule, or has an action or a pin.
pub fn parse(text: &str) -> anyhow::Result<Vec<(RuleDef, toml::Table)>> {
    let unread = |error: toml::de::Error| anyhow!(error.message().to_owned());
    let document: toml::Table = text.parse().map_err(unread)?;
    let mut rules = Vec::new();
    for (key, value) in document {
        let toml::Value::Array(tables) = value else {
            bail!("'{key}' is not a list of rules; write [[rule]] tables");
        };
        if key != "rule" {
            bail!("'{key}' is not a rule; write [[rule]] tables");
        }
        for value in tables {
            let toml::Value::Table(table) = value else {
                bail!("a rule is not a table; write [[rule]] tables");
            };
            let def: RuleDef = table.clone().try_into().map_err(unread)?;
            if def.action.is_some() {
                bail!(
                    "rule '{}' has an action; run and webhook stand in the daemon's configuration only",
                    def.name
                );
            }
            if def.pin.is_some() {
                bail!(
                    "rule '{}' has a pin; pin and pin_after stand in the daemon's configuration only: put the rule there as [[rule]], and reload the daemon",
                    def.name
                );
            }
            rules.push((def, table));
        }
    }
    Ok(rules)
}

/// Replaces a file, so that a crash keeps the old or the new one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("toml.new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    Access::of_directory(dir)
        .and_then(|access| access.set(&fresh))
        .map_err(io::Error::other)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn rule(name: &str) -> String {
        format!(
            "[[rule]]\nname = '{name}'\nsource = 's'\nindex = 'i'\nwhen = 'count > 5'\nover = '1s'\n"
        )
    }

    #[test]
    fn what_was_added_is_read_back_and_what_was_removed_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let file = RuleFile::open(dir.path()).unwrap();
            file.rules().map(|def| def.name.clone()).collect::<Vec<_>>()
        };
        let mut file = RuleFile::open(dir.path()).unwrap();
        file.add(&(rule("a") + &rule("b")), &[]).unwrap();
        assert_eq!(names(), ["a", "b"]);
        assert!(file.remove("a").unwrap() && !file.remove("a").unwrap());
        assert_eq!(names(), ["b"]);
    }

    #[test]
    fn the_file_is_for_those_who_may_read_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for (of_dir, of_file) in [(0o750, 0o640), (0o700, 0o600)] {
            fs::set_permissions(dir.path(), PermissionsExt::from_mode(of_dir)).unwrap();
            let mut file = RuleFile::open(dir.path()).unwrap();
            file.share().unwrap();
            let mode = || fs::metadata(dir.path().join(NAME)).map(|found| found.mode() & 0o7777);
            assert!(mode().is_err() || mode().unwrap() == of_file);
            file.add(&rule(&format!("r{of_dir}")), &[]).unwrap();
            assert_eq!(mode().unwrap(), of_file);
        }
    }

    // case Rules: rules over the socket
    #[test]
    fn what_is_refused_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = RuleFile::open(dir.path()).unwrap();
        file.add(&rule("a"), &[]).unwrap();
        let other = parse(&rule("c")).unwrap().remove(0).0;
        for (text, word) in [
            (rule("a"), "two rules have the name 'a'"),
            (rule("b") + &rule("c"), "two rules have the name 'c'"),
            (
                rule("b") + "run = ['/bin/true']",
                "run and webhook stand in",
            ),
            (rule("b") + "pin = '1s'", "[[rule]], and reload the daemon"),
            (
                (0..64).map(|n| rule(&format!("n{n}"))).collect(),
                "there would be 65 rules",
            ),
            (
                "[[source]]\nname = 's'".to_owned(),
                "'source' is not a rule",
            ),
            ("rule = 1".to_owned(), "not a list"),
            ("rule = [1]".to_owned(), "not a table"),
        ] {
            let error = file.add(&text, std::slice::from_ref(&other)).unwrap_err();
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
        assert_eq!(RuleFile::open(dir.path()).unwrap().rules().count(), 1);
    }
}
