//! A directory with files like those of `/sys`, `/proc` and `/etc`, for tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Root;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary directory, removed on drop.
pub(crate) struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-tree-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Tree(path)
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(&self.0)
    }

    pub(crate) fn directory(&self, path: &str) {
        std::fs::create_dir_all(self.0.join(path)).unwrap();
    }

    /// Writes a file with a final newline, as the kernel does.
    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }
}
