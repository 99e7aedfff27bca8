//! What is asked: the objects of all sources, and the tables of services, frontends and backends
//! that are made of them.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::{ArmName, Config};
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::name::{Name, Precedence, Source};
use state::object::{Change, Condition, Key, Kind, Object, Objects, Truth};
use state::reflect::{Reflector, Verdict};
use state::writer::{Initializer, Transaction, Writer};

use crate::sources;

/// Objects, and who makes rows of them.
pub struct Desired {
    objects: Objects,
    reflector: Reflector,
    /// The tables.
    pub writer: Arc<Writer>,
    /// Until the files were taken once, nothing is pruned.
    files: Vec<(Source, Initializer)>,
}

impl Desired {
    /// Nothing is asked yet. `arm` is that of backends that don't say theirs.
    pub fn new(arm: ArmName) -> Desired {
        let writer = Writer::new();
        let files = sources::of_files().into_iter();
        let files = files.map(|source| {
            let initializer = writer.register_initializer(source.as_str());
            (source, initializer)
        });
        Desired {
            objects: Objects::default(),
            reflector: Reflector::new(Precedence::default(), arm),
            files: files.collect(),
            writer: Arc::new(writer),
        }
    }

    /// What was given to us.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The files say this now: all of it is taken, or nothing. Tells the revision of the tables,
    /// which is the one before where nothing is new.
    ///
    /// `held` is what the plane held as unhealthy before a restart.
    pub fn say(
        &mut self,
        wanted: &[Object],
        held: &[(Address, Endpoint)],
        now: SystemTime,
    ) -> Result<u64, String> {
        let mut next = self.objects.clone();
        let mut events = Vec::new();
        for (source, _) in &self.files {
            let said = wanted.iter().filter(|object| object.source == *source).cloned().collect();
            for change in next.towards(source, said) {
                events.extend(next.apply(&change, now).map_err(|e| e.to_string())?);
            }
        }
        let mut transaction = self.writer.begin(now);
        let told = self.reflector.apply(&next, &events, &mut transaction);
        self.files.iter().for_each(|(_, initializer)| transaction.complete(initializer));
        hold(&mut transaction, held);
        let revision = transaction.commit();
        for told in told {
            match &told.verdict {
                Verdict::Accepted => tracing::info!("{} is in force", told.key),
                Verdict::Shadowed(by) => tracing::warn!("{}: source {by} is preferred", told.key),
                Verdict::Refused(error) => tracing::error!("{}: {error}", told.key),
            }
            if let Err(gone) = next.apply(&told.into_change(now), now) {
                tracing::debug!("{gone}");
            }
        }
        self.objects = next;
        Ok(revision)
    }

    /// Notes a condition of a service on the object that is heard. Tells whether it is news.
    pub fn note(
        &mut self,
        service: &Name,
        aspect: &'static str,
        trouble: Option<String>,
        now: SystemTime,
    ) -> bool {
        let tables = self.writer.tables();
        let Some(row) = tables.service(service) else { return false };
        let (name, source) = (service.clone(), row.source.clone());
        let key = Key { kind: Kind::Service, name, source };
        let Some(object) = self.objects.get(&key) else { return false };
        let (status, reason) = match trouble {
            None => (Truth::True, aspect),
            Some(_) => (Truth::False, "Failed"),
        };
        let condition = Condition {
            aspect: aspect.into(),
            status,
            reason: reason.into(),
            message: trouble.unwrap_or_default().into(),
            since: now,
        };
        let observed = object.generation;
        let message = condition.message.clone();
        let change = Change::Status { key, observed, conditions: vec![condition] };
        let news = self.objects.apply(&change, now).is_ok_and(|event| event.is_some());
        if news && !message.is_empty() {
            tracing::warn!("service {service}: {message}");
        }
        news
    }
}

/// What was unhealthy before a restart is so again, where somebody will look: the checker begins
/// with it, and nobody is served meanwhile who failed.
fn hold(transaction: &mut Transaction<'_>, held: &[(Address, Endpoint)]) {
    let tables = transaction.tables().clone();
    for (address, endpoint) in held {
        let Some(row) = tables.frontend(address) else { continue };
        let name = row.redirect_to.as_ref().unwrap_or(&row.service.name);
        let Some(entry) = tables.entry(name) else { continue };
        let checked = entry.service.as_ref().is_some_and(|service| service.health.is_some());
        let judged = entry.at(endpoint).iter().any(|instance| instance.health.since.is_some());
        if checked
            && !judged
            && transaction.update_backend_health(name, endpoint, false) == Ok(true)
        {
            tracing::info!("{endpoint} of {name} is unhealthy, as before the restart");
        }
    }
}

/// The appliance as selection and the region see it.
pub fn appliance(config: &Config) -> Appliance {
    let labels =
        config.labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    let addresses = config.arms().flat_map(|(_, arm)| &arm.addresses);
    Appliance {
        name: config.name.as_str().into(),
        labels: (!config.labels.is_empty()).then(|| Arc::new(labels.collect())),
        zone: config.zone.as_str().into(),
        local: config.local.iter().map(|name| name.as_str().into()).collect(),
        addresses: addresses.map(|interface| interface.addr).collect(),
        ..Appliance::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::backend::Place;

    #[test]
    fn the_appliance_calls_local_what_its_configuration_names() {
        let text = "name = \"t\"\nzone = \"a\"\nlocal = [\"node-1\", \"b\"]\n\
                    [ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\"]\n\
                    [fastpath]\nlcores = [1]\n";
        let appliance = appliance(&config::from_toml(text).unwrap());
        let local = |node: &str, zone: &str| {
            let place = Place { node: node.into(), zone: zone.into(), ..Place::default() };
            appliance.is_local(Some(&place))
        };
        assert!(local("node-1", "c") && local("node-2", "b"));
        assert!(!local("node-2", "a"));
    }
}
