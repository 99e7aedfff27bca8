//! Where services are made whose objects don't say it: `[private_link]` says it for all.

use super::spec::{Spec, group, location, subscription};
use crate::wrong::Wrong;

type Check = fn(&str, &str) -> Result<(), Wrong>;

/// What objects may leave out. An empty one is none.
///
/// The machine's own metadata is not asked for it: appliances that share objects may run in several
/// resource groups, and whoever takes over has to look where its predecessor made things.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Home {
    /// Id of the subscription in which services are made.
    pub subscription: String,
    /// The resource group in which they are made, and in which load balancers are looked for.
    pub resource_group: String,
    /// `westeurope`.
    pub location: String,
}

impl Home {
    /// What of it can't be as it is, by the configuration's keys.
    pub fn check(&self) -> Vec<Wrong> {
        let checked: [(Check, &str, &String); 3] = [
            (subscription, "private_link.subscription", &self.subscription),
            (group, "private_link.resource_group", &self.resource_group),
            (location, "private_link.location", &self.location),
        ];
        let given = checked.into_iter().filter(|(_, _, text)| !text.is_empty());
        given.filter_map(|(check, key, text)| check(key, text).err()).collect()
    }

    /// Says in an object what it leaves out.
    pub fn fill(&self, spec: &mut Spec) {
        for (field, known) in [
            (&mut spec.subscription, &self.subscription),
            (&mut spec.resource_group, &self.resource_group),
            (&mut spec.location, &self.location),
        ] {
            if field.is_empty() {
                field.clone_from(known);
            }
        }
    }
}

impl Spec {
    /// Whether all is said, by the object or by [`Home`], that a service needs.
    ///
    /// # Errors
    /// The first field that nobody says.
    pub fn complete(&self) -> Result<(), Wrong> {
        for (field, text) in [
            ("subscription", &self.subscription),
            ("resource_group", &self.resource_group),
            ("location", &self.location),
        ] {
            if text.is_empty() {
                let wrong = "neither the object nor the configuration says it";
                let allowed = format!(
                    "write it in the object, or private_link.{field} in the configuration for all"
                );
                return Err(Wrong::new(&format!("spec.{field}"), wrong, allowed));
            }
        }
        Ok(())
    }
}
