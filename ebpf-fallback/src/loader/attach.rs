//! Attaching of programs to interfaces. The links are pinned, so that packets are forwarded after
//! the loader ends, and a new loader replaces the programs in place.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{Xdp, loaded_programs};
use host::xdp::{Choice, Mode};

use super::nic::Nic;

/// Error of attaching a program to an interface.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A program of another owner is attached.
    #[error(
        "{interface} already has an XDP program, id {id}{name}, and supports only one; stop the \
         program's owner, or type `ip link set dev {interface} xdp off`"
    )]
    Foreign {
        /// Name of the interface.
        interface: String,
        /// Id of the program.
        id: u32,
        /// Name of the program, formatted for the message.
        name: String,
    },
    /// The kernel rejected every mode that was tried.
    #[error("{interface}: the kernel rejected the program {tried}")]
    Rejected {
        /// Name of the interface.
        interface: String,
        /// Each mode with the kernel's error.
        tried: String,
    },
    /// A link could not be created, opened, updated or removed.
    #[error("cannot {verb} the XDP link pinned at {}: {what}", path.display())]
    Link {
        /// What failed: create, open, update or remove.
        verb: &'static str,
        /// Path at which the link is pinned.
        path: PathBuf,
        /// Error of the system.
        what: String,
    },
}

/// Folder of the pinned links, one per interface and named after it.
pub struct Links {
    folder: PathBuf,
}

impl Links {
    /// Uses `folder`, which need not exist yet.
    pub fn new(folder: PathBuf) -> Links {
        Links { folder }
    }

    /// Attaches `program` to an interface, or replaces Weir's program there without a gap. Returns
    /// the mode in which it runs and log messages.
    pub fn attach(
        &self,
        program: &mut Xdp,
        nic: &Nic,
        choice: &Choice,
    ) -> Result<(Mode, Vec<String>), AttachError> {
        let mut notes = Vec::new();
        let path = self.folder.join(&nic.name);
        let failed = |verb, what: &dyn Error| AttachError::Link {
            verb,
            path: path.clone(),
            what: error_chain(what),
        };
        std::fs::create_dir_all(&self.folder).map_err(|e| failed("create", &e))?;
        let pinned = self.pinned(&nic.name)?;
        let own_id = match &pinned {
            Some(link) => Some(link.info().map_err(|e| failed("open", &e))?.program_id()),
            None => None,
        };
        if let Some((mode, id)) = nic.attached {
            if own_id != Some(id) {
                return Err(foreign_program_error(nic, id));
            }
            if let (Some(link), Some(mode)) = (pinned, mode.filter(|m| choice.modes[0] == *m)) {
                let link = XdpLink::try_from(link).map_err(|e| failed("open", &e))?;
                program.attach_to_link(link).map_err(|e| failed("update", &e))?;
                return Ok((mode, notes));
            }
            notes.push(format!("{}: reattached to change the mode", nic.name));
        }
        // If there is a link, it belongs to a deleted interface or has another mode.
        self.remove(&nic.name)?;
        let mut tried = Vec::new();
        for mode in &choice.modes {
            match attach_anew(program, nic, *mode, &path) {
                Ok(()) => {
                    notes.extend(tried);
                    return Ok((*mode, notes));
                }
                Err(error) => tried.push(format!("({} XDP: {error})", mode.as_str())),
            }
        }
        let tried = tried.join(" ");
        Err(AttachError::Rejected { interface: nic.name.clone(), tried })
    }

    /// Returns the names of the interfaces that have a link in this folder.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Detaches Weir's program from an interface, if it is attached.
    pub fn remove(&self, interface: &str) -> Result<(), AttachError> {
        let path = self.folder.join(interface);
        match std::fs::remove_file(&path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                let verb = "remove";
                other.map_err(|e| AttachError::Link { verb, path, what: e.to_string() })
            }
        }
    }

    /// Removes the folder if it is empty.
    pub fn remove_folder(&self) {
        // Removal fails while links exist.
        let _ = std::fs::remove_dir(&self.folder);
    }

    fn pinned(&self, interface: &str) -> Result<Option<FdLink>, AttachError> {
        let path = self.folder.join(interface);
        if !path.exists() {
            return Ok(None);
        }
        match PinnedLink::from_pin(&path) {
            Ok(link) => Ok(Some(link.into())),
            Err(e) => Err(AttachError::Link { verb: "open", path, what: error_chain(&e) }),
        }
    }
}

/// Attaches the program in this mode, and pins the link at `path`.
fn attach_anew(program: &mut Xdp, nic: &Nic, mode: Mode, path: &Path) -> Result<(), String> {
    let flags = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
    };
    let id = program.attach_to_if_index(nic.index, flags).map_err(|e| error_chain(&e))?;
    let link = program.take_link(id).map_err(|e| error_chain(&e))?;
    // Fails on kernels without BPF links, where aya attaches by netlink: that attachment cannot be
    // pinned.
    let link = FdLink::try_from(link).map_err(|e| error_chain(&e))?;
    link.pin(path).map_err(|e| error_chain(&e))?;
    Ok(())
}

/// Returns the error for an interface that has a program of another owner.
fn foreign_program_error(nic: &Nic, id: u32) -> AttachError {
    let program = loaded_programs().flatten().find(|program| program.id() == id);
    let name = program.and_then(|program| program.name_as_str().map(str::to_owned));
    let name = name.map_or_else(String::new, |name| format!(" (\"{name}\")"));
    AttachError::Foreign { interface: nic.name.clone(), id, name }
}

/// Formats an error with all its causes; the kernel's error is the last of them.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let error = source.to_string();
        if !text.contains(&error) {
            text += &format!(": {error}");
        }
        cause = source.source();
    }
    text
}
