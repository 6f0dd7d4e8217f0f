//! Files and names, live and durable. Every process of the machine sees the *live* state; the *durable* state remains after a loss of power.
//!
//! A file's sync makes the writes since the last sync durable. Until then each sector of each write may have reached the medium or not, independently, and a
//! file's lengths reach it in order. A name is durable when its folder is synced; until then any of the changes may be. A sync that fails makes any of the
//! writes durable and forgets the others: the next sync does not write them either, as on Linux.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::Content;
use super::is_volatile;
use crate::testkit::Random;

/// A sector is written whole or not at all.
const SECTOR_BYTES: u64 = 512;

pub type Inode = u64;

/// The unsynced changes that a loss of power keeps.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Luck {
    Nothing,
    Everything,
    /// This percentage.
    Some(u64),
}

impl Luck {
    fn keeps(self, random: &mut Random) -> bool {
        match self {
            Luck::Nothing => false,
            Luck::Everything => true,
            Luck::Some(percent) => random.below(100) < percent,
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Resize(u64),
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Change::Write { offset, bytes } => content.write(*offset, bytes),
            Change::Resize(bytes) => content.resize(*bytes),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct FileState {
    live: Content,
    durable: Content,
    /// Changes since the last sync.
    pending: Vec<Change>,
}

impl FileState {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// Makes some of the pending changes durable and forgets the rest.
    fn sync_by_luck(&mut self, luck: Luck, random: &mut Random) {
        let lengths = self.pending.len() as u64;
        // Lengths are kept up to one of them; a write moves the end only if its length is among these.
        let lengths = match luck {
            Luck::Nothing => 0,
            Luck::Everything => lengths,
            Luck::Some(_) => random.below(lengths + 1),
        };
        for (number, change) in (0..).zip(std::mem::take(&mut self.pending)) {
            let moves_end = number < lengths;
            match &change {
                Change::Resize(_) if moves_end => change.apply(&mut self.durable),
                Change::Resize(_) => {}
                Change::Write { offset, bytes } => {
                    let end = offset + bytes.len() as u64;
                    if moves_end && end > self.durable.bytes() {
                        self.durable.resize(end);
                    }
                    for (at, sector) in sectors(*offset, bytes) {
                        let room = self.durable.bytes().saturating_sub(at);
                        let within = &sector[..sector.len().min(room as usize)];
                        if luck.keeps(random) && !within.is_empty() {
                            self.durable.write(at, within);
                        }
                    }
                }
            }
        }
    }
}

/// Returns the pieces of a write that are whole or torn together.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let run = (SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len() as u64);
        let (sector, later) = rest.split_at(run as usize);
        let found = (at, sector);
        at += run;
        rest = later;
        (!sector.is_empty()).then_some(found)
    })
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Folder(Inode),
    File(Inode),
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Node),
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Set(path, node) => drop(names.insert(path.clone(), *node)),
            NameChange::Remove(path) => drop(names.remove(path)),
            NameChange::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn folder(&self) -> Option<&Path> {
        match self {
            NameChange::Set(path, _) | NameChange::Remove(path) => path.parent(),
            NameChange::Rename(_, to, _) => to.parent(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Medium {
    files: BTreeMap<Inode, FileState>,
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameChange>,
    next_inode: Inode,
    boots: u64,
}

impl Medium {
    /// Creates a medium with these folders, which are durable.
    pub fn new(folders: &[&Path]) -> Medium {
        let names: Names = folders
            .iter()
            .zip(1..)
            .map(|(path, inode)| (path.to_path_buf(), Node::Folder(inode)))
            .collect();
        Medium {
            files: BTreeMap::new(),
            next_inode: names.len() as u64 + 1,
            durable_names: names.clone(),
            names,
            pending_names: Vec::new(),
            boots: 1,
        }
    }

    pub fn boots(&self) -> u64 {
        self.boots
    }

    pub fn node(&self, path: &Path) -> Option<Node> {
        self.names.get(path).copied()
    }

    pub fn has_name(&self, inode: Inode) -> bool {
        self.names.values().any(|node| *node == Node::File(inode))
    }

    pub fn list(&self, folder: &Path) -> Vec<String> {
        let inside = self
            .names
            .keys()
            .filter(|path| path.parent() == Some(folder));
        inside
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect()
    }

    /// Creates a file or folder and returns its inode.
    pub fn make(&mut self, path: &Path, node: fn(Inode) -> Node) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        if let Node::File(inode) = node(inode) {
            self.files.insert(inode, FileState::default());
        }
        self.rename_by(NameChange::Set(path.to_owned(), node(inode)));
        inode
    }

    pub fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.rename_by(NameChange::Rename(from.to_owned(), to.to_owned(), node));
    }

    pub fn remove(&mut self, path: &Path) {
        self.rename_by(NameChange::Remove(path.to_owned()));
    }

    fn rename_by(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    pub fn sync_folder(&mut self, folder: &Path) {
        for change in std::mem::take(&mut self.pending_names) {
            if change.folder() == Some(folder) {
                change.apply(&mut self.durable_names);
            } else {
                self.pending_names.push(change);
            }
        }
    }

    fn file(&mut self, inode: Inode) -> &mut FileState {
        self.files.get_mut(&inode).unwrap()
    }

    pub fn content(&self, inode: Inode) -> &Content {
        &self.files[&inode].live
    }

    pub fn write(&mut self, inode: Inode, offset: u64, bytes: &[u8]) {
        let bytes = bytes.into();
        self.file(inode).change(Change::Write { offset, bytes });
    }

    pub fn resize(&mut self, inode: Inode, bytes: u64) {
        self.file(inode).change(Change::Resize(bytes));
    }

    pub fn sync(&mut self, inode: Inode) {
        self.file(inode).sync();
    }

    pub fn fail_sync(&mut self, inode: Inode, random: &mut Random) {
        self.file(inode).sync_by_luck(Luck::Some(50), random);
    }

    /// Replaces the live content of memory that a process had mapped.
    pub fn freeze(&mut self, inode: Inode, content: Content) {
        self.file(inode).live = content;
    }

    /// Changes the bytes without a write, like a medium that rots.
    pub fn rot(&mut self, inode: Inode, offset: u64, bytes: &[u8]) {
        let file = self.file(inode);
        file.live.write(offset, bytes);
        file.durable.write(offset, bytes);
    }

    /// Bytes of named files outside of shared memory.
    pub fn used_bytes(&self) -> u64 {
        let on_disk = self.names.iter().filter(|(path, _)| !is_volatile(path));
        on_disk
            .map(|(_, node)| match node {
                Node::File(inode) => self.content(*inode).bytes(),
                Node::Folder(_) => 0,
            })
            .sum()
    }

    /// Returns the medium when the power comes back.
    pub fn lose_power(&self, luck: Luck, random: &mut Random) -> Medium {
        let mut after = self.clone();
        for change in std::mem::take(&mut after.pending_names) {
            if luck.keeps(random) {
                change.apply(&mut after.durable_names);
            }
        }
        let known = after.durable_names.clone();
        let is_there = |path: &Path| {
            !(is_volatile(path) && path.parent().is_some_and(is_volatile))
                && path
                    .ancestors()
                    .skip(1)
                    .all(|folder| folder.parent().is_none() || known.contains_key(folder))
        };
        after.durable_names.retain(|path, _| is_there(path));
        after.names = after.durable_names.clone();
        let named: Vec<Node> = after.names.values().copied().collect();
        after
            .files
            .retain(|inode, _| named.contains(&Node::File(*inode)));
        for file in after.files.values_mut() {
            file.sync_by_luck(luck, random);
            file.live = file.durable.clone();
        }
        after.boots += 1;
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(medium: &Medium, path: &str) -> Option<Vec<u8>> {
        let Some(Node::File(inode)) = medium.node(Path::new(path)) else {
            return None;
        };
        let content = medium.content(inode);
        let mut bytes = vec![0; content.bytes() as usize];
        content.read(0, &mut bytes);
        Some(bytes)
    }

    #[test]
    fn synced_bytes_stay_and_any_other_sector_may() {
        let folder = Path::new("/disk");
        let mut medium = Medium::new(&[folder]);
        let file = medium.make(Path::new("/disk/file"), Node::File);
        medium.write(file, 0, &[1; 2048]);
        assert_eq!(
            read(
                &medium.lose_power(Luck::Nothing, &mut Random(1)),
                "/disk/file"
            ),
            None
        );
        medium.sync_folder(folder);
        let lost = medium.lose_power(Luck::Nothing, &mut Random(1));
        assert_eq!(read(&lost, "/disk/file"), Some(vec![]));
        medium.sync(file);
        medium.write(file, 256, &[2; 1024]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let lost = medium.lose_power(Luck::Some(50), &mut Random(seed));
            let bytes = read(&lost, "/disk/file").unwrap();
            assert!(bytes[..256] == [1; 256] && bytes[1280..] == [1; 768]);
            let sectors = [256..512, 512..1024, 1024..1280];
            seen.insert(sectors.map(|sector| {
                assert!(
                    bytes[sector.clone()]
                        .iter()
                        .all(|byte| *byte == bytes[sector.start])
                );
                bytes[sector.start]
            }));
        }
        assert_eq!(seen.len(), 8);
        let whole = medium.lose_power(Luck::Everything, &mut Random(1));
        assert_eq!(read(&whole, "/disk/file"), read(&medium, "/disk/file"));
    }

    #[test]
    fn a_later_sync_does_not_write_what_a_failed_one_forgot() {
        let folder = Path::new("/disk");
        let mut medium = Medium::new(&[folder]);
        let file = medium.make(Path::new("/disk/file"), Node::File);
        medium.resize(file, 64 << 10);
        medium.sync(file);
        medium.sync_folder(folder);
        medium.write(file, 0, &[3; 64 << 10]);
        medium.fail_sync(file, &mut Random(3));
        medium.sync(file);
        assert!(
            read(&medium, "/disk/file")
                .unwrap()
                .iter()
                .all(|byte| *byte == 3)
        );
        let lost = read(
            &medium.lose_power(Luck::Everything, &mut Random(4)),
            "/disk/file",
        )
        .unwrap();
        assert!(lost.contains(&0) && lost.contains(&3));
    }

    #[test]
    fn a_name_is_durable_with_its_folder_alone() {
        let root = Path::new("/disk");
        let mut medium = Medium::new(&[root]);
        let folder = Path::new("/disk/folder");
        medium.make(folder, Node::Folder);
        medium.make(Path::new("/disk/folder/file"), Node::File);
        medium.sync_folder(folder);
        let lost = medium.lose_power(Luck::Nothing, &mut Random(1));
        assert_eq!(read(&lost, "/disk/folder/file"), None);
        medium.sync_folder(root);
        let lost = medium.lose_power(Luck::Nothing, &mut Random(1));
        assert_eq!(read(&lost, "/disk/folder/file"), Some(vec![]));
    }
}
