//! What is asked: the objects of all sources, and the tables of services, frontends and backends
//! that are made of them.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use state::appliance::Appliance;
use state::name::{Precedence, Source};
use state::object::{Object, Objects};
use state::reflect::{Reflector, Told, Verdict};
use state::writer::{Initializer, Writer};

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
    /// Nothing is asked yet. Backends that don't say their arm are behind the configured one.
    pub fn new(config: &Config) -> Desired {
        let writer = Writer::new();
        let files = sources::of_files().into_iter();
        let files = files.map(|source| {
            let initializer = writer.register_initializer(source.as_str());
            (source, initializer)
        });
        Desired {
            objects: Objects::default(),
            reflector: Reflector::new(precedence(config), config.backend_arm()),
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
    pub fn say(&mut self, wanted: &[Object], now: SystemTime) -> Result<u64, String> {
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
        let revision = transaction.commit();
        self.objects = next;
        self.tell(told, now);
        Ok(revision)
    }

    /// Sources win over each other as the configuration says; rows whose source stays are not
    /// touched.
    pub fn set_precedence(&mut self, config: &Config, now: SystemTime) {
        let mut transaction = self.writer.begin(now);
        let order = precedence(config);
        let told = self.reflector.set_precedence(order, &self.objects, &mut transaction);
        transaction.commit();
        self.tell(told, now);
    }

    /// Notes on objects what became of them.
    fn tell(&mut self, told: Vec<Told>, now: SystemTime) {
        for told in told {
            match &told.verdict {
                Verdict::Accepted => tracing::info!("{} is in force", told.key),
                Verdict::Shadowed(by) => tracing::warn!("{}: source {by} is preferred", told.key),
                Verdict::Refused(error) => tracing::error!("{}: {error}", told.key),
            }
            if let Err(gone) = self.objects.apply(&told.into_change(now), now) {
                tracing::debug!("{gone}");
            }
        }
    }
}

/// Which sources win over which.
fn precedence(config: &Config) -> Precedence {
    Precedence::new(config.sources.iter().map(|source| Source::new(&source.name)))
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
