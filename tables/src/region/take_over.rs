//! Takeover of a region: copies the state of another one into a new one. The other one is that of
//! the other data plane, or this plane's own in the format of this program ([`super::convert`]).

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::{Label, Region, RegionError, RegionLocation, Role};
use crate::layout::{Section, Sizes};

/// Sections that are copied unchanged. Header and counters are handled below. All other sections
/// belong to the previous lcores (status, rings, locks) or are rebuilt from the copied ones.
const SECTIONS: [Section; 23] = [
    Section::Tunnels,
    Section::Settings,
    Section::Services,
    Section::ServiceNotes,
    Section::FrontendKinds,
    Section::FrontendHeads,
    Section::FrontendBits,
    Section::FrontendAddresses,
    Section::Frontends,
    Section::Backends,
    Section::NextHops,
    Section::PathMtus,
    Section::Slots,
    Section::Nics,
    Section::FlowIndex,
    Section::FlowAddresses,
    Section::Paths,
    Section::OptionSlabs,
    Section::Fragments,
    Section::Affinities,
    Section::NatMaps,
    Section::Scopes,
    Section::ReturnLegs,
];

/// Outcome of a takeover.
#[derive(Debug)]
pub enum TakeOver {
    /// There was no other region.
    Nothing,
    /// The state of the other region was copied, and that region was removed.
    Taken {
        /// Location of the former region.
        from: PathBuf,
        /// Number of flows taken over.
        flows: u32,
        /// Generation of its tables.
        generation: u32,
    },
    /// The other region was neither copied nor removed.
    Left {
        /// Reason for which it was not taken over.
        why: RegionError,
    },
}

impl TakeOver {
    /// Returns a log message; `None` if there was no other region.
    pub fn log_message(&self) -> Option<String> {
        match self {
            TakeOver::Nothing => None,
            TakeOver::Taken { from, flows, generation } => Some(format!(
                "taken over from the region {}: {flows} flows, the tables of generation \
                 {generation}, all counters",
                from.display()
            )),
            TakeOver::Left { why } => Some(format!("another region is not taken over: {why}")),
        }
    }
}

impl Region {
    /// As [`Region::create_or_open`]. A new region takes over the state of the one at `other`: the
    /// other data plane's region, or a converted copy. That region is then removed.
    pub fn create_or_take_over(
        location: impl Into<RegionLocation>,
        other: Option<&RegionLocation>,
        sizes: &Sizes,
        seed: u64,
    ) -> Result<(Region, TakeOver), RegionError> {
        let fill = |region: &Region| other.map(|other| region.fill_from(other)).transpose();
        let (region, taken, _creating) = Region::create_filled(location.into(), sizes, seed, fill)?;
        let taken = taken.flatten().unwrap_or(TakeOver::Nothing);
        if let (TakeOver::Taken { .. }, Some(other)) = (&taken, other) {
            other.remove()?;
        }
        Ok((region, taken))
    }

    /// Copies the state of the region at `other` into this one, to which no other process has
    /// access yet. A region that cannot be read or was created with other parameters is left; one
    /// that is in use is an error.
    fn fill_from(&self, other: &RegionLocation) -> Result<TakeOver, RegionError> {
        if !other.exists() {
            return Ok(TakeOver::Nothing);
        }
        if let Some(role) = other.holder() {
            let path = other.path().to_path_buf();
            return Err(RegionError::OtherPlane { path, role });
        }
        if other.has_links() {
            return Err(RegionError::Attached { path: other.path().to_path_buf() });
        }
        let old = match Region::open(other) {
            Ok(old) => old,
            Err(RegionError::Unfinished { .. }) => return Ok(TakeOver::Nothing),
            Err(why) => return Ok(TakeOver::Left { why }),
        };
        // Each plane has its own number of lcores.
        let expected = Sizes { lcores: old.sizes().lcores, ..*self.sizes() };
        if let Err(why) = old.check_parameters(other.path(), &expected, self.hash_seed()) {
            return Ok(TakeOver::Left { why });
        }
        // Prevents other processes from starting on the region that is about to be removed.
        let _claims = (old.claim(Role::Fastpath)?, old.claim(Role::Slowpath)?);
        for section in SECTIONS {
            self.copy_section(&old, section);
        }
        self.add_counters(&old);
        self.copy_header(&old);
        let flows = self.recover().recovered;
        let from = other.path().to_path_buf();
        Ok(TakeOver::Taken { from, flows, generation: self.generation() })
    }

    fn copy_section(&self, old: &Region, section: Section) {
        for (to, from) in self.words(section).iter().zip(old.words(section)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // A section with 4-byte elements may end with half a word.
        let (to, bytes) = self.section_ptr(section);
        let (from, left) = (old.section_ptr(section).0, bytes % 8);
        let at = bytes - left;
        // SAFETY: both sections have `bytes` bytes, since the sizes are the same, in two mappings;
        // no other process has the new one, and no other process holds a role of the old one.
        #[expect(unsafe_code, reason = "bytes of a partial word")]
        unsafe {
            std::ptr::copy_nonoverlapping(from.wrapping_add(at), to.wrapping_add(at), left);
        }
    }

    /// Adds the old region's counters to this region's. If the old region has more lcores, several
    /// of its pages are added to one page, so that no sum decreases.
    fn add_counters(&self, old: &Region) {
        let page = self.layout().term(Section::Counters).bytes_each / 8;
        let new = self.words(Section::Counters);
        for (i, word) in old.words(Section::Counters).iter().enumerate() {
            let to = &new[i % new.len() / page * page + i % page];
            to.fetch_add(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn copy_header(&self, old: &Region) {
        let (to, from) = (&self.header().slow, &old.header().slow);
        for (to, from) in to.sums.iter().zip(&from.sums) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.set_draining(old.draining());
        self.set_label(Label::Appliance, &old.label(Label::Appliance));
        to.generation.store(old.generation(), Ordering::SeqCst);
    }
}
