//! Opens or creates the region of the configured plane. fastpath, the XDP loader and slowpath all
//! do so here, since any of them may be the first to start.

use std::path::Path;

use config::Config;
use config::checked::{Plane, SeedFrom};
use tables::layout::Sizes;
use tables::region::{
    LOCKS, Owners, Region, RegionError, RegionLocation, Role, TakeOver, make_folder,
    make_locks_folder,
};

use crate::machine::Machine;
use crate::owner::{OwnerError, group_id, user_id};
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
        "tables.seed = \"generate\": the seed does not exist yet; start the data plane or slowpath \
         first"
    )]
    Seed,
    /// The user or group of the region cannot be used.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The hugetlbfs for the region's file is not mounted. The string has all problems of the
    /// machine's memory, each with a remedy.
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

/// How [`open_region`] handles an unreadable region: one of another format, or a damaged or
/// truncated one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// Fails with an error; for processes that forward no packets, such as slowpath.
    Fail,
    /// Converts a region of another format, replaces one that cannot be converted by an empty one,
    /// or fails if a process still uses it. This variant is for processes that forward packets.
    /// With it, opening also fails while a data plane uses the other plane's region: both planes
    /// would forward the same packets.
    Replace,
}

/// Returns the locations of both planes' regions, the configured plane's first.
///
/// # Errors
/// The user or group of the region cannot be used.
pub fn region_locations(config: &Config) -> Result<(RegionLocation, RegionLocation), OwnerError> {
    let (region, owners) = (&config.region, owners(config)?);
    let file = RegionLocation::File { path: region.path.clone(), owners };
    let maps = RegionLocation::Maps { path: region.maps.clone(), owners };
    Ok(match config.plane {
        Plane::Dpdk => (file, maps),
        Plane::Xdp => (maps, file),
    })
}

fn owners(config: &Config) -> Result<Owners, OwnerError> {
    let region = &config.region;
    let user = user_id("region.user", region.user.as_deref())?;
    let group = group_id("region.group", region.group.as_deref())?;
    Ok(Owners { user, group })
}

/// Creates what slowpath needs to open or create the region as a user other than root: folders and
/// an empty file that the group `region.group` can write, among them the folder of lock files if
/// the control socket is in it. Must run as root. An existing region is kept.
///
/// # Errors
/// A path cannot be created, or another user owns it.
pub fn prepare_region(config: &Config) -> Result<(), OpenError> {
    let (location, _) = region_locations(config)?;
    if config.control.socket.parent() == Some(Path::new(LOCKS)) {
        make_locks_folder(owners(config)?)?;
    }
    if matches!(location, RegionLocation::File { .. }) {
        check_hugetlbfs(config)?;
    }
    Ok(location.prepare()?)
}

/// Opens the region of `config`, or creates it if this process is the first. A new region takes
/// over tables, flows and counters from the converted copy of a region of another format, or else
/// from the other plane's region; what was taken over is then removed.
pub fn open_region(config: &Config, unreadable: Unreadable) -> Result<Opened, OpenError> {
    if config.tables.seed_from == SeedFrom::Missing {
        return Err(OpenError::Seed);
    }
    let (location, other) = region_locations(config)?;
    if let RegionLocation::File { path, owners } = &location {
        check_hugetlbfs(config)?;
        if let Some(folder) = path.parent() {
            let folder_error =
                |source| OpenError::Folder { folder: folder.display().to_string(), source };
            make_folder(folder, *owners).map_err(folder_error)?;
        }
    }
    if unreadable == Unreadable::Replace && other.holder() == Some(Role::Fastpath) {
        let path = other.path().to_path_buf();
        return Err(RegionError::OtherPlane { path, role: Role::Fastpath }.into());
    }
    let mut notes = Vec::new();
    let copy = location.converted_copy();
    if unreadable == Unreadable::Replace {
        replace_other_format(config, &location, &copy, &mut notes)?;
    }
    // A copy is taken over only in place of a missing region.
    let converted = copy.format().is_ok_and(|format| format == Some(Region::format().1));
    let from_to = (if converted { &copy } else { &other }, &location);
    let wanted = match converted && !matches!(location.format(), Ok(Some(_))) {
        true => check_copy(config, (&location, &copy), &mut notes)?,
        false => sizes(config),
    };
    let (region, taken) = match open_with(config, from_to, wanted, &mut notes) {
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
            open_with(config, from_to, wanted, &mut notes)?
        }
        result => result?,
    };
    // A remaining copy is obsolete: flows have changed since it was made, or will now.
    if unreadable == Unreadable::Replace
        && copy.exists()
        && let Err(error) = copy.remove()
    {
        notes.push(format!("an obsolete copy of the region was not removed: {error}"));
    }
    region.explain_truncation();
    notes.extend(taken.log_message());
    Ok(Opened { region, notes })
}

/// Opens the region at `to`, or creates it with the state of the region at `from`, if there is one.
fn open_with(
    config: &Config,
    (from, to): (&RegionLocation, &RegionLocation),
    wanted: Sizes,
    notes: &mut Vec<String>,
) -> Result<(Region, TakeOver), RegionError> {
    let seed = config.tables.hash_seed();
    match Region::create_or_take_over(to, Some(from), &wanted, seed) {
        // No number of flows is configured, and the one derived from memory differs from the
        // region's: the machine's memory or the derivation has changed since the region was
        // created. The region keeps its size, and thus its flows.
        Err(RegionError::Sizes { setting: FLOWS, found, wanted: flows, .. })
            if config.region.max_flows.is_none() =>
        {
            notes.push(kept_flows(found, flows));
            Region::create_or_take_over(to, Some(from), &Sizes { flows: found, ..wanted }, seed)
        }
        result => result,
    }
}

fn kept_flows(found: u32, wanted: u32) -> String {
    format!(
        "the existing region keeps its capacity of {found} flows; this machine's memory allows \
         {wanted}: to change it, set {FLOWS} = {wanted}, stop the data plane and slowpath, and \
         remove the region (flows are lost)"
    )
}

/// Makes the converted copy of a region of another format, unless there is one, and removes the
/// region, so that the copy is taken over. Leaves a region that cannot be converted.
fn replace_other_format(
    config: &Config,
    location: &RegionLocation,
    copy: &RegionLocation,
    notes: &mut Vec<String>,
) -> Result<(), OpenError> {
    let own = Region::format().1;
    let Ok(Some(found)) = location.format() else { return Ok(()) };
    if found == own {
        return Ok(());
    }
    if location.holder().is_some() {
        return Err(RegionError::Version { path: location.path().into(), found, known: own }.into());
    }
    if copy.format()? != Some(own) {
        match location.convert(own) {
            // No steps lead from that format to this one.
            Err(RegionError::Version { .. }) => return Ok(()),
            result => result?,
        };
    }
    check_copy(config, (location, copy), &mut Vec::new())?;
    notes.push(format!(
        "the region {} is converted from format {found} to {own}",
        location.path().display()
    ));
    Ok(location.remove()?)
}

/// Checks that the converted copy of a region has the sizes and the seed of the configuration: it
/// would not be taken over otherwise. Returns the sizes.
fn check_copy(
    config: &Config,
    (location, copy): (&RegionLocation, &RegionLocation),
    notes: &mut Vec<String>,
) -> Result<Sizes, OpenError> {
    let region = Region::open(copy)?;
    let mut wanted = sizes(config);
    if config.region.max_flows.is_none() && region.sizes().flows != wanted.flows {
        notes.push(kept_flows(region.sizes().flows, wanted.flows));
        wanted.flows = region.sizes().flows;
    }
    // As in a takeover, the number of lcores may differ.
    let compared = Sizes { lcores: region.sizes().lcores, ..wanted };
    region.check_parameters(location.path(), &compared, config.tables.hash_seed())?;
    Ok(wanted)
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
