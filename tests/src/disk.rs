//! Small file systems for one test. One is ext4 in a file, mounted through a loop device; its power can fail, and it can turn read-only
//! under its users. The other is in memory; it can fill up and grow.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::machine;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`: from now on nothing reaches the disk, not even the journal.
const SHUT_DOWN: &str = "
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))
";

/// One at a time: a mount namespace that is created meanwhile would keep the other file systems mounted too.
static ONE: Mutex<()> = Mutex::new(());

pub struct Disk {
    place: TempDir,
    mounted: bool,
    _alone: MutexGuard<'static, ()>,
}

impl Disk {
    /// A new file system with room for `mib` MiB; `None` if this machine cannot have one, which is an error if `CI` is set.
    pub fn mount(test: &str, mib: u64) -> Result<Option<Disk>> {
        if !machine::has(test, &["mkfs.ext4", "mount", "umount", "unshare"])? {
            return Ok(None);
        }
        let place = tempfile::tempdir()?;
        let mut disk = Disk {
            place,
            mounted: false,
            _alone: ONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        File::create(disk.image())?.set_len(mib << 20)?;
        std::fs::create_dir(disk.at())?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(disk.image()))?;
        if let Err(error) = disk.mount_again() {
            machine::skip(test, &format!("{error:#}"))?;
            return Ok(None);
        }
        Ok(Some(disk))
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("image")
    }

    /// The mount point.
    pub fn at(&self) -> PathBuf {
        self.place.path().join("mounted")
    }

    /// Takes the power away: everything that was not synced is lost once the file system is mounted again.
    pub fn fail_power(&self) -> Result<()> {
        // The interpreter itself, because a wrapper that starts another one takes longer.
        run(Command::new(machine::python()?)
            .args(["-c", SHUT_DOWN])
            .arg(self.at()))
    }

    /// Reports an error to the kernel, which makes the file system read-only for every process that has files open in it.
    pub fn make_read_only(&self) -> Result<()> {
        let output = Command::new("findmnt")
            .args(["-n", "-o", "SOURCE"])
            .arg(self.at())
            .output()?;
        let device = String::from_utf8(output.stdout)?;
        let name = Path::new(device.trim()).file_name().context("no device")?;
        let trigger = Path::new("/sys/fs/ext4")
            .join(name)
            .join("trigger_fs_error");
        std::fs::write(&trigger, "1").with_context(|| trigger.display().to_string())
    }

    pub fn unmount(&mut self) -> Result<()> {
        run(Command::new("umount").arg(self.at()))?;
        self.mounted = false;
        Ok(())
    }

    /// Mounts it again, as a start of the machine does: the journal is replayed.
    pub fn mount_again(&mut self) -> Result<()> {
        run(Command::new("mount")
            .args(["-o", "loop,errors=remount-ro"])
            .arg(self.image())
            .arg(self.at()))?;
        self.mounted = true;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A lazy unmount, because a failed test may still hold files open.
            let _gone_or_not = Command::new("umount").arg("-l").arg(self.at()).status();
        }
    }
}

/// A file system in memory. It is mounted as long as the value lives.
pub struct MemoryDisk {
    at: TempDir,
}

impl MemoryDisk {
    /// A file system of this size, as `mount` reads it; `None` if this machine cannot have one, which is an error if `CI` is set.
    pub fn mount(test: &str, size: &str) -> Result<Option<MemoryDisk>> {
        let at = tempfile::tempdir()?;
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "loom-test"]);
        if let Err(error) = run(mount.arg(at.path())) {
            machine::skip(test, &format!("{error:#}"))?;
            return Ok(None);
        }
        Ok(Some(MemoryDisk { at }))
    }

    pub fn at(&self) -> &Path {
        self.at.path()
    }

    /// Changes its size, given as `mount` reads it.
    pub fn grow(&self, size: &str) -> Result<()> {
        let options = format!("remount,size={size}");
        run(Command::new("mount").args(["-o", &options]).arg(self.at()))
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        // A lazy unmount, because a reader of this thread may still hold a segment.
        let _gone_or_not = Command::new("umount").arg("-l").arg(self.at()).status();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {told}",
        output.status
    );
    Ok(())
}
