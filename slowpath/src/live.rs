//! State that other threads than the control loop read: the region, and what the control loop
//! publishes.

mod counts;
mod desired;
mod shared;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use api::audit::Audit;
use clouds::report::Report;
use config::checked::Config;
use events::history::history;
use state::tables::Tables;
use tables::capture_file;
use tables::flow::Flows;
use tables::region::Region;
use tokio::sync::watch;

use crate::cloud::private_link;
use crate::control::capture::CaptureSlots;
use crate::control::listening::Listening;
use crate::control::report::{self, AuditStatus, HeldSource, NicReport, Status, Use};
use crate::control::trace::TraceRequest;
use crate::health::Able;
use crate::health::checks::Checks;
pub use crate::plane::published::{PublishedService, PublishedTables};
use crate::routing::bgp_state::BgpState;
pub use desired::DesiredState;
pub use shared::Shared;
use shared::TraceSlot;

/// State that the control socket, the metrics, health probes, BGP and the cloud's lifecycle read.
pub struct Live {
    /// The shared memory region.
    pub region: &'static Region,
    /// The configuration at startup.
    pub config: Arc<Config>,
    /// The packet captures that run.
    pub captures: CaptureSlots,
    shared: Arc<Shared>,
    listening: Listening,
    audit: Audit,
    bgp: OnceLock<BgpState>,
    private_links: OnceLock<private_link::PrivateLinkState>,
    started: Instant,
}

impl Live {
    /// Returns whether the appliance is able to take traffic, regardless of the cloud's lifecycle,
    /// in one line for the service manager.
    pub fn status_line(&self) -> String {
        self.shared.status_line()
    }

    /// Creates the view of `region` and of the published state `shared`.
    pub fn new(
        region: &'static Region,
        config: Arc<Config>,
        shared: Arc<Shared>,
        audit: Audit,
    ) -> Live {
        let (bgp, private_links) = (OnceLock::new(), OnceLock::new());
        let listening = Listening::new(&config, shared.reserved.clone());
        let (captures, started) = (CaptureSlots::default(), Instant::now());
        if let Some(location) = region.location() {
            capture_file::remove_all(location);
        }
        Live { region, config, captures, shared, listening, audit, bgp, private_links, started }
    }

    /// Returns the limits of all listeners, and whether each listens.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Returns the audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Returns whether the appliance can take traffic: whether health probes succeed.
    pub fn able(&self) -> Able {
        self.shared.able_now()
    }

    /// Returns whether the appliance could take traffic, regardless of the cloud's lifecycle.
    pub fn local_able(&self) -> Able {
        self.shared.local_able_now()
    }

    /// Returns the state that the control loop publishes, with the requests to it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns a receiver that is notified when [`Live::able`] changes.
    pub fn watch_able(&self) -> watch::Receiver<Able> {
        self.shared.able.subscribe()
    }

    /// Returns the state published by the last commit.
    pub fn published(&self) -> Arc<PublishedTables> {
        self.shared.published()
    }

    /// Returns the desired state.
    pub fn desired(&self) -> DesiredState {
        self.shared.desired_now()
    }

    /// Returns the state of BGP, once it has started.
    pub fn bgp(&self) -> Option<&BgpState> {
        self.bgp.get()
    }

    /// Stores the state of BGP when it has started.
    pub fn set_bgp(&self, state: BgpState) {
        // Called once per process.
        let _ = self.bgp.set(state);
    }

    /// Returns the state of private links, once they have started; `None` if not configured.
    pub fn private_links(&self) -> Option<&private_link::PrivateLinkState> {
        self.private_links.get()
    }

    /// Stores the state of private links when they have started.
    pub fn set_private_links(&self, state: private_link::PrivateLinkState) {
        // Called once per process.
        let _ = self.private_links.set(state);
    }

    /// Returns the health checker.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// Returns the report of the cloud's lifecycle.
    pub fn cloud(&self) -> Report {
        self.shared.cloud.read().clone()
    }

    /// Replaces the report of the cloud's lifecycle.
    pub fn publish_cloud(&self, report: Report) {
        let mut published = self.shared.cloud.write();
        let before = std::mem::replace(&mut *published, report);
        let (cloud, to) = (published.cloud.clone(), published.phase.clone());
        drop(published);
        if before.phase != to {
            let from = before.phase;
            tracing::info!(event = "cloud_phase_changed", cloud, from, to, "cloud phase changed");
        }
    }

    /// `GET /maps`: returns the content of the region as dump records.
    pub fn dump(&self) -> Vec<state::dump::Record> {
        self.desired().dump(self.region)
    }

    /// Returns the status for `GET /status`.
    pub fn status(&self) -> Status {
        let mut status = self.shared.status_now();
        Able { able: status.able, reasons: status.reasons } = self.shared.able_now();
        let cloud = self.cloud();
        status.ready = status.able && (cloud.ready || cloud.cloud.is_empty());
        status.listeners = report::listeners(self.listening.conditions());
        status.audit = AuditStatus { lost: self.audit.lost(), error: self.audit.error() };
        status.secrets = report::secrets(self.listening.credentials());
        status.cloud = cloud.line();
        status.bgp = self.bgp().map(BgpState::line).unwrap_or_default();
        let set = self.region.tables(self.region.generation());
        status.name.clone_from(&self.config.name);
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.uptime_s = self.started.elapsed().as_secs();
        let path = self.region.path().map(|path| path.display().to_string());
        status.region = path.unwrap_or_default();
        status.store = self.shared.store_now();
        status.seed_fingerprint = self.config.tables.fingerprint();
        status.services = counts::services(&set);
        let desired = self.desired();
        status.frontends = counts::frontends(&desired.tables);
        let held = state::sources::removals::held(&desired.objects);
        let held = held.map(|(source, message)| (source.to_string(), message.to_owned()));
        status.held = held.map(|(source, message)| HeldSource { source, message }).collect();
        status.backends = set.backends().count();
        status.flows = self.flows_in_use();
        status.nics = self.nics();
        status.findings = crate::plane::spread::findings(&status.lcores, &status.nics);
        status
            .findings
            .extend(history().and_then(|history| history.status().finding(Instant::now())));
        // Only `GET /nics` has them.
        status.nics.iter_mut().for_each(|nic| nic.driver_counters.clear());
        status
    }

    /// Returns whether all sources have sent their complete lists and no frontend of `tables` is
    /// pending.
    pub fn is_settled(&self, tables: &Tables) -> bool {
        let frontends = counts::frontends(tables);
        frontends.waiting_for.is_empty() && frontends.pending == 0
    }

    /// Returns the NICs of the arms for `GET /nics`.
    pub fn nics(&self) -> Vec<NicReport> {
        report::nics(self.region, self.config.arms().count())
    }

    /// Returns the number of flows in the flow table, and its capacity.
    pub fn flows_in_use(&self) -> Use {
        let flows = Flows::new(self.region);
        Use { used: u64::from(flows.live()), max: u64::from(flows.capacity()) }
    }

    /// Starts or ends a drain: while it is on, health probes fail so that no new flows arrive. The
    /// setting is in the region, so it survives a restart of slowpath.
    pub fn drain(&self, on: bool) {
        match on {
            true => tracing::info!(event = "drain_started", "drain started"),
            false => tracing::info!(event = "drain_ended", "drain canceled"),
        }
        self.region.set_draining(on);
        self.shared.changes().event();
    }

    /// Makes the control loop read the configuration and the services again, and the API and BGP
    /// their secrets.
    pub fn reload(&self) {
        self.shared.reload();
        if let Some(credentials) = self.listening.credentials() {
            credentials.reload();
        }
        // BGP reads its keys in each round of its control loop, which this starts.
        self.shared.changes().event();
    }

    /// Requests a trace from the control loop. Fails while another one runs.
    pub fn request_trace(&self, request: TraceRequest) -> Result<(), String> {
        let mut slot = self.shared.trace.lock();
        match *slot {
            TraceSlot::Free => {
                *slot = TraceSlot::Requested(request);
                self.shared.wake();
                Ok(())
            }
            _ => Err("another trace is running; wait for its end or stop it".to_owned()),
        }
    }
}
