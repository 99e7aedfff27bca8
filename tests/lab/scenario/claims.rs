//! The statements that a run of the main scenario proves or refutes.

use super::{ClientStats, Outcome};
use crate::lab::gateway::Check;
use crate::lab::plane::Plane;

/// A statement, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whether it holds.
    pub holds: bool,
    /// The statement, with its numbers.
    pub text: String,
}

/// Drop reasons of packets that the namespaces' kernels send without a client, server or gateway.
const KERNEL_PACKETS: [&str; 2] = ["foreign_dst_mac", "no_matching_service"];

/// The maximum number of ARP requests and neighbor solicitations that the appliance's kernel may
/// send with XDP; each of its other frames answers a frame that was passed to it.
const MAX_SOLICITATIONS: u64 = 64;

impl Outcome {
    /// Returns the results of the client with this name.
    fn stats(&self, name: &str) -> ClientStats {
        let client = self.clients.iter().find(|(client, _)| *client == name);
        client.map(|(_, stats)| stats.clone()).unwrap_or_default()
    }

    /// Returns all statements, whether they hold or not.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        let mut claim = |holds: bool, text: String| claims.push(Claim { holds, text });
        for (name, cloud) in [("aws", "AWS"), ("azure", "Azure")] {
            let (web, steady) = (self.stats(name), self.stats(&format!("{name}-steady")));
            let right = web.right + steady.right;
            let failed = web.failed + steady.failed;
            let connections = web.connections + steady.connections;
            claim(
                failed == 0 && right > 0,
                format!(
                    "{right} HTTP requests to the service through the {cloud} gateway had correct \
                     responses (every byte compared) on {connections} connections; {failed} failed"
                ),
            );
            let beyond = self.stats(&format!("{name}-beyond"));
            let (right, failed) = (beyond.right, beyond.failed);
            let only = beyond.by_backend.keys().eq([&format!("beyond-{name}")]);
            claim(
                failed == 0 && right > 0 && only,
                format!(
                    "{right} requests through the {cloud} gateway that match no service were \
                     returned to it and reached their server; {failed} failed"
                ),
            );
        }
        self.gateway_claims(&mut claim);
        self.change_claims(&mut claim);
        self.packet_claims(&mut claim);
        let text = "both daemons ended in time and with status 0 on SIGTERM";
        claim(self.shutdown_error.is_none(), self.shutdown_error.clone().unwrap_or(text.into()));
        claims
    }

    fn gateway_claims(&self, claim: &mut impl FnMut(bool, String)) {
        let gateway = &self.gateway;
        let wrong: u64 = gateway.failures.values().map(|failure| failure.count).sum();
        claim(
            gateway.clean() && gateway.returned > 0 && gateway.answered > 0,
            format!(
                "the AWS gateway sent {} packets, changed cookies {} times and nodes {} times; {} \
                 returned unchanged and {} answers had the options of their flow; {wrong} were \
                 wrong, {} of them lost",
                gateway.sent,
                gateway.cookies_changed,
                gateway.nodes_changed,
                gateway.returned,
                gateway.answered,
                gateway.failed(Check::Lost)
            ),
        );
    }

    fn change_claims(&self, claim: &mut impl FnMut(bool, String)) {
        let connections: u64 = self.clients.iter().map(|(_, stats)| stats.connections).sum();
        let moved: u64 = self.clients.iter().map(|(_, stats)| stats.moved).sum();
        claim(
            moved == 0,
            format!(
                "the backend set changed twice under load (in force on all lcores after {:.0?} and \
                 {:.0?}); flows moved {moved} times on {connections} connections",
                self.change_took[0], self.change_took[1]
            ),
        );
        let fourth: u64 = self.clients.iter().filter_map(|(_, s)| s.by_backend.get("web-4")).sum();
        claim(fourth > 0, format!("the added backend web-4 served {fourth} requests"));
        claim(
            self.late_connections == 0 && self.later_requests > 0,
            format!(
                "web-1, terminating, served {} more requests on its connections and received {} \
                 new connections",
                self.later_requests, self.late_connections
            ),
        );
    }

    fn packet_claims(&self, claim: &mut impl FnMut(bool, String)) {
        let (entered, left) = self.totals.sides();
        claim(
            entered == left && entered > 0,
            format!("every packet is accounted for: {}", self.totals),
        );
        let (wires, totals) = (&self.wires, &self.totals);
        // With XDP the kernel uses the NIC as well, and sends ARP requests and answers.
        let own = wires.from_weir.wrapping_sub(totals.tx);
        let by_xdp = Plane::from_env().is_xdp();
        let max = if by_xdp { totals.to_kernel + MAX_SOLICITATIONS } else { 0 };
        let share = if by_xdp { format!(", {own} of them by the kernel") } else { "".into() };
        claim(
            wires.to_weir == totals.rx && own <= max,
            format!(
                "the kernel's counters at the far ends of the wires agree: {} to Weir, {} from \
                 it{share}",
                wires.to_weir, wires.from_weir
            ),
        );
        let by_kernel = |name: &str| KERNEL_PACKETS.iter().any(|reason| name.starts_with(reason));
        let drops: Vec<String> =
            totals.drops.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let drops = if drops.is_empty() { "none".into() } else { drops.join(", ") };
        claim(
            totals.drops.iter().all(|(name, _)| by_kernel(name)),
            format!("no packet of a client, server or gateway was dropped (drops: {drops})"),
        );
    }
}
