//! Programs on interfaces: attached by links that are pinned, so that packets go on when the loader
//! ends, and replaced in place when it starts again.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{Xdp, loaded_programs};

use super::limits::Choice;
use super::nic::{Mode, Nic};

/// Why a program is not on an interface.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Somebody else's program is there.
    #[error(
        "{interface} has an XDP program already, number {id}{name}: an interface takes one; end \
         whoever attached it, or type `ip link set dev {interface} xdp off`"
    )]
    Foreign {
        /// Which interface.
        interface: String,
        /// The program's number.
        id: u32,
        /// Its name, as a part of the sentence.
        name: String,
    },
    /// The kernel refused each way that was tried.
    #[error("{interface}: the kernel refused the program {tried}")]
    Refused {
        /// Which interface.
        interface: String,
        /// Each mode with what it said.
        tried: String,
    },
    /// A link could not be pinned, found or removed.
    #[error("{}: {what}", path.display())]
    Link {
        /// Where it is pinned.
        path: PathBuf,
        /// What the system said.
        what: String,
    },
}

/// The folder of the links, one for each interface, by its name.
pub struct Links {
    folder: PathBuf,
}

impl Links {
    /// Those in `folder`, which need not exist yet.
    pub fn new(folder: PathBuf) -> Links {
        Links { folder }
    }

    /// Attaches `program` to an interface, or replaces the one of ours there without a gap. Returns
    /// where it runs, and what there is to say.
    pub fn attach(
        &self,
        program: &mut Xdp,
        nic: &Nic,
        choice: &Choice,
    ) -> Result<(Mode, Vec<String>), AttachError> {
        let mut notes = Vec::new();
        let path = self.folder.join(&nic.name);
        let failed = |what: &dyn Error| AttachError::Link { path: path.clone(), what: told(what) };
        std::fs::create_dir_all(&self.folder).map_err(|e| failed(&e))?;
        let pinned = self.pinned(&nic.name)?;
        let ours = match &pinned {
            Some(link) => Some(link.info().map_err(|e| failed(&e))?.program_id()),
            None => None,
        };
        if let Some((mode, id)) = nic.attached {
            if ours != Some(id) {
                return Err(foreign(nic, id));
            }
            if let (Some(link), Some(mode)) = (pinned, mode.filter(|m| choice.modes[0] == *m)) {
                let link = XdpLink::try_from(link).map_err(|e| failed(&e))?;
                program.attach_to_link(link).map_err(|e| failed(&e))?;
                return Ok((mode, notes));
            }
            notes.push(format!("{}: attached anew, to change where it runs", nic.name));
        }
        // A link of an interface that went away, or that runs elsewhere than wanted.
        self.remove(&nic.name)?;
        let mut tried = Vec::new();
        for mode in &choice.modes {
            match attach_anew(program, nic, *mode, &path) {
                Ok(()) => {
                    notes.extend(tried);
                    return Ok((*mode, notes));
                }
                Err(said) => tried.push(format!("({} XDP: {said})", mode.as_str())),
            }
        }
        let tried = tried.join(" ");
        Err(AttachError::Refused { interface: nic.name.clone(), tried })
    }

    /// Interfaces that have a link here.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Takes our program off an interface; none there is no trouble.
    pub fn remove(&self, interface: &str) -> Result<(), AttachError> {
        let path = self.folder.join(interface);
        match std::fs::remove_file(&path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|e| AttachError::Link { path, what: e.to_string() }),
        }
    }

    /// Removes the folder, once it is empty.
    pub fn remove_folder(&self) {
        // It stays while there is a link in it.
        let _ = std::fs::remove_dir(&self.folder);
    }

    fn pinned(&self, interface: &str) -> Result<Option<FdLink>, AttachError> {
        let path = self.folder.join(interface);
        if !path.exists() {
            return Ok(None);
        }
        match PinnedLink::from_pin(&path) {
            Ok(link) => Ok(Some(link.into())),
            Err(e) => Err(AttachError::Link { path, what: told(&e) }),
        }
    }
}

fn attach_anew(program: &mut Xdp, nic: &Nic, mode: Mode, path: &Path) -> Result<(), String> {
    let kernels = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
    };
    let id = program.attach_to_if_index(nic.index, kernels).map_err(|e| told(&e))?;
    let link = program.take_link(id).map_err(|e| told(&e))?;
    // Kernels without links attach in another way, which ends with us.
    let link = FdLink::try_from(link).map_err(|e| told(&e))?;
    link.pin(path).map_err(|e| told(&e))?;
    Ok(())
}

fn foreign(nic: &Nic, id: u32) -> AttachError {
    let known = loaded_programs().flatten().find(|program| program.id() == id);
    let name = known.and_then(|program| program.name_as_str().map(str::to_owned));
    let name = name.map_or_else(String::new, |name| format!(" (\"{name}\")"));
    AttachError::Foreign { interface: nic.name.clone(), id, name }
}

/// An error with all its causes: the kernel's word is the last of them.
pub(super) fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let said = deeper.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = deeper.source();
    }
    text
}
