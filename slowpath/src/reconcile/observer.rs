//! Events of the data plane and of services, found by comparison with the last observation:
//! slowpath is not notified of them, but reads the shared memory and the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use state::backend::new_flow_state;
use state::name::Name;
use state::tables::{Entry, Tables};
use tables::region::{Label, Region, Role};

use crate::control::report::{Lcore, NicReport};
use crate::start::Previous;

/// Interval at which services are examined if the tables have changed.
const SERVICES_INTERVAL: Duration = Duration::from_secs(1);

/// What was observed last.
#[derive(Default)]
pub(crate) struct Observer {
    /// Epoch and program of the data plane that was attached last, also before this slowpath.
    last_attached: Option<(u64, String)>,
    /// Whether the history of events has lost its oldest records. A start or a NIC incident of
    /// which it has no record may then have been reported, and is not reported again.
    is_cut: bool,
    /// Epoch of the data plane that is attached at present.
    attached: Option<u32>,
    /// Whether this process has observed the data plane before.
    has_observed: bool,
    /// Lcores that have polled since the data plane was attached. Others have not begun yet.
    polled: BTreeSet<u32>,
    /// Lcores of `polled` that do not poll now.
    stalled: BTreeSet<u32>,
    /// Counts of NIC incidents by arm.
    incidents: BTreeMap<String, BTreeMap<String, u64>>,
    nics: BTreeMap<String, NicView>,
    /// Revision of the tables that were examined last, and when.
    examined: Option<(u64, Instant)>,
    /// Services, and whether each has a usable backend.
    usable: BTreeMap<Name, bool>,
}

/// The NIC of an arm as observed last.
#[derive(Default)]
struct NicView {
    state: String,
    link_up: bool,
}

impl Observer {
    /// Creates the state from what the history has of the data plane.
    pub(crate) fn new(previous: &Previous) -> Observer {
        Observer {
            last_attached: previous.attached.clone(),
            is_cut: previous.is_cut,
            incidents: previous.incidents.clone(),
            ..Observer::default()
        }
    }

    /// Compares the data plane with the last observation.
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
            self.polled.clear();
            self.stalled.clear();
        }
        let tick = |id: u32| region.lcores().get(id as usize).map_or(0, |lcore| lcore.tick());
        let polling = lcores.iter().filter(|lcore| lcore.polling && tick(lcore.id) > 0);
        self.polled.extend(polling.map(|lcore| lcore.id));
        let stalled = lcores.iter().filter(|lcore| !lcore.polling).map(|lcore| lcore.id);
        let stalled: BTreeSet<u32> = stalled.filter(|id| self.polled.contains(id)).collect();
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
        self.has_observed = true;
    }

    fn attach(&mut self, epoch: u32, program: String) {
        let before = self.last_attached.replace((epoch.into(), program.clone()));
        let Some(starts) = starts(before.as_ref().map(|(epoch, _)| *epoch), epoch, self.is_cut)
        else {
            return;
        };
        let before = before.map_or_else(|| program.clone(), |(_, program)| program);
        let unobserved = !self.has_observed;
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
        let (arm, port) = (&nic.arm, &nic.port);
        let before = self.incidents.insert(arm.clone(), nic.events.clone());
        let incidents = new_incidents(before.as_ref(), &nic.events, self.is_cut);
        if !incidents.is_empty() {
            let totals = counts_text(nic.events.iter().map(|(kind, count)| (kind, *count)));
            tracing::warn!(
                event = "nic_incidents",
                arm,
                port,
                incidents,
                totals,
                unobserved = !self.has_observed,
                "NIC incidents counted"
            );
        }
        let view = self.nics.entry(arm.clone()).or_default();
        let was_running = view.state == "running" || view.state.is_empty();
        if nic.state == "running" && !was_running {
            tracing::info!(event = "nic_running", arm, port, "NIC runs");
        } else if nic.state != "running" && nic.state != view.state {
            let (state, detail) = (&nic.state, &nic.detail);
            tracing::warn!(event = "nic_degraded", arm, port, state, detail, "NIC degraded");
        }
        if view.link_up && !nic.link_up {
            tracing::warn!(event = "link_down", arm, port, "link down");
        } else if !view.link_up && nic.link_up && !view.state.is_empty() {
            tracing::info!(event = "link_up", arm, port, "link up");
        }
        view.state.clone_from(&nic.state);
        view.link_up = nic.link_up;
    }

    /// Compares the services' usable backends with the last observation. The first observation
    /// reports nothing: the services may have been like that before slowpath started.
    pub(super) fn observe_backends(&mut self, tables: &Tables, now: Instant) {
        let is_first = self.examined.is_none();
        if self.examined.is_some_and(|(revision, at)| {
            revision == tables.revision() || now < at + SERVICES_INTERVAL
        }) {
            return;
        }
        self.examined = Some((tables.revision(), now));
        let entries = tables.entries().filter(|(_, entry)| entry.service.is_some());
        let is_usable = |entry: &Entry| new_flow_state(entry.used().map(|one| &**one)).is_some();
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

/// Returns how often a data plane was started since the epoch `last`; `None` if not at all, or if
/// that is not known because the history is cut.
fn starts(last: Option<u64>, epoch: u32, is_cut: bool) -> Option<u64> {
    let epoch = u64::from(epoch);
    let starts = match last {
        // A new region counts from the beginning.
        Some(last) => epoch.checked_sub(last).unwrap_or(epoch),
        None if is_cut => 0,
        None => epoch,
    };
    (starts > 0).then_some(starts)
}

/// Returns the incidents since the counts `before`, as text; empty if there are none, or if they
/// are not known because the history is cut.
fn new_incidents(
    before: Option<&BTreeMap<String, u64>>,
    now: &BTreeMap<String, u64>,
    is_cut: bool,
) -> String {
    if before.is_none() && is_cut {
        return String::new();
    }
    let increases = now.iter().map(|(kind, count)| {
        let before = before.and_then(|before| before.get(kind)).copied().unwrap_or_default();
        // A new region counts from the beginning.
        (kind, count.checked_sub(before).unwrap_or(*count))
    });
    counts_text(increases.filter(|(_, more)| *more > 0))
}

fn counts_text<'a>(counts: impl Iterator<Item = (&'a String, u64)>) -> String {
    counts.map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use tables::layout::Sizes;

    use super::*;

    #[test]
    fn starts_are_counted_from_the_last_known_epoch() {
        assert_eq!(starts(Some(4), 6, false), Some(2));
        assert_eq!(starts(Some(4), 4, false), None);
        assert_eq!(starts(Some(4), 1, true), Some(1), "a new region");
        assert_eq!(starts(None, 3, false), Some(3));
        assert_eq!(starts(None, 3, true), None, "the record of the last start was removed");
    }

    #[test]
    fn an_lcore_is_stalled_only_after_it_has_polled() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let mut observer = Observer::default();
        let mut is_stalled = |polling| {
            observer.observe(&region, &[Lcore { polling, ..Lcore::default() }], &[]);
            !observer.stalled.is_empty()
        };
        // Its tick is 0: it has joined and not polled yet.
        assert!(!is_stalled(true) && !is_stalled(false));
        region.lcores()[0].count_iteration();
        assert!(!is_stalled(true));
        assert!(is_stalled(false));
        assert!(!is_stalled(true));
    }

    #[test]
    fn incidents_are_counted_from_the_last_known_counts() {
        let counts = |reset, removal| {
            BTreeMap::from([("reset".to_owned(), reset), ("removal".to_owned(), removal)])
        };
        assert_eq!(new_incidents(Some(&counts(1, 2)), &counts(3, 2), true), "reset=2");
        assert_eq!(new_incidents(Some(&counts(9, 9)), &counts(1, 0), true), "reset=1");
        assert_eq!(new_incidents(None, &counts(1, 2), false), "removal=2 reset=1");
        assert_eq!(new_incidents(None, &counts(1, 2), true), "", "their record was removed");
    }
}
