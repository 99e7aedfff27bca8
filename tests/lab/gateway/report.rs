//! What the emulated gateway saw, in numbers and in words.

use serde::Serialize;
use std::collections::BTreeMap;

/// One thing that must hold for every packet that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The frame, the IPv4 header and the UDP header are whole, their lengths agree, and the IPv4
    /// header's checksum is right.
    OuterHeader,
    /// The outer source is the appliance that was asked, the destination the node that asked.
    OuterAddresses,
    /// Both UDP ports are as the appliance received them.
    UdpPorts,
    /// The UDP checksum is 0 or right.
    UdpChecksum,
    /// The GENEVE header is that of the packet that is answered: version, flags, length, VNI 0,
    /// and the inner protocol that follows.
    GeneveHeader,
    /// The options are those of the packet that is answered, byte for byte; for a packet that a
    /// backend sent, the flow's latest.
    Options,
    /// A returned packet is the one that was sent, byte for byte.
    InnerBytes,
    /// An answer's own checksums are right.
    InnerChecksum,
    /// A packet came back more often than it was sent.
    Duplicate,
    /// A packet that had to come back did not, in the time allowed.
    Lost,
    /// Something came to a node that belongs to no flow which the gateway ever sent.
    Unexpected,
    /// A packet of a flow to be answered was returned as if no service wanted it, or the reverse.
    Direction,
}

/// How often a check failed, and how it looked the first times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// How often.
    pub count: u64,
    /// The first three, in words.
    pub examples: Vec<String>,
}

/// The gateway's account of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Packets taken from the clients' side and sent to an appliance.
    pub sent: u64,
    /// Packets that came back as they were sent.
    pub returned: u64,
    /// Packets that came as the other direction of a flow: a backend's, or the appliance's own.
    pub answered: u64,
    /// Packets handed on to a client or server.
    pub delivered: u64,
    /// Packets not sent: larger than the gateway takes (AWS drops these without a word as well).
    pub too_big: u64,
    /// Packets not sent: not IP, multicast (a kernel's chatter), or not taken by the system.
    pub not_sent: u64,
    /// Packets not sent: there was no appliance to send them to.
    pub held: u64,
    /// Packets checked and right, which the client's or server's side did not take.
    pub not_delivered: u64,
    /// Flows, counted by direction.
    pub flows: u64,
    /// How often a flow's cookie was changed while it lived.
    pub cookies_changed: u64,
    /// How often a flow moved to another gateway node while it lived.
    pub nodes_changed: u64,
    /// Answers that carried options or addresses which the flow had just before: right at the time
    /// when the appliance sent them.
    pub answered_with_former: u64,
    /// Sent packets whose return is still awaited.
    pub awaited: u64,
    /// Failed checks.
    pub failures: BTreeMap<Check, Failure>,
}

impl Report {
    /// Counts a failed check; `example` is asked for only while there is room.
    pub fn fail(&mut self, check: Check, example: impl FnOnce() -> String) {
        let failure = self.failures.entry(check).or_default();
        failure.count += 1;
        if failure.examples.len() < 3 {
            failure.examples.push(example());
        }
    }

    /// How often `check` failed.
    pub fn failed(&self, check: Check) -> u64 {
        self.failures.get(&check).map_or(0, |failure| failure.count)
    }

    /// Nothing failed.
    pub fn clean(&self) -> bool {
        self.failures.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "sent {}, came back as sent {}, answered {}, handed on {}; {} flows, \
             {} cookie changes, {} node changes",
            self.sent,
            self.returned,
            self.answered,
            self.delivered,
            self.flows,
            self.cookies_changed,
            self.nodes_changed
        )?;
        let odd = [
            ("larger than the gateway takes", self.too_big),
            ("not sent", self.not_sent),
            ("without an appliance", self.held),
            ("not handed on", self.not_delivered),
            ("answered with a flow's former options", self.answered_with_former),
            ("still awaited", self.awaited),
        ];
        for (words, count) in odd.into_iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "  {words}: {count}")?;
        }
        if self.clean() {
            return writeln!(f, "  every packet that came back was right, byte by byte");
        }
        for (check, failure) in &self.failures {
            writeln!(f, "  WRONG {check:?}: {} times", failure.count)?;
            failure.examples.iter().try_for_each(|e| writeln!(f, "    {e}"))?;
        }
        Ok(())
    }
}
