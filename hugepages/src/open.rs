//! Opens or creates the region of the configured plane. All processes that create regions do so
//! here.

use std::path::Path;

use config::Config;
use config::checked::{Plane, SeedFrom};
use tables::layout::Sizes;
use tables::region::{Region, RegionError, RegionLocation, Role, make_folder};

use crate::group::{GroupError, group_id};
use crate::machine::Machine;
use crate::plan::{FLOWS, plan, sizes};
use crate::reserve::check;

/// An opened region.
#[derive(Debug)]
pub struct Opened {
    /// The region.
    pub region: Region,
    /// Messages for the log.
    pub notes: Vec<String>,
}

/// The reason for which the region cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The region is unusable, in use or cannot be created.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The seed is configured to be generated but does not exist yet.
    #[error(
        "tables.seed = \"generate\": the seed does not exist yet; start fastpath or slowpath first"
    )]
    Seed,
    /// The group of the region's file cannot be used.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The hugetlbfs for the region's file is not mounted.
    #[error("{0}")]
    Hugepages(String),
    /// The directory of the region's file could not be created.
    #[error("region.path: cannot create {folder}: {source}; run the program as root")]
    Folder {
        /// Path of the directory.
        folder: String,
        /// The error from the kernel.
        source: std::io::Error,
    },
}

/// How a region that cannot be read is handled: one of another version, or a damaged or truncated
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// Fail with an error.
    Refuse,
    /// Replace it by an empty one, unless a process still uses it. For processes that forward
    /// packets: opening also fails while such a process uses the other plane's region, since both
    /// planes would forward the same packets.
    Replace,
}

/// Returns the locations of both planes' regions, the configured plane's first.
///
/// # Errors
/// The group of the region's file cannot be found.
pub fn region_locations(config: &Config) -> Result<(RegionLocation, RegionLocation), GroupError> {
    let group = group_id("region.group", config.region.group.as_deref())?;
    let file = RegionLocation::File { path: config.region.path.clone(), group };
    let maps = RegionLocation::Maps(config.region.maps.clone());
    Ok(match config.plane {
        Plane::Dpdk => (file, maps),
        Plane::Xdp => (maps, file),
    })
}

/// Opens the region of `config`, or creates it if this process is the first. A new region takes
/// over tables, flows and counters from the other plane's region, which is then removed.
pub fn open_region(config: &Config, unreadable: Unreadable) -> Result<Opened, OpenError> {
    if config.tables.seed_from == SeedFrom::Missing {
        return Err(OpenError::Seed);
    }
    let (location, other) = region_locations(config)?;
    if let RegionLocation::File { path, group } = &location {
        check_hugetlbfs(config)?;
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
    let open_with = |sizes| Region::create_or_take_over(&location, Some(&other), sizes, seed);
    let open = || open_with(&sizes);
    let (region, taken) = match open() {
        // The number of flows is derived from memory, not configured, so the region keeps its size
        // and its flows. The machine's memory may have grown, or the derivation has changed since
        // the region was created.
        Err(RegionError::Sizes { setting: FLOWS, found, wanted, .. })
            if config.region.max_flows.is_none() =>
        {
            notes.push(format!(
                "the existing region keeps its capacity of {found} flows; this machine's memory \
                 allows {wanted}: to change it, set {FLOWS} = {wanted}, stop fastpath and \
                 slowpath, and remove the region (flows are lost)"
            ));
            open_with(&Sizes { flows: found, ..sizes })?
        }
        Err(
            error @ (RegionError::Version { .. }
            | RegionError::Checksum { .. }
            | RegionError::Size { .. }),
        ) if unreadable == Unreadable::Replace => {
            // A process that still has the old region open would keep using it.
            if location.holder().is_some() {
                return Err(error.into());
            }
            notes.push(error.to_string());
            notes.push("starting with an empty region instead; its flows are lost".to_owned());
            location.remove()?;
            open()?
        }
        result => result?,
    };
    region.explain_truncation();
    notes.extend(taken.log_message());
    Ok(Opened { region, notes })
}

/// Checks that the hugetlbfs for the region's file is mounted. Without it the directory would be an
/// ordinary one, and the region's file would be hidden when the hugetlbfs is mounted over it.
fn check_hugetlbfs(config: &Config) -> Result<(), OpenError> {
    let Ok(machine) = Machine::read(Path::new("/")) else { return Ok(()) };
    let result = check(&plan(config), &machine);
    match result.mount {
        Some(_) => Err(OpenError::Hugepages(result.problems.join("\n"))),
        None => Ok(()),
    }
}
