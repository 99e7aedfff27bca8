//! Applies a policy: compares desired peers and routes with the current ones, and changes the
//! speaker.
//!
//! A round handles one router after another. For each, it first handles the identity (a change
//! restarts the router's sessions), then the neighbors (additions before removals), then the
//! routes. Routers that are no longer configured are removed last.
//!
//! Routes are set as one table per peer, which combines prefixes, services and attributes, so that
//! no peer receives half of a change. A session is left untouched while its own settings stay the
//! same.

pub mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::advertise::Table;
use bgp::peer::Stop;
use ipnet::IpNet;
use state::object::bgp::{Neighbor, Password, RouterSpec};

use crate::apply::{Defect, DefectKind, PolicyApplier, PolicyDefects, ShutdownMode};
use crate::peers::{self, Identity, Keys};
use crate::routes::{self, NoBackends, OfferedPrefixes};
use crate::secrets::{KeyCounts, ReadKeys, Secrets};
use crate::select::Policy;
use crate::snapshot::ControlPlaneState;
use crate::speaker::{PeerConfig, PeerKey, Speaker};

/// Maximum wait after a restart of this process until the data plane is recognized as running. That
/// takes two readings of the lcores' tick counters.
const DATA_PLANE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a drain begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DrainStart {
    /// All routes are withdrawn at once.
    #[default]
    Withdraw,
    /// Routes carry the GRACEFUL_SHUTDOWN community (RFC 8326) and are withdrawn after this time.
    GracefulShutdown(Duration),
}

/// Settings of an announcer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// How services with traffic policy Cluster and without usable backends are handled.
    pub no_backends: NoBackends,
    /// How a drain begins.
    pub drain: DrainStart,
    /// This process was restarted and the data plane's tables survived. Neighbors with graceful
    /// restart (RFC 4724) are informed by the R bit.
    pub restarted: bool,
}

/// Virtual routers, implemented with a speaker.
pub struct Announcer<S> {
    pub(crate) speaker: S,
    secrets: Arc<dyn Secrets + Send + Sync>,
    /// TCP-MD5 and TCP-AO keys as read in the last round.
    passwords: ReadKeys,
    key_counts: Arc<KeyCounts>,
    settings: Settings,
    /// The policy of the last round.
    pub(crate) policy: Option<Policy>,
    /// Name of the appliance.
    pub(crate) node: Box<str>,
    /// Identities in use, by local AS number.
    routers: BTreeMap<u32, Identity>,
    pub(crate) peers: BTreeMap<PeerKey, RunningPeer>,
    /// No policy was applied yet. Peers of the first policy may have had sessions with this
    /// appliance before a restart of this process.
    first_policy: bool,
    /// Until when to wait for the state of the data plane after a restart.
    data_plane_deadline: Option<Instant>,
    /// No snapshot was processed yet.
    first_snapshot: bool,
    /// When the current drain began; `None` without a drain.
    draining: Option<Drain>,
    /// Graceful shutdown is on at the speaker.
    shutting_down: bool,
    /// When a round is due without a signal: a drain's withdrawal, or the end of the wait after a
    /// restart.
    due: Option<Instant>,
}

/// When a drain began.
#[derive(Clone, Copy)]
enum Drain {
    /// Before the first snapshot of this process. The previous process has already informed the
    /// peers of the drain, so routes are withdrawn at once.
    Before,
    /// At this time, when a snapshot first had it.
    Since(Instant),
}

/// A peer and its desired routes.
pub(crate) struct RunningPeer {
    config: PeerConfig,
    /// The secrets from which the session's keys are read; empty without authentication.
    secrets: Vec<Password>,
    pub(crate) table: Arc<Table>,
    /// When each route was last changed.
    pub(crate) since: BTreeMap<IpNet, Instant>,
}

impl<S: Speaker> Announcer<S> {
    /// Creates an announcer without a policy.
    pub fn new(
        speaker: S,
        secrets: Arc<dyn Secrets + Send + Sync>,
        settings: Settings,
    ) -> Announcer<S> {
        Announcer {
            speaker,
            secrets,
            passwords: ReadKeys::new(),
            key_counts: Arc::default(),
            settings,
            policy: None,
            node: Box::default(),
            routers: BTreeMap::new(),
            peers: BTreeMap::new(),
            first_policy: true,
            data_plane_deadline: None,
            first_snapshot: true,
            draining: None,
            shutting_down: false,
            due: None,
        }
    }

    /// Returns the speaker.
    pub fn speaker(&self) -> &S {
        &self.speaker
    }

    /// Returns the counts of unreadable keys, which each round updates.
    pub fn key_counts(&self) -> Arc<KeyCounts> {
        Arc::clone(&self.key_counts)
    }

    /// Returns whether a drain withdraws routes now. Turns graceful shutdown on or off at the
    /// speaker, and sets when the next round is due.
    fn update_drain(&mut self, state: &ControlPlaneState) -> bool {
        if !state.plane.draining {
            self.draining = None;
        }
        let first_snapshot = std::mem::take(&mut self.first_snapshot);
        let found = || if first_snapshot { Drain::Before } else { Drain::Since(state.taken) };
        let drain = state.plane.draining.then(|| *self.draining.get_or_insert_with(found));
        let (shutting_down, due) = match (self.settings.drain, drain) {
            (_, None) => (false, None),
            (DrainStart::Withdraw, Some(_)) | (_, Some(Drain::Before)) => {
                (false, Some(state.taken))
            }
            (DrainStart::GracefulShutdown(wait), Some(Drain::Since(began))) => {
                (true, Some(began + wait))
            }
        };
        if shutting_down != self.shutting_down {
            self.speaker.graceful_shutdown(shutting_down);
            self.shutting_down = shutting_down;
        }
        let withdraws = due.is_some_and(|due| due <= state.taken);
        self.due = due.filter(|_| !withdraws);
        withdraws
    }

    /// Returns whether to delay all sessions after a restart, until the data plane forwards or
    /// [`DATA_PLANE_TIMEOUT`] has passed: a neighbor that receives a cleared F bit (RFC 4724) drops
    /// the routes at once.
    fn awaits_data_plane(&mut self, state: &ControlPlaneState) -> bool {
        if !self.first_policy || !self.settings.restarted || state.plane.forwarding {
            return false;
        }
        let until = *self.data_plane_deadline.get_or_insert(state.taken + DATA_PLANE_TIMEOUT);
        let awaits = state.taken < until;
        if awaits {
            self.due = Some(until);
        }
        awaits
    }

    /// Updates and returns the identity of a router. A changed identity ends the router's sessions.
    /// If no identity can be determined, the previous one stays, so that the routes still follow
    /// the state; `None` if there is no previous one.
    fn update_identity(
        &mut self,
        router: &RouterSpec,
        state: &ControlPlaneState,
        defects: &mut Vec<DefectKind>,
    ) -> Option<Identity> {
        let before = self.routers.get(&router.local_asn).copied();
        let identity = match peers::identity(router, state) {
            Ok(identity) => identity,
            Err(kind) => {
                defects.push(kind);
                before?
            }
        };
        if before.is_some_and(|before| before != identity) {
            for key in self.peer_keys(|key| key.local_asn == router.local_asn) {
                self.remove(key, Stop::Changed);
            }
        }
        self.routers.insert(router.local_asn, identity);
        Some(identity)
    }

    /// Adds a neighbor, or restarts its session if its settings changed. If only keys changed, they
    /// are replaced in the session where that is possible. `forwarding` becomes the F bit of
    /// graceful restart after a restart of this process.
    fn update_session(
        &mut self,
        router: &RouterSpec,
        neighbor: &Neighbor,
        identity: Identity,
        keys: Keys,
        forwarding: bool,
    ) -> Result<(), DefectKind> {
        let key = peers::key(router, neighbor);
        let secrets = neighbor.secrets().cloned().collect();
        let config = peers::config(router, neighbor, identity, keys)?;
        match self.peers.get_mut(&key) {
            Some(running) if running.config == config => return Ok(()),
            Some(running) if running.config.can_rekey_to(&config) => {
                self.speaker.set_keys(key, &config);
                (running.config, running.secrets) = (config, secrets);
                return Ok(());
            }
            Some(_) => self.remove(key, Stop::Changed),
            // A session of another router with this neighbor, from a previous policy, must end
            // first.
            None => self.remove_conflicting(key, neighbor),
        }
        // The R and F bits are not part of the stored `config`, so that a later round does not take
        // them for a changed setting.
        let mut initial = config.clone();
        if let Some(restart) = &mut initial.settings.graceful_restart {
            restart.restarted = self.first_policy && self.settings.restarted;
            restart.forwarding = !self.first_policy || (self.settings.restarted && forwarding);
        }
        self.speaker.add(key, &initial);
        let (table, since) = (Arc::default(), BTreeMap::new());
        self.peers.insert(key, RunningPeer { config, secrets, table, since });
        Ok(())
    }

    /// Removes the sessions of other routers with this neighbor that cannot coexist with a new
    /// session `key`, because neither the local address nor the interface tells them apart.
    fn remove_conflicting(&mut self, key: PeerKey, neighbor: &Neighbor) {
        let (address, local) = (neighbor.address, neighbor.local_address);
        let conflicts = |(other, running): &(&PeerKey, &RunningPeer)| {
            let (other_local, interface) =
                (running.config.settings.transport.local, running.config.interface.as_deref());
            let own = neighbor.interface.as_deref();
            other.peer.ip() == address
                && other.local_asn != key.local_asn
                && (other_local.is_none() || local.is_none() || other_local == local)
                && (interface.is_none() || own.is_none() || interface == own)
        };
        let others: Vec<PeerKey> =
            self.peers.iter().filter(conflicts).map(|(key, _)| *key).collect();
        others.into_iter().for_each(|other| self.remove(other, Stop::Deconfigured));
    }

    /// Sets the routes of a neighbor if they changed, and returns the defects that prevent routes.
    fn advertise(
        &mut self,
        router: &RouterSpec,
        neighbor: &Neighbor,
        offered: &OfferedPrefixes,
        state: &ControlPlaneState,
    ) -> Vec<DefectKind> {
        let (table, defects) = routes::table(router, neighbor, offered, state);
        let key = peers::key(router, neighbor);
        if let Some(running) = self.peers.get_mut(&key)
            && *running.table != table
        {
            running.set_table(table, state.taken);
            self.speaker.set_routes(key, &running.table);
        }
        defects
    }

    /// Applies the desired state of one router, and returns its defects.
    fn apply_router(
        &mut self,
        router: &RouterSpec,
        offered: &OfferedPrefixes,
        state: &ControlPlaneState,
    ) -> Vec<DefectKind> {
        let unresolved = router.unresolved.iter().cloned().map(DefectKind::Unresolved);
        let mut defects: Vec<DefectKind> = unresolved.collect();
        defects.extend(routes::cluster_ip_defect(router, &state.plane));
        let identity = self.update_identity(router, state, &mut defects);
        for neighbor in &router.neighbors {
            let forwarding = state.plane.forwarding;
            if let Some(Err(kind)) =
                identity.map(|i| self.apply_neighbor(router, neighbor, i, forwarding))
            {
                defects.push(kind);
            }
        }
        let named = |key: &PeerKey| router.neighbors.iter().any(|n| peers::key(router, n) == *key);
        for key in self.peer_keys(|key| key.local_asn == router.local_asn && !named(key)) {
            self.remove(key, Stop::Deconfigured);
        }
        for neighbor in &router.neighbors {
            defects.extend(self.advertise(router, neighbor, offered, state));
        }
        defects
    }

    fn peer_keys(&self, which: impl Fn(&PeerKey) -> bool) -> Vec<PeerKey> {
        self.peers.keys().filter(|key| which(key)).copied().collect()
    }

    fn remove(&mut self, key: PeerKey, why: Stop) {
        if self.peers.remove(&key).is_some() {
            self.speaker.remove(key, why);
        }
    }

    fn remove_all(&mut self, why: &Stop) {
        for key in self.peer_keys(|_| true) {
            self.remove(key, why.clone());
        }
        self.routers.clear();
    }
}

impl RunningPeer {
    /// Returns the TCP-MD5 and TCP-AO keys of the session.
    fn keys(&self) -> Keys {
        let transport = &self.config.settings.transport;
        Keys { md5: transport.md5.clone(), tcp_ao: transport.tcp_ao.clone() }
    }

    fn set_table(&mut self, table: Table, now: Instant) {
        let before = std::mem::replace(&mut self.table, Arc::new(table));
        let mut since = std::mem::take(&mut self.since);
        for (net, attributes) in &self.table.routes {
            let stays = before.routes.get(net) == Some(attributes);
            let began = since.remove(net).filter(|_| stays).unwrap_or(now);
            self.since.insert(*net, began);
        }
    }
}

impl<S: Speaker> PolicyApplier for Announcer<S> {
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        state: &ControlPlaneState,
    ) -> Result<(), PolicyDefects> {
        let withdraws = self.update_drain(state);
        self.node.clone_from(&state.name);
        self.policy = policy.cloned();
        let Some(policy) = policy else {
            self.due = None;
            self.passwords.clear();
            self.key_counts.record(0, &self.passwords);
            self.remove_all(&Stop::Deconfigured);
            return Ok(());
        };
        if self.awaits_data_plane(state) {
            return Ok(());
        }
        let mut defects = Vec::new();
        let read_before = std::mem::take(&mut self.passwords);
        for router in &policy.spec.routers {
            let mut offered =
                routes::offered_prefixes(router, &state.plane, self.settings.no_backends);
            if withdraws {
                offered.iter_mut().for_each(BTreeMap::clear);
            }
            let kinds = self.apply_router(router, &offered, state).into_iter();
            let local_asn = router.local_asn;
            defects.extend(kinds.map(|kind| Defect { local_asn, kind }));
        }
        let routers = &policy.spec.routers;
        let configured = |asn: u32| routers.iter().any(|router| router.local_asn == asn);
        for key in self.peer_keys(|key| !configured(key.local_asn)) {
            self.remove(key, Stop::Deconfigured);
        }
        self.routers.retain(|asn, _| configured(*asn));
        self.log_unreadable_keys(&read_before);
        self.first_policy = false;
        if state.plane.complete {
            self.speaker.complete();
        }
        if defects.is_empty() { Ok(()) } else { Err(PolicyDefects(defects)) }
    }

    fn next_due(&self) -> Option<Instant> {
        self.due
    }

    fn withdraw(&mut self) -> bool {
        for (key, running) in &mut self.peers {
            if !running.table.routes.is_empty() {
                (running.table, running.since) = (Arc::default(), BTreeMap::new());
                self.speaker.set_routes(*key, &running.table);
            }
        }
        !self.peers.is_empty()
    }

    fn is_withdrawn(&self) -> bool {
        self.peers.values().all(|running| running.table.routes.is_empty())
            && self.speaker.all_sent()
    }

    fn end(&mut self, mode: ShutdownMode) {
        self.remove_all(&mode.stop_reason());
    }
}

#[cfg(test)]
mod tests;
