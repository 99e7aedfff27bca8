//! Disk in memory that loses unsynced data, tears writes, and fails on demand.

use std::collections::BTreeMap;
use std::io;

use fastrand::Rng;

use crate::store::Disk;

#[derive(Clone)]
enum Write {
    Append(Vec<u8>),
    Truncate(usize),
}

impl Write {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Write::Append(bytes) => to.extend_from_slice(bytes),
            Write::Truncate(len) => to.resize(*len, 0),
        }
    }
}

/// File, referred to by its index; its name is in [`Memory::names`].
#[derive(Clone, Default)]
pub(super) struct Inode {
    /// Contents as written.
    current: Vec<u8>,
    /// Contents after a crash that loses all unsynced writes.
    persisted: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<Write>,
}

/// Part of the unsynced data that is lost in a crash.
#[derive(Clone, Copy)]
pub(super) enum Lost {
    All,
    Nothing,
    /// Part of it, chosen by this seed: a prefix of each file's writes is kept, and a part of the
    /// next write, cut at any byte and with up to 64 zero bytes where a page was lost.
    Some(u64),
}

/// Disk in memory.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) inodes: Vec<Inode>,
    /// Indexes in `inodes`, by name of the file.
    pub(super) names: BTreeMap<String, usize>,
    /// `names` as of the last sync of the directory.
    pub(super) persisted_names: BTreeMap<String, usize>,
    /// Number of appended bytes and of other operations until the power fails.
    pub(super) power: usize,
    /// Percentage of writes that fail.
    pub(super) faults: usize,
    pub(super) rng: Rng,
    /// Number of successful syncs of files.
    pub(super) syncs: usize,
}

impl Memory {
    pub(super) fn new(seed: u64) -> Memory {
        Memory {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            persisted_names: BTreeMap::new(),
            power: usize::MAX,
            faults: 0,
            rng: Rng::with_seed(seed),
            syncs: 0,
        }
    }

    /// Returns the disk after a power failure.
    pub(super) fn crashed(&self, lost: Lost) -> Memory {
        let mut after = self.clone();
        (after.power, after.faults) = (usize::MAX, 0);
        let mut rng = Rng::with_seed(if let Lost::Some(seed) = lost { seed } else { 0 });
        after.persisted_names = match lost {
            Lost::All => self.persisted_names.clone(),
            Lost::Nothing => self.names.clone(),
            Lost::Some(_) => [&self.persisted_names, &self.names][rng.usize(..2)].clone(),
        };
        after.names = after.persisted_names.clone();
        for inode in &mut after.inodes {
            let writes = std::mem::take(&mut inode.unsynced);
            let some = match lost {
                Lost::All => 0,
                Lost::Nothing => writes.len(),
                Lost::Some(_) => rng.usize(..writes.len() + 1),
            };
            writes.iter().take(some).for_each(|write| write.apply(&mut inode.persisted));
            if let (Lost::Some(_), Some(Write::Append(bytes))) = (lost, writes.get(some)) {
                let mut torn = bytes.clone();
                torn.truncate(rng.usize(..bytes.len() + 1));
                let hole = rng.usize(..torn.len() + 1);
                if rng.usize(..2) == 0 {
                    torn[hole..].iter_mut().take(64).for_each(|byte| *byte = 0);
                }
                inode.persisted.extend(torn);
            }
            inode.current = inode.persisted.clone();
        }
        after
    }

    /// Changes the contents of a file in place, durably.
    pub(super) fn corrupt(&mut self, file: &str, change: impl Fn(&mut Vec<u8>)) {
        let inode = self.inode(file);
        change(&mut self.inodes[inode].current);
        self.inodes[inode].persisted = self.inodes[inode].current.clone();
    }

    pub(super) fn is_off(&self) -> bool {
        self.power == 0
    }

    fn inode(&mut self, file: &str) -> usize {
        let next = self.inodes.len();
        let inode = *self.names.entry(file.to_owned()).or_insert(next);
        if inode == next {
            self.inodes.push(Inode::default());
        }
        inode
    }

    /// Uses up power, and returns how much of `work` (bytes, or 1 for another operation) is done
    /// before a power failure or another fault.
    fn work(&mut self, work: usize) -> (usize, io::Result<()>) {
        if self.power <= work {
            let done = std::mem::take(&mut self.power);
            return (done, Err(io::Error::other("no power")));
        }
        self.power -= work;
        if self.rng.usize(..100) < self.faults {
            return (self.rng.usize(..work + 1), Err(io::Error::other("a fault")));
        }
        (work, Ok(()))
    }

    fn write(&mut self, file: &str, write: Write) {
        let inode = self.inode(file);
        let inode = &mut self.inodes[inode];
        write.apply(&mut inode.current);
        inode.unsynced.push(write);
    }
}

impl Disk for Memory {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.names.get(file).map(|inode| self.inodes[*inode].current.clone()))
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let (done, result) = self.work(bytes.len());
        self.write(file, Write::Append(bytes[..done].to_vec()));
        result
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        let (_, result) = self.work(1);
        result.map(|()| self.write(file, Write::Truncate(len as usize)))
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.work(1).1?;
        self.syncs += 1;
        let inode = self.inode(file);
        let inode = &mut self.inodes[inode];
        inode.persisted = inode.current.clone();
        inode.unsynced.clear();
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.work(1).1?;
        let inode = self.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.work(1).1?;
        self.persisted_names = self.names.clone();
        Ok(())
    }
}
