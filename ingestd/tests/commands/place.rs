//! A place to load files into, and what a load says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use loom_tests::command::{Ended, declared, ingestd, word};
use tempfile::TempDir;

/// A Loom directory that does not exist yet, in a folder for files.
pub struct Place {
    pub home: TempDir,
}

pub struct Loaded {
    pub ended: Ended,
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let home = tempfile::tempdir().unwrap();
        Place { home }
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("loom")
    }

    /// Loads into the source `s`.
    pub fn load(&self, args: &[&str], file: &Path) -> Loaded {
        self.load_from(args, file, Stdio::null())
    }

    /// Loads into the source `s` with declared fields such as `n i64, s utf8?`; a question mark makes one nullable.
    pub fn load_into(&self, fields: &str, args: &[&str], file: &Path) -> Loaded {
        self.load_into_from(fields, args, file, Stdio::null())
    }

    pub fn load_into_from(&self, fields: &str, args: &[&str], file: &Path, stdin: Stdio) -> Loaded {
        let fields = declared(&self.dir(), "s", fields);
        self.load_from(&[&["--fields", &fields], args].concat(), file, stdin)
    }

    fn load_from(&self, args: &[&str], file: &Path, stdin: Stdio) -> Loaded {
        let dir = self.dir();
        let mut command = ingestd(["load", word(&dir), "--source", "s"]);
        let ended = Ended::of(command.args(args).arg(file).stdin(stdin));
        Loaded { ended, dir }
    }
}

impl Loaded {
    /// Holds what is printed, and that nothing is on standard error, or only what has these words, a line each.
    #[track_caller]
    pub fn gives(&self, counts: &str, said: &[&str]) -> &Loaded {
        assert_eq!(self.ended.out.trim_end(), counts, "{}", self.ended.err);
        self.says(said)
    }

    #[track_caller]
    pub fn says(&self, said: &[&str]) -> &Loaded {
        let errors = &self.ended.err;
        assert_eq!(errors.lines().count(), said.len(), "{errors}");
        for (line, words) in errors.lines().zip(said) {
            assert!(line.contains(words), "'{words}' is not in '{line}'");
        }
        self
    }

    /// Holds that the load made no directory.
    #[track_caller]
    pub fn leaves_nothing(&self) {
        assert!(!self.dir.exists());
    }
}

pub const ALL: &str = "received=3 stored=3 refused=0 dropped=0";
