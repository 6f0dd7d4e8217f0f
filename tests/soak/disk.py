"""The disk of the soak: a file system of its own, so that what the system says of it can be compared."""

import os
import shutil
import subprocess


def taken(folder):
    """The bytes that the files of a folder take on the disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


class Disk:
    """A file system of the soak's own, so that its losses are the directory's. Without root the place's is used and not compared."""

    def __init__(self, place, size):
        self.root, image = place / "disk", place / "disk.img"
        self.root.mkdir()
        self.mounted = False
        if os.geteuid() == 0 and shutil.which("mkfs.ext4"):
            image.touch()
            os.truncate(image, size)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
            mount = ["mount", "-o", "loop,discard", image, self.root]
            self.mounted = subprocess.run(mount, check=False).returncode == 0
        if not self.mounted:
            print("what `df` says is not compared: it needs root and mkfs.ext4", flush=True)
        self.before = self.used()

    def used(self):
        found = os.statvfs(self.root)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def held(self):
        """The bytes that the file system has lost besides those of its files. Files come and go between the readings."""
        if not self.mounted:
            return 0
        before, files, after = self.used(), taken(self.root), self.used()
        return min(before, after) - self.before - files

    def unmount(self):
        if self.mounted:
            subprocess.run(["umount", self.root], check=True)
