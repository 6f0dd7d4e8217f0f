//! A small file system for tests of full disks. Test programs include this as a module.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory, which is mounted while the value lives.
pub struct Small {
    at: TempDir,
}

impl Small {
    /// Creates one of this size, in the form of `mount`; `None` if this user may not mount one.
    pub fn mount(size: &str) -> Option<Small> {
        let at = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "loom-test"])
            .arg(at.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI can mount file systems"
            );
            eprintln!("not tried: this user may not mount a file system");
            return None;
        }
        Some(Small { at })
    }

    /// The folder where it is mounted.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Changes its size, in the form of `mount`.
    pub fn grow(&self, size: &str) {
        let grown = Command::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(self.at.path())
            .status();
        assert!(grown.is_ok_and(|status| status.success()));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // It is detached at once, because this thread's reader may still have a segment open.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.at.path())
            .status();
    }
}
