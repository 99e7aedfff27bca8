//! What is kept on disk: our place, and what the next process has to know of the lifecycle.

use std::path::Path;

use clouds::appliance::Ingress;
use config::checked::Azure as Settings;
use serde::{Deserialize, Serialize};

use crate::life::Kept;
use crate::place::Place;

/// As it lies on the disk.
#[derive(Serialize, Deserialize)]
pub(super) struct OnDisk {
    /// What was looked for; a place that was found by something else says nothing.
    pub(super) by: String,
    pub(super) place: Place,
    /// Of the lifecycle at that place, whatever it was looked for by.
    pub(super) life: Kept,
}

impl OnDisk {
    pub(super) fn read(file: Option<&Path>) -> Option<OnDisk> {
        clouds::kept::read(file)
    }

    /// What is still true at a place. An administrative state that we took down in a pool is ours
    /// to lift also where another pool came to it.
    pub(super) fn life_at(self, place: &Place) -> Kept {
        if self.place.identity.vm_id != place.identity.vm_id {
            return Kept::default();
        }
        let entries = |place: &Place| {
            let of = |pool: &crate::place::Pool| (pool.id.clone(), pool.configuration.clone());
            place.pools.iter().map(of).collect::<Vec<_>>()
        };
        let (before, now) = (entries(&self.place), entries(place));
        match before == now {
            true => self.life,
            false => {
                let down = self.life.down && before.iter().any(|entry| now.contains(entry));
                Kept { down, ..Kept::default() }
            }
        }
    }
}

/// What a place is looked for by.
pub(super) fn looked_for(settings: &Settings, ours: Option<Ingress>) -> String {
    format!("{:?} {:?} {ours:?}", settings.pools, settings.balancer)
}
