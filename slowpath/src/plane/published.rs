//! What the region has of what is asked: ids of services and backends, and the region's dump.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use state::address::Address;
use state::backend::Instance;
use state::frontend::Frontend;
use state::service::Service;
use state::tables::Tables;
use tables::record::NONE;
use tables::region::Region;

use crate::plane::region::dump;

/// A service with what the region has of it.
#[derive(Clone, Debug)]
pub struct KnownService {
    /// As it was asked for.
    pub service: Arc<Service>,
    /// What it answers on.
    pub frontends: Vec<Arc<Frontend>>,
    /// The region's services that it is: one for each choice of backends.
    pub ids: Vec<u32>,
    /// Who serves, with ids in the region; [`NONE`] for those that aren't there.
    pub backends: Vec<(Arc<Instance>, u32)>,
}

/// What changes only with a commit, or with what is asked.
#[derive(Debug, Default)]
pub struct Published {
    tables: Tables,
    /// Names of tunnels by id.
    pub tunnels: Vec<(u32, String)>,
    /// Made when somebody asks: most commits come and go without.
    services: OnceLock<Vec<KnownService>>,
}

impl Published {
    /// To be published.
    pub fn new(tables: Tables, tunnels: Vec<(u32, String)>) -> Published {
        Published { tables, tunnels, services: OnceLock::new() }
    }

    /// All services by name.
    pub fn services(&self, region: &Region) -> &[KnownService] {
        self.services.get_or_init(|| self.look_up(region))
    }

    fn look_up(&self, region: &Region) -> Vec<KnownService> {
        let set = region.tables(region.generation());
        let mut ids: HashMap<Address, Vec<u32>> = HashMap::new();
        for (key, id, note) in set.frontend_notes() {
            ids.entry(dump::address(key, note)).or_default().push(id);
        }
        let backends: HashMap<(IpAddr, u16), u32> =
            set.backends().map(|(id, b)| ((b.addr.into(), b.port), id)).collect();
        let known = self.tables.entries().filter_map(|(_, entry)| {
            let of = entry.frontends.iter().filter_map(|row| ids.get(row.address()));
            let mut ids: Vec<u32> = of.flatten().copied().collect();
            ids.sort_unstable();
            ids.dedup();
            let backend = |instance: &Arc<Instance>| {
                let at = (instance.endpoint.addr, instance.endpoint.port);
                (Arc::clone(instance), backends.get(&at).copied().unwrap_or(NONE))
            };
            Some(KnownService {
                service: Arc::clone(entry.service.as_ref()?),
                frontends: entry.frontends.to_vec(),
                ids,
                backends: entry.used().map(backend).collect(),
            })
        });
        known.collect()
    }
}
