//! The simulated disk as the logs see it, with its history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapMut, MmapRaw};

use super::content::{Content, PAGE_BYTES};
use super::medium::{Inode, Luck, Medium, Node};
use super::rules::{Fault, Kind, Op, Rule};
use super::{loom, shared_memory};
use crate::error::{Error, Result};
use crate::log::staging::control::{self, Word};
use crate::log::storage::{FileId, OpenMode, Storage, StorageFile};
use crate::log::sync::{Mutex, MutexGuard, locked};
use crate::testkit::Random;
use crate::types::LogKind;

const CONTROL_PAGES: usize = 1;

/// The acknowledgements to a client, stored when they are given. A boundary holds the earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Records that a publishing covers.
    pub published: AtomicU64,
    /// Records that a sync covers.
    pub durable: AtomicU64,
    /// Address below which records were given up.
    pub begin: AtomicU64,
    /// Records that pending losses count.
    pub lost: AtomicU64,
}

/// The marks at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acknowledged {
    pub published: u64,
    pub durable: u64,
    pub begin: u64,
    pub lost: u64,
}

impl Marks {
    pub fn acknowledged(&self) -> Acknowledged {
        let load = |mark: &AtomicU64| mark.load(Ordering::Acquire);
        Acknowledged {
            published: load(&self.published),
            durable: load(&self.durable),
            begin: load(&self.begin),
            lost: load(&self.lost),
        }
    }
}

/// The machine before an operation.
#[derive(Clone, Debug)]
pub(crate) struct Boundary {
    /// The next operation.
    pub op: Op,
    pub acknowledged: Acknowledged,
    medium: Medium,
}

impl Boundary {
    /// Returns the disk that the next process finds if this one is killed here.
    pub fn kill(&self) -> Disk {
        Disk::of(self.medium.clone())
    }

    pub fn lose_power(&self, luck: Luck, random: &mut Random) -> Disk {
        Disk::of(self.medium.lose_power(luck, random))
    }
}

#[derive(Debug)]
struct State {
    medium: Medium,
    /// Files that a process has mapped.
    maps: BTreeMap<Inode, Arc<MmapRaw>>,
    /// Their content at the last boundary.
    frozen: BTreeMap<Inode, Content>,
    /// The open file that holds the lock of an inode.
    locks: BTreeMap<Inode, u64>,
    next_handle: u64,
    rules: Vec<Rule>,
    marks: Arc<Marks>,
    /// `None` if history is not recorded.
    past: Option<Vec<Boundary>>,
    /// The size of the disk in bytes.
    capacity: u64,
    /// Free bytes of the shared memory.
    memory: u64,
    random: Random,
    ops: Vec<Op>,
    /// Files with a failed sync.
    refused: BTreeSet<Inode>,
    /// Files that were synced again after a failure.
    synced_again: Vec<PathBuf>,
    /// The pages that a read does not wait for; `None`: all.
    cached: Option<BTreeSet<(Inode, u64)>>,
    /// Reads that waited.
    waits: usize,
}

/// All clones share one disk. Later operations of a killed process do not affect the disks that its boundaries gave.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub fn new() -> Disk {
        let [disk, shm] = [loom().parent().unwrap().to_owned(), shared_memory()];
        Disk::of(Medium::new(&[&disk, &shm]))
    }

    fn of(medium: Medium) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            medium,
            maps: BTreeMap::new(),
            frozen: BTreeMap::new(),
            locks: BTreeMap::new(),
            next_handle: 0,
            rules: Vec::new(),
            marks: Arc::default(),
            past: None,
            capacity: u64::MAX,
            memory: u64::MAX >> 1,
            random: Random(1),
            ops: Vec::new(),
            refused: BTreeSet::new(),
            synced_again: Vec::new(),
            cached: None,
            waits: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    pub fn rule(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Removes all rules.
    pub fn obey(&self) {
        self.state().rules.clear();
    }

    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    pub fn set_memory(&self, free_bytes: u64) {
        self.state().memory = free_bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.state().medium.used_bytes()
    }

    /// Records every boundary from now on, with the `marks` at that time.
    pub fn remember(&self, marks: &Arc<Marks>) {
        let mut state = self.state();
        state.marks = Arc::clone(marks);
        state.past = Some(Vec::new());
    }

    /// Returns the boundaries since `remember`, and the present.
    pub fn past(&self) -> Vec<Boundary> {
        let mut state = self.state();
        state.remember(Kind::Read, &loom());
        state.past.take().unwrap_or_default()
    }

    pub fn now(&self) -> Boundary {
        let (kind, path) = (Kind::Read, loom());
        self.state().boundary(&Op { kind, path })
    }

    /// Returns every operation that changed something or tried to, in order.
    pub fn ops(&self) -> Vec<Op> {
        self.state().ops.clone()
    }

    /// Returns files that were synced again after a failed sync.
    pub fn synced_again(&self) -> Vec<PathBuf> {
        self.state().synced_again.clone()
    }

    /// From now on a read waits for pages that were neither read nor announced.
    pub fn drop_cached(&self) {
        self.state().cached = Some(BTreeSet::new());
    }

    /// Returns the number of reads that waited since the last call.
    pub fn take_waits(&self) -> usize {
        std::mem::take(&mut self.state().waits)
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.state().medium.node(path).is_some()
    }

    /// Changes bytes of a file like a medium that rots.
    pub fn rot(&self, path: &Path, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        let Some(Node::File(inode)) = state.medium.node(path) else {
            panic!("{} is no file", path.display());
        };
        state.medium.rot(inode, offset, bytes);
    }

    /// Removes a file for good, from outside.
    pub fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.medium.remove(path);
        state.medium.sync_folder(path.parent().unwrap());
    }

    /// Applies the rules to an operation before it happens. Returns after its delay.
    fn judge(&self, kind: Kind, path: &Path) -> Result<Option<Fault>> {
        let op = Op {
            kind,
            path: path.to_owned(),
        };
        let mut state = self.state();
        if op.changes() {
            state.remember(kind, path);
            state.ops.push(op.clone());
        }
        let mut fault = None;
        for rule in &mut state.rules {
            fault = fault.or(rule.judge(&op));
        }
        drop(state);
        match fault {
            Some(Fault::Takes(time)) => {
                std::thread::sleep(time);
                Ok(None)
            }
            Some(Fault::Fails(errno)) if kind != Kind::Sync => Err(failed(path, errno)),
            fault => Ok(fault),
        }
    }

    /// Applies the rules to an operation that can only happen or not, and returns whether it happens.
    fn is_done(&self, kind: Kind, path: &Path) -> Result<bool> {
        Ok(self.judge(kind, path)? != Some(Fault::Lies))
    }
}

impl State {
    /// Records the machine as a boundary, if history is recorded.
    fn remember(&mut self, kind: Kind, path: &Path) {
        if let Some(mut past) = self.past.take() {
            let path = path.to_owned();
            past.push(self.boundary(&Op { kind, path }));
            self.past = Some(past);
        }
    }

    fn boundary(&mut self, op: &Op) -> Boundary {
        // The marks are loaded before the staging files, so staging holds at least what they promise.
        let acknowledged = self.marks.acknowledged();
        fence(Ordering::SeqCst);
        let mut medium = self.medium.clone();
        for (inode, map) in &self.maps {
            let content = freeze(map, self.frozen.get(inode));
            medium.freeze(*inode, content.clone());
            self.frozen.insert(*inode, content);
        }
        Boundary {
            op: op.clone(),
            acknowledged,
            medium,
        }
    }

    fn has_room(&self, inode: Inode, bytes: u64, path: &Path) -> bool {
        let grows = bytes.saturating_sub(self.medium.content(inode).bytes());
        !path.starts_with(loom())
            || grows == 0
            || self.medium.used_bytes().saturating_add(grows) <= self.capacity
    }
}

fn failed(path: &Path, errno: i32) -> Error {
    Error::io(path, std::io::Error::from_raw_os_error(errno))
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

fn words(map: &MmapRaw) -> &[AtomicU64] {
    // SAFETY: the mapping is page-aligned, initialised and lives as long as it is borrowed, and `Staging` stores into it only word by word.
    unsafe { std::slice::from_raw_parts(map.as_mut_ptr().cast::<AtomicU64>(), map.len() / 8) }
}

/// Copies a mapped staging file while its writer continues, so that the copy is the result of a kill at some moment: the words of the control page from the
/// last to the first, as a reader loads the tails, then the blocks, then the heads, which show the blocks that were reused in the meantime. `like` is an
/// earlier copy.
fn freeze(map: &MmapRaw, like: Option<&Content>) -> Content {
    let words = words(map);
    let nothing = Content::default();
    let like = like.unwrap_or(&nothing);
    let mut content = Content::default();
    content.resize(map.len() as u64);
    let (control, blocks) = words.split_at(CONTROL_PAGES * PAGE_BYTES / 8);
    let mut page = [0; PAGE_BYTES];
    for (word, place) in control.iter().zip(page.as_chunks_mut::<8>().0).rev() {
        *place = word.load(Ordering::Acquire).to_ne_bytes();
    }
    content.put_page(0, &page, like);
    for (number, block) in (CONTROL_PAGES..).zip(blocks.chunks_exact(PAGE_BYTES / 8)) {
        for (word, place) in block.iter().zip(page.as_chunks_mut::<8>().0) {
            *place = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        content.put_page(number, &page, like);
    }
    fence(Ordering::Acquire);
    for log in LogKind::ALL {
        let at = control::word_offset(log, Word::Head);
        for offset in [at + 8, at] {
            let word = words[offset as usize / 8].load(Ordering::Acquire);
            content.write(offset, &word.to_ne_bytes());
        }
    }
    content
}

impl Storage for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let makes = matches!(mode, OpenMode::Create | OpenMode::CreateNew);
        self.judge(Kind::Open, path)?;
        let mut state = self.state();
        let inode = match state.medium.node(path) {
            Some(Node::File(_)) if mode == OpenMode::CreateNew => return Err(failed(path, EEXIST)),
            Some(Node::File(inode)) => inode,
            Some(Node::Folder(_)) => {
                let what = "not a regular file".to_owned();
                let path = path.to_owned();
                return Err(Error::Damaged { path, what });
            }
            None if makes
                && path
                    .parent()
                    .is_some_and(|folder| state.medium.node(folder).is_some()) =>
            {
                // The creation of a file is a change of its own.
                state.remember(Kind::Open, path);
                state.medium.make(path, Node::File)
            }
            None => return Err(failed(path, ENOENT)),
        };
        state.next_handle += 1;
        Ok(Arc::new(DiskFile {
            disk: self.clone(),
            path: path.to_owned(),
            inode,
            handle: state.next_handle,
        }))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        if self.exists(path) || !self.is_done(Kind::MakeFolder, path)? {
            return Ok(());
        }
        self.state().medium.make(path, Node::Folder);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let state = self.state();
        match state.medium.node(path) {
            Some(Node::Folder(_)) => Ok(state.medium.list(path)),
            _ => Err(failed(path, ENOENT)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if !self.is_done(Kind::Rename, from)? {
            return Ok(());
        }
        let mut state = self.state();
        let node = state
            .medium
            .node(from)
            .ok_or_else(|| failed(from, ENOENT))?;
        state.medium.rename(from, to, node);
        Ok(())
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        if !self.exists(path) {
            return Err(failed(path, ENOENT));
        }
        if self.is_done(Kind::Unlink, path)? {
            self.state().medium.remove(path);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if self.is_done(Kind::SyncFolder, path)? {
            self.state().medium.sync_folder(path);
        }
        Ok(())
    }

    fn file_id(&self, path: &Path) -> Result<FileId> {
        match self.state().medium.node(path) {
            Some(Node::Folder(inode) | Node::File(inode)) => Ok(FileId { device: 1, inode }),
            _ => Err(failed(path, ENOENT)),
        }
    }

    fn is_link(&self, _: &Path) -> Result<bool> {
        Ok(false)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let state = self.state();
        let room = state.capacity.saturating_sub(state.medium.used_bytes());
        Ok(if path.starts_with(shared_memory()) {
            state.memory
        } else {
            room
        })
    }

    fn boot_id(&self) -> Result<String> {
        Ok(format!("boot {}", self.state().medium.boots()))
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    path: PathBuf,
    inode: Inode,
    handle: u64,
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.inode) == Some(&self.handle) {
            state.locks.remove(&self.inode);
        }
    }
}

impl DiskFile {
    /// Caches bytes, and returns the number of pages that were not cached before.
    fn cache(&self, offset: u64, bytes: u64) -> usize {
        let page = PAGE_BYTES as u64;
        let pages = offset / page..(offset + bytes).div_ceil(page);
        let cached = &mut self.disk.state().cached;
        let new = |cached: &mut BTreeSet<(Inode, u64)>| {
            pages
                .filter(|page| cached.insert((self.inode, *page)))
                .count()
        };
        cached.as_mut().map_or(0, new)
    }
}

impl StorageFile for DiskFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.disk.judge(Kind::Read, &self.path)?;
        let waits = self.cache(offset, buffer.len() as u64) > 0;
        let mut state = self.disk.state();
        state.waits += usize::from(waits);
        let Some(map) = state.maps.get(&self.inode) else {
            return Ok(state.medium.content(self.inode).read(offset, buffer));
        };
        let map = Arc::clone(map);
        drop(state);
        // The copy goes word by word, like the kernel's while the writer stores.
        let words = words(&map);
        let most = map.len().saturating_sub(offset as usize).min(buffer.len());
        for (place, at) in buffer[..most].iter_mut().zip(offset as usize..) {
            *place = words[at / 8].load(Ordering::Acquire).to_ne_bytes()[at % 8];
        }
        Ok(most)
    }

    fn pread_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        let waits = self.disk.state().waits;
        let bytes = self.pread(buffer, offset)?;
        let is_cached = self.disk.state().waits == waits;
        Ok(is_cached.then_some(bytes))
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        self.cache(offset, bytes);
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let fault = self.disk.judge(Kind::Write, &self.path)?;
        let mut state = self.disk.state();
        if !state.has_room(self.inode, offset + bytes.len() as u64, &self.path) {
            return Err(failed(&self.path, super::ENOSPC));
        }
        let sectors = bytes.len() / 512;
        let most = match fault {
            Some(Fault::Lies) => return Ok(bytes.len()),
            Some(Fault::Shortens(most)) => bytes.len().min(most),
            Some(Fault::Tears(_)) => 512 * state.random.below(sectors as u64 + 1) as usize,
            _ => bytes.len(),
        };
        let (written, _) = bytes.split_at(most);
        // A process may also be killed in the middle of a write.
        let pages = (most / PAGE_BYTES) as u64;
        let first = if state.past.is_some() && pages > 1 {
            PAGE_BYTES * state.random.below(pages) as usize
        } else {
            0
        };
        let (first, second) = written.split_at(first);
        if !first.is_empty() {
            state.medium.write(self.inode, offset, first);
            state.remember(Kind::Write, &self.path);
        }
        state
            .medium
            .write(self.inode, offset + first.len() as u64, second);
        match fault {
            Some(Fault::Tears(errno)) => Err(failed(&self.path, errno)),
            _ => Ok(most),
        }
    }

    /// A process may be killed between what it wrote and what it then says of it.
    fn start_write_back(&self, _offset: u64, _bytes: u64) {
        let mut state = self.disk.state();
        state.remember(Kind::WriteBack, &self.path);
    }

    fn sync(&self) -> Result<()> {
        let fault = self.disk.judge(Kind::Sync, &self.path)?;
        let state = &mut *self.disk.state();
        if state.refused.contains(&self.inode) {
            state.synced_again.push(self.path.clone());
        }
        match fault {
            Some(Fault::Fails(errno)) => {
                state.refused.insert(self.inode);
                state.medium.fail_sync(self.inode, &mut state.random);
                return Err(failed(&self.path, errno));
            }
            Some(Fault::Lies) => {}
            _ => state.medium.sync(self.inode),
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        let is_done = self.disk.is_done(Kind::Allocate, &self.path)?;
        let mut state = self.disk.state();
        if !state.has_room(self.inode, bytes, &self.path) {
            return Err(failed(&self.path, super::ENOSPC));
        }
        if is_done && state.medium.content(self.inode).bytes() < bytes {
            state.medium.resize(self.inode, bytes);
        }
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        if self.disk.is_done(Kind::Truncate, &self.path)? {
            self.disk.state().medium.resize(self.inode, bytes);
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64> {
        Ok(self.disk.state().medium.content(self.inode).bytes())
    }

    fn id(&self) -> Result<FileId> {
        let inode = self.inode;
        Ok(FileId { device: 1, inode })
    }

    fn is_removed(&self) -> Result<bool> {
        Ok(!self.disk.state().medium.has_name(self.inode))
    }

    fn try_lock(&self) -> Result<bool> {
        let mut state = self.disk.state();
        let holder = *state.locks.entry(self.inode).or_insert(self.handle);
        Ok(holder == self.handle)
    }

    fn is_locked(&self) -> Result<bool> {
        let state = self.disk.state();
        Ok(state
            .locks
            .get(&self.inode)
            .is_some_and(|holder| *holder != self.handle))
    }

    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>> {
        let map = MmapMut::map_anon(bytes).map_err(|error| Error::io(&self.path, error))?;
        let map = Arc::new(MmapRaw::from(map));
        let mut state = self.disk.state();
        state.maps.insert(self.inode, Arc::clone(&map));
        Ok(map)
    }
}
