//! Opens the region of the configured plane, or makes it: the one place where a process does.

use std::path::Path;

use config::Config;
use config::checked::{Plane, SeedFrom};
use tables::layout::Sizes;
use tables::region::{Place, Region, RegionError, Role, make_folder};

use crate::group::{GroupError, group_id};
use crate::machine::Machine;
use crate::plan::{FLOWS, plan, sizes};
use crate::reserve::check;

/// A region, and what there is to say about how it was come by.
#[derive(Debug)]
pub struct Opened {
    /// The region.
    pub region: Region,
    /// Sentences for the log.
    pub notes: Vec<String>,
}

/// Why the region of a configuration can't be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The region itself.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The seed is to be generated, and was not.
    #[error("tables.seed = \"generate\": it is generated when fastpath or slowpath starts")]
    Seed,
    /// The group that shall have it.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// No hugetlbfs where it shall lie.
    #[error("{0}")]
    Hugepages(String),
    /// The folder that it shall lie in.
    #[error("region.path: can't make {folder}: {source}; run it as root")]
    Folder {
        /// The folder.
        folder: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// What becomes of a region that can't be read: another version's, or a damaged one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// An error.
    Refuse,
    /// An empty one takes its place: for who moves packets, and had better move them. Two such of
    /// two planes would move the same ones: while the other plane's is at work, it is an error.
    Replace,
}

/// Where each plane has its region: the configured one first.
///
/// # Errors
/// The group that shall have the file can't be found.
pub fn places(config: &Config) -> Result<(Place, Place), GroupError> {
    let group = group_id("region.group", config.region.group.as_deref())?;
    let file = Place::File { path: config.region.path.clone(), group };
    let maps = Place::Maps(config.region.maps.clone());
    Ok(match config.plane {
        Plane::Dpdk => (file, maps),
        Plane::Xdp => (maps, file),
    })
}

/// Opens the region of `config`, or creates it: whoever starts first does. A new one takes tables,
/// flows and counters over from the other plane's.
pub fn open_region(config: &Config, unreadable: Unreadable) -> Result<Opened, OpenError> {
    if config.tables.seed_from == SeedFrom::Missing {
        return Err(OpenError::Seed);
    }
    let (place, other) = places(config)?;
    if let Place::File { path, group } = &place {
        mounted(config)?;
        if let Some(folder) = path.parent() {
            let folder_error =
                |source| OpenError::Folder { folder: folder.display().to_string(), source };
            make_folder(folder, *group).map_err(folder_error)?;
        }
    }
    if unreadable == Unreadable::Replace && other.holder() == Some(Role::Fastpath) {
        let path = other.path().to_path_buf();
        return Err(RegionError::OtherPlane { path, role: Role::Fastpath }.into());
    }
    let mut notes = Vec::new();
    let (sizes, seed) = (sizes(config), config.tables.hash_seed());
    let open_with = |sizes| Region::create_or_take_over(&place, Some(&other), sizes, seed);
    let open = || open_with(&sizes);
    let (region, taken) = match open() {
        // Nobody asked for another number, and the region's flows live on. A virtual machine that
        // was given more memory, or a region of a time when the number was chosen otherwise.
        Err(RegionError::Sizes { setting: FLOWS, found, wanted, .. })
            if config.region.max_flows.is_none() =>
        {
            notes.push(format!(
                "the region has room for {found} flows and keeps it; for this machine's memory it \
                 would be {wanted}: to change it, set {FLOWS} = {wanted}, stop fastpath and \
                 slowpath, and remove the region (flows are lost)"
            ));
            open_with(&Sizes { flows: found, ..sizes })?
        }
        Err(
            refused @ (RegionError::Version { .. }
            | RegionError::Checksum { .. }
            | RegionError::Size { .. }),
        ) if unreadable == Unreadable::Replace => {
            // Whoever still works with it would go on beside us, on the same ports.
            if place.holder().is_some() {
                return Err(refused.into());
            }
            notes.push(refused.to_string());
            notes.push("starting with an empty region instead; its flows are lost".to_owned());
            place.remove()?;
            open()?
        }
        other => other?,
    };
    region.explain_truncation();
    notes.extend(taken.told());
    Ok(Opened { region, notes })
}

/// Whether the hugetlbfs that the region shall lie on is there. Without it the folder would be an
/// ordinary one, and the region a file that is hidden as soon as the hugetlbfs is mounted over it.
fn mounted(config: &Config) -> Result<(), OpenError> {
    let Ok(machine) = Machine::read(Path::new("/")) else { return Ok(()) };
    let verdict = check(&plan(config), &machine);
    match verdict.mount {
        Some(_) => Err(OpenError::Hugepages(verdict.problems.join("\n"))),
        None => Ok(()),
    }
}
