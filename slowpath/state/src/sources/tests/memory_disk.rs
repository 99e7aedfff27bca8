//! Disk in memory that may fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use super::Disk;

/// Files in memory that outlive their store. An append that fails has written half of its bytes.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<String, Vec<u8>>,
    /// Number of coming appends that fail. Appends to a copy of the log (`log.cut`) never fail.
    fails: u32,
}

impl MemoryDisk {
    /// Makes this number of coming appends fail.
    pub fn fail(&self, times: u32) {
        self.0.lock().unwrap().fails = times;
    }
}

impl Disk for MemoryDisk {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().files.get(file).cloned())
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut memory_disk = self.0.lock().unwrap();
        let fails = memory_disk.fails > 0 && !file.contains(".cut");
        memory_disk.fails -= u32::from(fails);
        let written = if fails { &bytes[..bytes.len() / 2] } else { bytes };
        memory_disk.files.entry(file.to_owned()).or_default().extend_from_slice(written);
        if fails { Err(io::Error::other("a fault")) } else { Ok(()) }
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().files.entry(file.to_owned()).or_default().truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut memory_disk = self.0.lock().unwrap();
        let bytes = memory_disk.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        memory_disk.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        Ok(())
    }
}
