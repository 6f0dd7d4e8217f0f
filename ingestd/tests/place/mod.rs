//! A place to load files into, and checks of a load's output. Test programs include this as a module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::fields::declared;

/// A Loom directory that does not exist yet, in a folder for files.
pub struct Place {
    pub home: TempDir,
}

pub struct Loaded {
    pub output: Output,
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        Place {
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
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

    pub fn load_from(&self, args: &[&str], file: &Path, stdin: Stdio) -> Loaded {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        command.arg("load").arg(self.dir()).args(["--source", "s"]);
        let output = command.args(args).arg(file).stdin(stdin).output().unwrap();
        Loaded {
            output,
            dir: self.dir(),
        }
    }
}

impl Loaded {
    pub fn said(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    /// Checks the last line, and that standard error is empty or has one line for each of these words.
    #[track_caller]
    pub fn gives(&self, counts: &str, said: &[&str]) -> &Loaded {
        let stdout = String::from_utf8(self.output.stdout.clone()).unwrap();
        assert_eq!(stdout.lines().last(), Some(counts), "{}", self.said());
        self.says(said)
    }

    #[track_caller]
    pub fn says(&self, said: &[&str]) -> &Loaded {
        let errors = self.said();
        assert_eq!(errors.lines().count(), said.len(), "{errors}");
        for (line, words) in errors.lines().zip(said) {
            assert!(line.contains(words), "'{words}' is not in '{line}'");
        }
        self
    }
}

pub const ALL: &str = "received=3 stored=3 refused=0 dropped=0";
