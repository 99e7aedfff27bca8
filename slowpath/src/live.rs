//! Between the control loop and those who answer questions: what is published, and the region.

mod counts;
mod shared;
mod wanted;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clouds::report::Report;
use config::checked::Config;
use state::tables::Tables;
use tables::flow::Flows;
use tables::region::Region;
use tokio::sync::watch;

use crate::cloud::private_link;
use crate::control::listening::Listening;
use crate::control::report::{self, HeldSource, Status, Use};
use crate::control::trace::TraceRequest;
use crate::health::Able;
use crate::health::checks::Checks;
pub use crate::plane::published::{KnownService, Published};
use crate::routing::desk::Desk;
pub use shared::Shared;
use shared::TraceSlot;
pub use wanted::Wanted;

/// What those who answer questions see.
pub struct Live {
    /// The region.
    pub region: &'static Region,
    /// The configuration.
    pub config: Arc<Config>,
    shared: Arc<Shared>,
    listening: Listening,
    routers: OnceLock<Desk>,
    links: OnceLock<private_link::Desk>,
    started: Instant,
}

impl Live {
    /// Over the region and what the control loop publishes.
    pub fn new(region: &'static Region, config: Arc<Config>, shared: Arc<Shared>) -> Live {
        let (routers, links) = (OnceLock::new(), OnceLock::new());
        let listening = Listening::new(&config, shared.reserved.clone());
        Live { region, config, shared, listening, routers, links, started: Instant::now() }
    }

    /// Limits and conditions of all listeners.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Whether traffic may come.
    pub fn able(&self) -> Able {
        self.shared.able_now()
    }

    /// Whether the appliance itself could take traffic, whatever the cloud's side says.
    pub fn own(&self) -> Able {
        self.shared.own_now()
    }

    /// What the control loop publishes, and what is told to it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Told whenever that changes.
    pub fn watch_able(&self) -> watch::Receiver<Able> {
        self.shared.able.subscribe()
    }

    /// What the last commit published.
    pub fn published(&self) -> Arc<Published> {
        self.shared.published()
    }

    /// What there shall be.
    pub fn wanted(&self) -> Wanted {
        self.shared.wanted_now()
    }

    /// What is known of routers, once BGP has begun.
    pub fn routers(&self) -> Option<&Desk> {
        self.routers.get()
    }

    /// BGP has begun.
    pub fn set_routers(&self, desk: Desk) {
        // There is one in a process.
        let _ = self.routers.set(desk);
    }

    /// What is known of private links, once they are looked after.
    pub fn links(&self) -> Option<&private_link::Desk> {
        self.links.get()
    }

    /// They are looked after.
    pub fn set_links(&self, desk: private_link::Desk) {
        // There is one in a process.
        let _ = self.links.set(desk);
    }

    /// The health checker.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// What is known of this machine at its cloud.
    pub fn cloud(&self) -> Report {
        self.shared.cloud.read().clone()
    }

    /// From now on that is this.
    pub fn publish_cloud(&self, report: Report) {
        *self.shared.cloud.write() = report;
    }

    /// `GET /maps`: what the region holds, in the words of the map model.
    pub fn dump(&self) -> Vec<state::dump::Record> {
        self.wanted().dump(self.region)
    }

    /// `GET /status`.
    pub fn status(&self) -> Status {
        let mut status = self.shared.status_now();
        Able { able: status.able, reasons: status.reasons } = self.shared.able_now();
        let cloud = self.cloud();
        status.ready = status.able && (cloud.ready || cloud.cloud.is_empty());
        status.listeners = report::listeners(self.listening.conditions());
        status.cloud = cloud.line();
        status.bgp = self.routers().map(Desk::line).unwrap_or_default();
        let set = self.region.tables(self.region.generation());
        status.name.clone_from(&self.config.name);
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.uptime_s = self.started.elapsed().as_secs();
        let place = self.region.path().map(|path| path.display().to_string());
        status.region = place.unwrap_or_default();
        status.store = self.shared.store_now();
        status.seed_fingerprint = self.config.tables.fingerprint();
        status.services = counts::services(&set);
        let wanted = self.wanted();
        status.frontends = counts::frontends(&wanted.tables);
        let held = state::sources::removals::held(&wanted.objects);
        let held = held.map(|(source, message)| (source.to_string(), message.to_owned()));
        status.held = held.map(|(source, message)| HeldSource { source, message }).collect();
        status.backends = set.backends().count();
        status.flows = self.flows_in_use();
        status
    }

    /// Whether all sources have said what they know, and nothing of it is on its way any more.
    pub fn is_settled(&self, tables: &Tables) -> bool {
        let frontends = counts::frontends(tables);
        frontends.waited_for.is_empty() && frontends.pending == 0
    }

    /// Flow paths in use.
    pub fn flows_in_use(&self) -> Use {
        let flows = Flows::new(self.region);
        Use { used: u64::from(flows.live()), max: u64::from(flows.capacity()) }
    }

    /// Tells probes that no new traffic is wanted, or that it is again. It holds over restarts.
    pub fn drain(&self, on: bool) {
        tracing::info!("{}", if on { "draining" } else { "not draining any more" });
        self.region.set_draining(on);
        self.shared.news().event();
    }

    /// Has the control loop read both files again.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// Asks the control loop for a trace; refused while one runs.
    pub fn ask_trace(&self, request: TraceRequest) -> Result<(), String> {
        let mut slot = self.shared.trace.lock();
        match *slot {
            TraceSlot::Free => {
                *slot = TraceSlot::Asked(request);
                self.shared.wake();
                Ok(())
            }
            _ => Err("another trace runs; wait for its end or stop it".to_owned()),
        }
    }
}
