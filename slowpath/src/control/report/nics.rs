//! The arms' NICs as the data plane publishes them, for `GET /nics` and `GET /status`.

use std::collections::BTreeMap;

use host::driver::Counter;
use serde::{Deserialize, Serialize};
use state::text::ARMS;
use tables::counters::ArmCounter;
use tables::nic::{Nic, NicCounters, NicState, XdpLoss};
use tables::region::Region;

/// The NIC of one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NicReport {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Name of the port or interface.
    pub port: String,
    /// Name of the driver.
    pub driver: String,
    /// `running`, `resetting`, `removed`, or `unknown` before a data plane has published it.
    pub state: String,
    /// Why the NIC is not running; empty if it is.
    pub detail: String,
    /// Whether the link is up.
    pub link_up: bool,
    /// Speed of the link in Mbit/s; 0 if unknown.
    pub speed_mbps: u32,
    /// MAC address.
    pub mac: String,
    /// Number of receive queues.
    pub rx_queues: u16,
    /// Age of the counters in milliseconds.
    pub age_ms: u64,
    /// Frames that reached the NIC: received and missed ones, and those with errors or without a
    /// buffer if the driver does not count these among the received ones.
    pub arrived: u64,
    /// Frames that the lcores took from the NIC.
    pub taken: u64,
    /// Counters that all drivers have, and losses behind the XDP programs that the kernel reports,
    /// by name, as in the metrics.
    pub counters: BTreeMap<String, u64>,
    /// Number of incidents by kind, as in the metrics.
    pub events: BTreeMap<String, u64>,
    /// All counters of the driver, by its own names; only in `GET /nics`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub driver_counters: BTreeMap<String, u64>,
}

impl NicReport {
    /// Returns a counter that all drivers have, or 0 if no data plane has published it.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    /// Returns what the NIC lost, by kind: name, count and meaning, without zeros. Weir counts
    /// packets that were lost after it sent them as sent, and not as dropped.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        const LOSSES: [&str; 4] =
            ["missed_packets", "receive_errors", "send_errors", "no_buffer_events"];
        let named = NicCounters::default().named().filter(|(name, ..)| LOSSES.contains(name));
        let xdp = XdpLoss::ALL.map(|loss| (loss.name(), loss.help()));
        named
            .map(|(name, help, _)| (name, help))
            .chain(xdp)
            .map(|(name, help)| (name, self.counter(name), help))
            .filter(|(_, count, _)| *count > 0)
    }

    /// Returns how many packets the kernel lost behind the XDP programs.
    pub fn xdp_losses(&self) -> u64 {
        XdpLoss::ALL.iter().map(|loss| self.counter(loss.name())).sum()
    }

    fn of(region: &Region, number: usize, arm: &str, nic: &Nic) -> NicReport {
        NicReport {
            arm: arm.to_owned(),
            port: nic.port.clone(),
            driver: nic.driver.clone(),
            state: nic.state.as_str().to_owned(),
            detail: nic.detail.clone(),
            link_up: nic.link_up,
            speed_mbps: nic.speed_mbps,
            mac: nic.mac.map(|byte| format!("{byte:02x}")).join(":"),
            rx_queues: nic.rx_queues,
            age_ms: region.now_ms().saturating_sub(nic.updated_ms),
            arrived: arrived(nic),
            taken: region
                .counters()
                .sum(|page| page.arm_count(number as u8, ArmCounter::RxPackets)),
            counters: XdpLoss::ALL
                .iter()
                .zip(nic.xdp_losses)
                .filter_map(|(loss, count)| Some((loss.name(), count?)))
                .chain(nic.counters.named().map(|(name, _, count)| (name, count)))
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            events: nic.events.named().map(|(name, _, count)| (name.to_owned(), count)).collect(),
            driver_counters: nic.xstats.iter().cloned().collect(),
        }
    }
}

/// Returns the number of frames that reached a NIC: the sum of those of its counters that do not
/// overlap, which depends on the driver.
fn arrived(nic: &Nic) -> u64 {
    let counters = &nic.counters;
    let of = |counter: &Counter| match counter {
        Counter::Received => counters.received,
        Counter::Missed => counters.missed,
        Counter::Errors => counters.receive_errors,
        Counter::NoBuffer => counters.no_buffer,
    };
    let usual = [Counter::Received, Counter::Missed, Counter::Errors];
    let frames = host::driver::by_name(&nic.driver).map_or(&usual[..], |d| d.counters.frames);
    frames.iter().map(of).sum()
}

/// Returns the NICs of the first `arms` arms. A NIC that is being published is omitted.
pub fn nics(region: &Region, arms: usize) -> Vec<NicReport> {
    let all = ARMS.iter().enumerate().take(arms);
    all.filter_map(|(number, arm)| {
        Some(NicReport::of(region, number, arm, &region.nics().read(number)?))
    })
    .collect()
}

/// Returns why the link of an arm is down, if its NIC was removed or is being reset.
pub fn trouble(region: &Region, arm: usize) -> Option<String> {
    let nic = region.nics().read(arm)?;
    match nic.state {
        NicState::Resetting | NicState::Removed => {
            Some(format!("its NIC {} is {}: {}", nic.port, nic.state.as_str(), nic.detail))
        }
        NicState::Unknown | NicState::Running => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::layout::Sizes;

    #[test]
    fn loss_before_the_lcores_is_part_of_what_arrived() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let counters =
            NicCounters { received: 90, missed: 8, receive_errors: 2, ..NicCounters::default() };
        let xstats = vec![("rx_q0_errors".to_owned(), 2)];
        let nic = Nic { counters, xstats, state: NicState::Running, ..Nic::default() };
        region.nics().publish(0, &nic);
        region.counters().lcore(1).unwrap().arm(0, ArmCounter::RxPackets, 90);
        let [ingress, egress] = nics(&region, 2).try_into().unwrap();
        assert_eq!((ingress.arrived, ingress.taken), (100, 90));
        assert_eq!((ingress.counter("missed_packets"), ingress.state.as_str()), (8, "running"));
        let lost: Vec<_> = ingress.losses().map(|(name, count, _)| (name, count)).collect();
        assert_eq!(lost, [("missed_packets", 8), ("receive_errors", 2)]);
        assert_eq!(ingress.driver_counters["rx_q0_errors"], 2);
        assert_eq!((egress.state.as_str(), egress.arrived), ("unknown", 0));
        assert_eq!(nics(&region, 1).len(), 1);
        // Losses behind the XDP programs are listed, if the kernel reports them.
        assert!(!ingress.counters.contains_key("xdp_aborted"));
        let xdp_losses = [Some(3), Some(0), Some(4), None];
        region.nics().publish(0, &Nic { xdp_losses, ..nic.clone() });
        let [ingress] = nics(&region, 1).try_into().unwrap();
        assert_eq!((ingress.arrived, ingress.xdp_losses()), (100, 7));
        let lost: Vec<_> = ingress.losses().skip(2).map(|(name, count, _)| (name, count)).collect();
        assert_eq!(lost, [("xdp_redirects_refused", 3), ("xdp_sends_dropped", 4)]);
        assert_eq!(ingress.counters.get("xdp_redirects_dropped"), Some(&0));
        assert!(!ingress.counters.contains_key("xdp_aborted"));
        // ENA counts frames with errors among the received ones.
        region.nics().publish(0, &Nic { driver: "net_ena".into(), ..nic.clone() });
        assert_eq!(nics(&region, 1)[0].arrived, 98);
        assert_eq!(trouble(&region, 0), None);
        let detail = "it is being removed".to_owned();
        let port = "0000:00:06.0".to_owned();
        region.nics().publish(0, &Nic { state: NicState::Removed, detail, port, ..nic });
        let text = trouble(&region, 0).unwrap();
        assert_eq!(text, "its NIC 0000:00:06.0 is removed: it is being removed");
    }
}
