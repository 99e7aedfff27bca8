//! TCP-MD5 keys: where they are read, and whether their files have changed since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::secret_file::{self, SecretKind};
use state::object::bgp::Password;

/// What each password of the policy was read as: a key, or the cause why there is none.
pub type Read = BTreeMap<Password, Result<String, String>>;

/// A source of TCP-MD5 keys.
pub trait Secrets {
    /// Returns the key.
    ///
    /// # Errors
    /// Why there is none, for the operator's log. API clients are not shown it.
    fn password(&self, named: &Password) -> Result<String, String>;
}

/// Keys in the files of one folder; a secret is a folder in it, with the key in `password`.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The folder; without one there are no keys.
    pub secrets: Option<PathBuf>,
}

impl Secrets for Files {
    fn password(&self, named: &Password) -> Result<String, String> {
        let folder = self.secrets.as_ref().ok_or("no folder of secrets is set; set bgp.secrets")?;
        let path = match named {
            Password::File(path) => path.clone(),
            Password::Secret(name) => Path::new(&**name).join("password"),
        };
        let read = secret_file::read_below(folder, &path, SecretKind::Md5Key);
        let octets = read.map_err(|error| error.to_string())?;
        let wrong = |wrong: &str| Err(format!("{}: {wrong}", folder.join(&path).display()));
        let Ok(text) = String::from_utf8(octets) else { return wrong("is not UTF-8 text") };
        // A final line end is the editor's and not part of the key.
        match text.trim_end_matches(['\r', '\n']) {
            "" => wrong("is empty; write the key into it"),
            key if key.len() > SecretKind::Md5Key.limit() => wrong("is longer than 80 bytes"),
            key => Ok(key.to_owned()),
        }
    }
}

/// What the last round read, to be compared with what the files hold now.
pub struct SecretWatch {
    pub(crate) secrets: Arc<dyn Secrets + Send + Sync>,
    pub(crate) used: Read,
}

impl SecretWatch {
    /// Reads the files. Returns what they hold where that differs from what is in use.
    pub fn look(self) -> Option<Read> {
        let now: Read =
            self.used.keys().map(|named| (named.clone(), self.secrets.password(named))).collect();
        (now != self.used).then_some(now)
    }
}

#[cfg(test)]
mod tests;
