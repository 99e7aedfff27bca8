//! Events of the data plane and of services, found by comparing with the last look: slowpath sees
//! both through shared memory and tables only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use config::services::BackendState;
use events::history::history;
use state::name::Name;
use state::tables::{Entry, Tables};
use tables::region::{Label, Region, Role};

use crate::control::report::{Lcore, NicReport};

/// Interval at which services are examined if the tables have changed.
const SERVICES_INTERVAL: Duration = Duration::from_secs(1);

/// What the last look found.
#[derive(Default)]
pub(super) struct Observer {
    /// Epoch and program of the data plane that was attached last, also before this slowpath.
    last_attached: Option<(u64, String)>,
    /// Epoch of the data plane that is attached.
    attached: Option<u32>,
    /// Whether a look has ended.
    has_looked: bool,
    stalled: BTreeSet<u32>,
    nics: BTreeMap<String, NicView>,
    /// Revision of the tables that were examined last, and when.
    examined: Option<(u64, Instant)>,
    /// Services, and whether each has a usable backend.
    usable: BTreeMap<Name, bool>,
}

/// The NIC of an arm at the last look.
#[derive(Default)]
struct NicView {
    state: String,
    link_up: bool,
    events: BTreeMap<String, u64>,
}

impl Observer {
    /// Creates the state from what the history has of the data plane.
    pub(super) fn new() -> Observer {
        let mut observer = Observer::default();
        let Some(mut reader) = history().and_then(|history| history.reader()) else {
            return observer;
        };
        // What cannot be read is reported by the thread that writes.
        let _ = reader.read(&mut |record| {
            let text = |name: &str| record.fields.get(name).and_then(|value| value.as_str());
            match record.event.as_str() {
                "data_plane_attached" => {
                    let epoch = record.fields.get("epoch").and_then(|epoch| epoch.as_u64());
                    let program = text("program").unwrap_or_default().to_owned();
                    observer.last_attached = epoch.map(|epoch| (epoch, program));
                }
                "nic_incidents" => {
                    let (arm, totals) = (text("arm"), text("totals"));
                    let view = observer.nics.entry(arm.unwrap_or_default().to_owned());
                    view.or_default().events = parse_totals(totals.unwrap_or_default());
                }
                _ => {}
            }
            true
        });
        observer
    }

    /// Compares the data plane with the last look.
    pub(super) fn observe(&mut self, region: &Region, lcores: &[Lcore], nics: &[NicReport]) {
        let epoch = (!lcores.is_empty()).then(|| region.epoch(Role::Fastpath));
        if self.attached != epoch {
            match (epoch, self.attached) {
                (Some(epoch), _) => self.attach(epoch, region.label(Label::Fastpath)),
                (None, Some(epoch)) => {
                    tracing::warn!(event = "data_plane_gone", epoch, "data plane gone");
                }
                (None, None) => {}
            }
            self.attached = epoch;
            // The lcores of another data plane have not polled yet.
            self.stalled = stalled(lcores);
        }
        let stalled = stalled(lcores);
        for lcore in stalled.difference(&self.stalled) {
            tracing::warn!(event = "lcore_stalled", lcore, "lcore does not poll");
        }
        for lcore in self.stalled.difference(&stalled) {
            tracing::info!(event = "lcore_polls", lcore, "lcore polls again");
        }
        self.stalled = stalled;
        for nic in nics.iter().filter(|nic| nic.state != "unknown") {
            self.observe_nic(nic);
        }
        self.has_looked = true;
    }

    fn attach(&mut self, epoch: u32, program: String) {
        let before = self.last_attached.replace((epoch.into(), program.clone()));
        let (last, before) = before.unwrap_or((0, program.clone()));
        // A new region counts from the beginning.
        let starts = u64::from(epoch).checked_sub(last).unwrap_or(u64::from(epoch));
        if starts == 0 {
            return;
        }
        let unobserved = !self.has_looked;
        tracing::info!(
            event = "data_plane_attached",
            epoch,
            program,
            starts,
            unobserved,
            "data plane attached"
        );
        if before != program {
            let (program, from, to) = ("data plane", before, program);
            tracing::info!(event = "version_changed", program, from, to, "version changed");
        }
    }

    fn observe_nic(&mut self, nic: &NicReport) {
        let is_first = !self.has_looked;
        let view = self.nics.entry(nic.arm.clone()).or_default();
        let (arm, port) = (&nic.arm, &nic.port);
        let increase = |(kind, count): (&String, &u64)| {
            let before = view.events.get(kind).copied().unwrap_or_default();
            // A new region counts from the beginning.
            let more = count.checked_sub(before).unwrap_or(*count);
            (more > 0).then(|| format!("{kind}={more}"))
        };
        let incidents: Vec<String> = nic.events.iter().filter_map(increase).collect();
        if !incidents.is_empty() {
            let (incidents, totals) = (incidents.join(" "), totals_text(&nic.events));
            tracing::warn!(
                event = "nic_incidents",
                arm,
                port,
                incidents,
                totals,
                unobserved = is_first,
                "NIC incidents counted"
            );
        }
        let was_running = view.state == "running" || view.state.is_empty();
        if nic.state == "running" && !was_running {
            tracing::info!(event = "nic_running", arm, port, "NIC runs");
        } else if nic.state != "running" && nic.state != view.state {
            let (state, detail) = (&nic.state, &nic.detail);
            tracing::warn!(event = "nic_trouble", arm, port, state, detail, "NIC is in trouble");
        }
        if view.link_up && !nic.link_up {
            tracing::warn!(event = "link_down", arm, port, "link down");
        } else if !view.link_up && nic.link_up && !view.state.is_empty() {
            tracing::info!(event = "link_up", arm, port, "link up");
        }
        view.state.clone_from(&nic.state);
        view.link_up = nic.link_up;
        view.events.clone_from(&nic.events);
    }

    /// Compares the services' usable backends with the last look. The first look reports nothing:
    /// the services may have been like that before slowpath started.
    pub(super) fn observe_backends(&mut self, tables: &Tables, now: Instant) {
        let is_first = self.examined.is_none();
        if self.examined.is_some_and(|(revision, at)| {
            revision == tables.revision() || now < at + SERVICES_INTERVAL
        }) {
            return;
        }
        self.examined = Some((tables.revision(), now));
        let entries = tables.entries().filter(|(_, entry)| entry.service.is_some());
        let usable: BTreeMap<Name, bool> =
            entries.map(|(name, entry)| (name.clone(), is_usable(entry))).collect();
        for (service, is_usable) in &usable {
            match (self.usable.get(service).copied().unwrap_or(true), *is_usable) {
                (true, false) if !is_first => {
                    tracing::warn!(
                        event = "backends_empty",
                        %service,
                        "service has no usable backend"
                    );
                }
                (false, true) => tracing::info!(
                    event = "backends_usable",
                    %service,
                    "service has usable backends again"
                ),
                _ => {}
            }
        }
        self.usable = usable;
    }
}

fn stalled(lcores: &[Lcore]) -> BTreeSet<u32> {
    lcores.iter().filter(|lcore| !lcore.polling).map(|lcore| lcore.id).collect()
}

/// Returns whether a service has a backend that gets new flows.
fn is_usable(entry: &Entry) -> bool {
    entry.used().any(|instance| {
        let serves = matches!(instance.state, BackendState::Active | BackendState::Terminating);
        serves && instance.weight > 0 && !instance.health.unhealthy
    })
}

fn totals_text(events: &BTreeMap<String, u64>) -> String {
    let each = events.iter().map(|(kind, count)| format!("{kind}={count}"));
    each.collect::<Vec<_>>().join(" ")
}

fn parse_totals(text: &str) -> BTreeMap<String, u64> {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(kind, count)| Some((kind.to_owned(), count.parse().ok()?))).collect()
}
