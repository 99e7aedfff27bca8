//! The desired state: which services there shall be. Pure; it changes only by [`Change`].

use std::collections::BTreeMap;

use config::services::Service;

/// Everything that can be asked.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// This service shall be, and be so.
    Put(Box<Service>),
    /// No service of this name shall be.
    Remove(String),
}

/// Services by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    services: BTreeMap<String, Service>,
}

impl State {
    /// The changes that lead from here to exactly `wanted`: removals first, so that what they free
    /// (a frontend that moves to another service, say) is free for what follows.
    pub fn towards(&self, wanted: &[Service]) -> Vec<Change> {
        let names: std::collections::BTreeSet<&str> =
            wanted.iter().map(|service| service.name.as_str()).collect();
        let gone = self.services.keys().filter(|name| !names.contains(name.as_str()));
        let mut changes: Vec<Change> = gone.cloned().map(Change::Remove).collect();
        let new = wanted.iter().filter(|service| self.services.get(&service.name) != Some(service));
        changes.extend(new.map(|service| Change::Put(Box::new(service.clone()))));
        changes
    }

    /// Takes a change over.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Put(service) => {
                self.services.insert(service.name.clone(), *service);
            }
            Change::Remove(name) => {
                self.services.remove(&name);
            }
        }
    }

    /// All services, by name.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The service of that name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }
}
