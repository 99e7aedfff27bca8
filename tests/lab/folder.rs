//! A lab's directories, on disk and in shared memory, which are removed with the lab.

use super::error::{LabError, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The names of a lab's directories begin with this and the process id.
const PREFIX: &str = "weir-lab-";
/// The parent of the directories of kernel maps, which labs with the XDP plane use.
const MAPS: &str = "/sys/fs/bpf";

/// Two directories: one for files, one for the region. Both are removed on drop; those of a
/// killed lab are removed by the next one, which recognizes them by the process id in the name.
#[derive(Debug)]
pub struct Folder {
    files: PathBuf,
    shared: PathBuf,
    keep: bool,
}

/// Returns the parents of a lab's directories: for files, and for the region.
fn roots() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/dev/shm")]
}

impl Folder {
    /// Creates both directories. If `WEIR_LAB_KEEP` is set in the environment, the files are kept
    /// for inspection until the first lab that starts after the end of this process.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        roots().iter().for_each(|root| sweep(root, PREFIX));
        sweep(Path::new(MAPS), &format!("weir-dev-shm-{PREFIX}"));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let [files, shared] = roots().map(|root| root.join(&name));
        for folder in [&files, &shared] {
            std::fs::create_dir_all(folder)
                .map_err(LabError::io(format!("creating the directory {}", folder.display())))?;
        }
        Ok(Self { files, shared, keep: std::env::var_os("WEIR_LAB_KEEP").is_some() })
    }

    /// Returns a path for a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// Returns a path in shared memory.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.shared.join(name)
    }

    /// Returns the directory of the region's kernel maps with the XDP plane. It is unique to this
    /// lab, because a data plane that finds the maps of another lab takes them over.
    pub fn maps(&self) -> PathBuf {
        let name = self.shared.to_string_lossy().replace('/', "-");
        format!("{MAPS}/weir{name}").into()
    }

    /// Writes a file atomically: readers see the old content or the new one.
    pub fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let (path, fresh) = (self.file(name), self.file(&format!("{name}.new")));
        std::fs::write(&fresh, content)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(LabError::io(format!("writing {}", path.display())))?;
        Ok(path)
    }
}

/// Removes the directories of all labs of this process, for a program that ends without unwinding;
/// kernel maps are left to the next lab.
pub fn remove_all() {
    let own = format!("{PREFIX}{}-", std::process::id());
    for entry in roots().iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&own) {
            // Leftovers are removed by the next lab.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The directory exists only if a test failed: `Weir::stop` purges the kernel maps.
        let _ = std::fs::remove_dir_all(self.maps());
        // Leftovers are removed by the next lab.
        let _ = std::fs::remove_dir_all(&self.shared);
        if self.keep {
            eprintln!("the lab's files are in {} until the next lab", self.files.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.files);
        }
    }
}

/// Removes the directories of labs whose process has ended.
fn sweep(root: &Path, prefix: &str) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_string_lossy().strip_prefix(prefix).map(str::to_owned);
        let process = number.and_then(|n| n.split('-').next().map(str::to_owned));
        if process.is_some_and(|n| !Path::new("/proc").join(n).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
