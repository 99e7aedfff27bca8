//! The tables as of the last commit, joined with the ids of services and backends in the region.

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

/// A service with its ids in the region.
#[derive(Clone, Debug)]
pub struct PublishedService {
    /// The service as desired.
    pub service: Arc<Service>,
    /// Frontends of the service.
    pub frontends: Vec<Arc<Frontend>>,
    /// Ids of its services in the region: one for each distinct selection of its backends.
    pub ids: Vec<u32>,
    /// Backends of the service with their ids in the region; [`NONE`] for those that are not in it.
    pub backends: Vec<(Arc<Instance>, u32)>,
}

/// The tables as of the last commit, for the API and the metrics.
#[derive(Debug, Default)]
pub struct PublishedTables {
    tables: Tables,
    /// Names of tunnels by id.
    pub tunnels: Vec<(u32, String)>,
    /// Computed at first use, because the state of most commits is never read.
    services: OnceLock<Vec<PublishedService>>,
}

impl PublishedTables {
    /// Creates the state to publish after a commit.
    pub fn new(tables: Tables, tunnels: Vec<(u32, String)>) -> PublishedTables {
        PublishedTables { tables, tunnels, services: OnceLock::new() }
    }

    /// Returns all services, ordered by name. `region` is the region of the commit.
    pub fn services(&self, region: &Region) -> &[PublishedService] {
        self.services.get_or_init(|| self.join_with_region(region))
    }

    fn join_with_region(&self, region: &Region) -> Vec<PublishedService> {
        let set = region.tables(region.generation());
        let mut ids: HashMap<Address, Vec<u32>> = HashMap::new();
        for (key, id, note) in set.frontend_notes() {
            ids.entry(dump::address(key, note)).or_default().push(id);
        }
        let backends: HashMap<(IpAddr, u16), u32> =
            set.backends().map(|(id, b)| ((b.addr.into(), b.port), id)).collect();
        let services = self.tables.entries().filter_map(|(_, entry)| {
            let frontend_ids = entry.frontends.iter().filter_map(|row| ids.get(row.address()));
            let mut ids: Vec<u32> = frontend_ids.flatten().copied().collect();
            ids.sort_unstable();
            ids.dedup();
            let backend = |instance: &Arc<Instance>| {
                let at = (instance.endpoint.addr, instance.endpoint.port);
                (Arc::clone(instance), backends.get(&at).copied().unwrap_or(NONE))
            };
            Some(PublishedService {
                service: Arc::clone(entry.service.as_ref()?),
                frontends: entry.frontends.to_vec(),
                ids,
                backends: entry.used().map(backend).collect(),
            })
        });
        services.collect()
    }
}
