//! TCP-MD5 and TCP-AO keys: reading them, and detecting that their files have changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use config::secret_file::{self, SecretKind};
use state::object::bgp::Password;

/// Result of reading each key that the policy names: the key, or the error.
pub type ReadKeys = BTreeMap<Password, Result<String, String>>;

/// Source of TCP-MD5 and TCP-AO keys.
pub trait Secrets {
    /// Returns the key that `named` refers to.
    ///
    /// # Errors
    /// Returns why the key cannot be read. The text is for the operator's log and never shown to
    /// API clients.
    fn password(&self, named: &Password) -> Result<String, String>;
}

/// Keys in the files below one folder. A secret is a subfolder with the key in the file `password`.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The folder (`bgp.secrets`); `None` if it is not configured, so that no key can be read.
    pub secrets: Option<PathBuf>,
}

impl Secrets for Files {
    fn password(&self, named: &Password) -> Result<String, String> {
        let folder = self.secrets.as_ref().ok_or("no secrets folder: set bgp.secrets")?;
        let path = match named {
            Password::File(path) => path.clone(),
            Password::Secret(name) => Path::new(&**name).join("password"),
        };
        let read = secret_file::read_below(folder, &path, SecretKind::Md5Key);
        let octets = read.map_err(|error| error.to_string())?;
        let wrong = |wrong: &str| Err(format!("{}: {wrong}", folder.join(&path).display()));
        let Ok(text) = String::from_utf8(octets) else { return wrong("is not UTF-8 text") };
        // Editors end the file with a line ending, which is not part of the key.
        match text.trim_end_matches(['\r', '\n']) {
            "" => wrong("is empty; write the key to it"),
            key if key.len() > SecretKind::Md5Key.limit() => wrong("is longer than 80 bytes"),
            key => Ok(key.to_owned()),
        }
    }
}

/// Counts of keys that cannot be read.
#[derive(Debug, Default)]
pub struct KeyCounts {
    rejected: AtomicU64,
    unusable: AtomicUsize,
}

impl KeyCounts {
    /// Records the keys of a round; `rejected` is the number of keys that changed since the
    /// previous round and cannot be read.
    pub(crate) fn record(&self, rejected: u64, keys: &ReadKeys) {
        self.rejected.fetch_add(rejected, Relaxed);
        self.unusable.store(keys.values().filter(|key| key.is_err()).count(), Relaxed);
    }

    /// Returns how many times a changed key could not be used.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Relaxed)
    }

    /// Returns the number of keys that cannot be used now.
    pub fn unusable(&self) -> usize {
        self.unusable.load(Relaxed)
    }
}

/// The keys of the last round, to be compared with the files.
pub struct SecretWatch {
    pub(crate) secrets: Arc<dyn Secrets + Send + Sync>,
    pub(crate) used: ReadKeys,
}

impl SecretWatch {
    /// Reads the files. Returns the new keys and errors if any of them differs from the last round.
    pub fn changed_keys(self) -> Option<ReadKeys> {
        let now: ReadKeys =
            self.used.keys().map(|named| (named.clone(), self.secrets.password(named))).collect();
        (now != self.used).then_some(now)
    }
}

#[cfg(test)]
mod tests;
