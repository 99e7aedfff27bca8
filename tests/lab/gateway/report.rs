//! The results of the emulated gateway, as numbers and as text.

use serde::Serialize;
use std::collections::BTreeMap;

/// A condition that the gateway checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Frame, IPv4 header and UDP header are complete, their lengths agree, and the IPv4 header's
    /// checksum is correct.
    OuterHeader,
    /// The outer source is the appliance that the packet was sent to, the destination the node
    /// that sent it.
    OuterAddresses,
    /// Both UDP ports are those that the appliance received.
    UdpPorts,
    /// The UDP checksum is 0 or correct.
    UdpChecksum,
    /// The GENEVE header is that of a sent packet: version, flags, length, VNI 0, and the protocol
    /// type of the inner packet.
    GeneveHeader,
    /// A returned packet has the options that it was sent with, byte for byte. An answer has the
    /// flow's latest options or, shortly after a change, the previous ones.
    Options,
    /// A returned packet equals the one that was sent, byte for byte.
    InnerBytes,
    /// The checksums of an answer are correct.
    InnerChecksum,
    /// No packet returns more often than it was sent.
    Duplicate,
    /// Every packet that has to return does so within
    /// [`GatewaySetup::return_timeout`](super::GatewaySetup::return_timeout).
    Lost,
    /// Every packet that arrives at a node belongs to a flow of the gateway.
    Unexpected,
    /// Packets of a flow that a service answers do not return, and packets of a flow that
    /// matches no service are not answered.
    Direction,
}

/// The failures of one check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The number of failures.
    pub count: u64,
    /// Descriptions of the first three.
    pub examples: Vec<String>,
}

/// The counters of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Packets read from a side and sent to an appliance.
    pub sent: u64,
    /// Packets that returned unchanged.
    pub returned: u64,
    /// Packets of the other direction of a flow: from a backend, or from the appliance itself.
    pub answered: u64,
    /// Packets delivered to a client or server.
    pub delivered: u64,
    /// Packets not sent: longer than
    /// [`GatewaySetup::largest_inner`](super::GatewaySetup::largest_inner). AWS drops these without
    /// an ICMP error as well.
    pub too_big: u64,
    /// Packets not sent: not IP, multicast (the kernel's own), or not accepted by the kernel.
    pub not_sent: u64,
    /// Packets not sent: the gateway admits none, or only packets of existing flows
    /// ([`Admits`](super::Admits)).
    pub not_admitted: u64,
    /// Correct packets that the client's or server's TUN device did not accept.
    pub not_delivered: u64,
    /// Flows; each direction counts as one.
    pub flows: u64,
    /// Cookie changes of live flows.
    pub cookies_changed: u64,
    /// Moves of live flows to another gateway node.
    pub nodes_changed: u64,
    /// Answers with the flow's former options or addresses, which were the latest when the
    /// appliance sent the answer.
    pub answered_with_former: u64,
    /// Sent packets whose return is awaited.
    pub awaited: u64,
    /// Failed checks.
    pub failures: BTreeMap<Check, Failure>,
}

impl Report {
    /// Counts a failed check; `example` is called only while fewer than three are stored.
    pub fn fail(&mut self, check: Check, example: impl FnOnce() -> String) {
        let failure = self.failures.entry(check).or_default();
        failure.count += 1;
        if failure.examples.len() < 3 {
            failure.examples.push(example());
        }
    }

    /// Returns the number of failures of `check`.
    pub fn failed(&self, check: Check) -> u64 {
        self.failures.get(&check).map_or(0, |failure| failure.count)
    }

    /// Returns whether no check failed.
    pub fn clean(&self) -> bool {
        self.failures.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "sent {}, returned unchanged {}, answered {}, delivered {}; {} flows, {} cookie \
             changes, {} node changes",
            self.sent,
            self.returned,
            self.answered,
            self.delivered,
            self.flows,
            self.cookies_changed,
            self.nodes_changed
        )?;
        let anomalies = [
            ("larger than the gateway's MTU", self.too_big),
            ("not sent", self.not_sent),
            ("not admitted", self.not_admitted),
            ("not delivered", self.not_delivered),
            ("answered with a flow's former options", self.answered_with_former),
            ("still awaited", self.awaited),
        ];
        for (label, count) in anomalies.into_iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "  {label}: {count}")?;
        }
        if self.clean() {
            return writeln!(f, "  no check failed");
        }
        for (check, failure) in &self.failures {
            writeln!(f, "  FAILED {check:?}: {} times", failure.count)?;
            failure.examples.iter().try_for_each(|e| writeln!(f, "    {e}"))?;
        }
        Ok(())
    }
}
