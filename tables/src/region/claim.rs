//! Role ownership: one process per role, by a lock on one byte of a file. The file is the region's
//! own, or a lock file if the region is in kernel maps. The kernel releases the lock when the owner
//! dies.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::role::{is_locked, set_lock};
use super::{ProcessUsage, Region, RegionError, Role};

/// Ownership of a role. It ends when this value is dropped or the process dies.
#[derive(Debug)]
pub struct Claim<'r> {
    region: &'r Region,
    role: Role,
    epoch: u32,
}

impl<'r> Claim<'r> {
    /// The claimed region.
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// Epoch of this claim; higher than all earlier ones of the role.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl Region {
    /// Claims a role and begins a new epoch. Only one process can hold a role at a time.
    pub fn claim(&self, role: Role) -> Result<Claim<'_>, RegionError> {
        let claimed = &self.claimed[role as usize];
        let acquired = !claimed.swap(true, Ordering::AcqRel);
        if !acquired || !self.lock_byte(role, libc::F_WRLCK) {
            if acquired {
                claimed.store(false, Ordering::Release);
            }
            let path = self.path().map_or_else(|| PathBuf::from("(anonymous)"), PathBuf::from);
            let pid = self.header().pid(role).load(Ordering::Relaxed);
            return Err(RegionError::Taken { path, role, pid });
        }
        self.header().pid(role).store(std::process::id(), Ordering::Relaxed);
        let epoch = self.header().epoch(role).fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        Ok(Claim { region: self, role, epoch })
    }

    /// Returns whether a running process holds the role.
    pub fn is_claimed(&self, role: Role) -> bool {
        if self.claimed[role as usize].load(Ordering::Acquire) {
            return true;
        }
        self.location.as_ref().is_some_and(|(file, _)| is_locked(file, role))
    }

    /// Process id of the role's current or last holder.
    pub fn pid(&self, role: Role) -> u32 {
        self.header().pid(role).load(Ordering::Relaxed)
    }

    /// Publishes the usage of this process, which holds the role of the data plane.
    pub fn set_data_plane_usage(&self, usage: ProcessUsage) {
        self.header().set_usage(usage);
    }

    /// Returns the usage that the running data plane published; `None` if none runs, or it has
    /// published none.
    pub fn data_plane_usage(&self) -> Option<ProcessUsage> {
        self.is_claimed(Role::Fastpath).then(|| self.header().usage())?
    }

    fn lock_byte(&self, role: Role, kind: i32) -> bool {
        let Some((file, _)) = &self.location else { return true };
        set_lock(file, role, kind)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.region.lock_byte(self.role, libc::F_UNLCK);
        self.region.claimed[self.role as usize].store(false, Ordering::Release);
    }
}
