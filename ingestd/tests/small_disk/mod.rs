//! A small file system of a test's own, for tests of disks that fill. Test programs include it as a module.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory, mounted while the value lives.
pub struct Small {
    at: TempDir,
}

impl Small {
    /// One of this size, as `mount` reads it; `None` where this user may not mount one.
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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Gives it another size, as `mount` reads it.
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
        // Detached at once: this thread's reader may still hold a segment.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.at.path())
            .status();
    }
}
