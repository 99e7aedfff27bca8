//! Text of the explanation: names of the objects that were found.

use packet::addr::Addr;
use packet::ip::{Fragment, Ip};
use packet::tunnel::Outer;
use tables::flow::{GatewayLeg, NO_TUNNEL};
use tables::next_hop::NextHop;
use tables::reason::DropReason;
use tables::record::{BackendState, FrontendKey, TunnelKind};

use super::{Arrival, Reply, Trace, Verdict};
use crate::explanation::Explanation;
use state::text::service_of;
use state::text::{ARMS, address_port, protocol_text};

fn pair(addr: &Addr, port: u16) -> String {
    address_port(&addr.to_string(), port)
}

fn mac_text(mac: &[u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

pub(super) fn arm_text(arm: u8) -> &'static str {
    ARMS[usize::from(arm & 1)]
}

fn packet_text(ip: &Ip) -> String {
    let ends = format!("{} -> {}", pair(&ip.src, ip.sport), pair(&ip.dst, ip.dport));
    let part = match ip.fragment {
        Fragment::Whole => "",
        Fragment::First => ", first fragment",
        Fragment::Later => ", later fragment",
    };
    format!("{} {ends}{part}", protocol_text(ip.proto))
}

/// Returns whether a frontend matches the packet.
fn frontend_matches(key: &FrontendKey, ip: &Ip, scope: u64) -> bool {
    let network = tables::record::Prefix { addr: key.addr, len: key.prefix_len, pad: [0; 3] };
    (key.scope_key == 0 || key.scope_key == scope)
        && (key.port == 0 || key.port == ip.dport)
        && (key.proto == 0 || key.proto == ip.proto)
        && network.holds(&ip.dst)
}

impl Trace<'_> {
    pub(super) fn tunnel_name(&self, id: u32) -> String {
        let named = self.names.iter().find(|(known, _)| *known == id);
        named.map_or_else(|| id.to_string(), |(_, name)| name.clone())
    }

    /// Sets the names of the service and of its most specific frontend that matches the packet.
    pub(super) fn name_service(&mut self, id: u32) {
        let name = self.set.service_name(id).unwrap_or_default();
        service_of(&name).clone_into(&mut self.explanation.service);
        let (ip, scope) = (self.inner, self.scope_key);
        let of_service = self.set.frontends().filter(|(_, service)| *service == id);
        let matching = of_service.filter(|(key, _)| frontend_matches(key, &ip, scope));
        let exactness =
            |key: &FrontendKey| (key.scope_key != 0, key.prefix_len, key.proto != 0, key.port != 0);
        let Some((key, _)) = matching.max_by_key(|(key, _)| exactness(key)) else { return };
        let port = if key.port == 0 { "*".to_owned() } else { key.port.to_string() };
        let network = if key.prefix_len == 128 {
            String::new()
        } else {
            let all = if key.addr.is_v4() { 96 } else { 0 };
            format!("/{}", key.prefix_len.saturating_sub(all))
        };
        let at = address_port(&key.addr.to_string(), key.port);
        let at = if key.port == 0 { format!("{}{network}:{port}", key.addr) } else { at };
        self.explanation.frontend = format!("{at}/{}", protocol_text(key.proto));
        self.add_reason(format!("frontend {} matches", self.explanation.frontend));
    }

    pub(super) fn name_hop(&mut self, to: &Addr, hop: &NextHop) {
        let mac = if hop.known { mac_text(&hop.mac) } else { "MAC unknown".to_owned() };
        let mtu = if hop.mtu == 0 { String::new() } else { format!(", MTU {}", hop.mtu) };
        self.explanation.next_hop = format!("{to} ({mac}{mtu}) on {}", arm_text(hop.arm));
    }

    pub(super) fn name_rewrite(&mut self, from: (&Addr, u16), to: (&Addr, u16)) {
        let from = match (self.explanation.flow, from.1) {
            (None, 0) if from.0.is_v4() => format!("{}:(a free port)", from.0),
            (None, 0) => format!("[{}]:(a free port)", from.0),
            (_, port) => pair(from.0, port),
        };
        let family = match (self.path.crosses(), self.inner.v6) {
            (false, _) => "",
            (true, false) => ", translated to IPv6",
            (true, true) => ", translated to IPv4",
        };
        let inside = format!("{from} -> {}{family}", pair(to.0, to.1));
        self.explanation.rewrite = match self.explanation.rewrite.as_str() {
            "" => inside,
            tunnel => format!("{inside}; {tunnel}"),
        };
    }

    pub(super) fn name_proxy(&mut self) {
        let (at, port) = (self.path.backend_addr, self.path.backend_port);
        let arm = arm_text(self.arm);
        self.explanation.next_hop = format!("this machine's proxy {} on {arm}", pair(&at, port));
    }

    pub(super) fn name_tunnel(&mut self, outer: &Outer<'_>, kind: TunnelKind) {
        let kind = kind.name();
        let (src, dst) = (outer.src, pair(&outer.dst, outer.dport));
        self.explanation.rewrite = format!("in {kind}, {src} -> {dst}, inner packet unchanged");
    }

    /// Sets next hop and rewrite of an answer, which goes to the client or in the gateway's tunnel.
    pub(super) fn name_answer(&mut self, leg: &GatewayLeg) {
        let hop = format!("{} on {}", mac_text(&leg.gateway_mac), arm_text(leg.arm));
        if leg.tunnel == NO_TUNNEL {
            self.explanation.next_hop = format!("the client, {hop}");
            return;
        }
        self.explanation.next_hop = hop;
        let tunnel = self.tunnel_name(u32::from(leg.tunnel));
        let (options, how) = match self.untracked {
            None => ("its latest options", ""),
            Some(_) => ("the packet's own options", ", selected by the packet's own options"),
        };
        self.explanation.rewrite =
            format!("in the gateway's tunnel {tunnel} to {} with {options}", leg.node);
        self.add_reason(format!("it returns to the flow's gateway{how}"));
    }

    /// Completes the explanation.
    pub(super) fn finish(mut self, verdict: Verdict) -> Explanation {
        let (name, reason) = match verdict {
            Verdict::Return => ("return", None),
            Verdict::Nat => ("nat", None),
            Verdict::Tunnel => ("tunnel", None),
            Verdict::Answer => ("answer", None),
            Verdict::Redirect => ("redirect", None),
            Verdict::Punt => ("punt", None),
            Verdict::Forward => ("forward", None),
            Verdict::Probe => ("tunnel", None),
            Verdict::Drop(reason) => ("drop", Some(reason)),
            Verdict::Reply(reply) => {
                self.add_reason(match reply {
                    Reply::Echo => "Weir answers the ping".to_owned(),
                    Reply::TooBig(mtu) => {
                        format!("its sender gets a too-big error, MTU {mtu} bytes")
                    }
                    Reply::TimeExceeded => "its sender gets a time-exceeded error".to_owned(),
                    Reply::Reset => "its sender gets a TCP reset".to_owned(),
                });
                ("reply", None)
            }
        };
        name.clone_into(&mut self.explanation.verdict);
        if let Some(reason) = reason {
            self.name_reason(reason);
        }
        self.explanation.packet = packet_text(&self.inner);
        let arm = arm_text(self.arm);
        self.explanation.arrival = match self.arrival {
            Arrival::Plain => format!("plain on {arm}"),
            Arrival::Kernel => format!("from this machine's kernel on {arm}"),
            Arrival::Gateway | Arrival::Backend if self.scope_key == 0 => {
                format!("tunnel {} on {arm}", self.explanation.arrival)
            }
            _ => {
                let (tunnel, endpoint) = (&self.explanation.arrival, self.scope_key);
                format!("tunnel {tunnel} on {arm}, endpoint {endpoint:#x}")
            }
        };
        self.name_objects();
        self.explanation
    }

    fn name_reason(&mut self, reason: DropReason) {
        reason.name().clone_into(&mut self.explanation.drop_reason);
        self.add_reason(reason.help());
    }

    /// Sets IDs and names of service and backend, and the backend's state. The service's name is
    /// already set for a packet that would begin a flow, but not for one of a known flow.
    fn name_objects(&mut self) {
        self.explanation.service_id = self.service;
        self.explanation.backend_id = self.backend;
        if let Some(id) = self.service.filter(|_| self.explanation.service.is_empty()) {
            let name = self.set.service_name(id);
            self.explanation.service =
                name.map_or_else(|| "(removed)".to_owned(), |n| service_of(&n).to_owned());
        }
        let Some(id) = self.backend else { return };
        self.explanation.backend = pair(&self.path.backend_addr, self.path.backend_port);
        let state = self.set.backend(id).map(|backend| backend.state);
        let named = [
            (BackendState::Active, "active"),
            (BackendState::Terminating, "terminating"),
            (BackendState::Quarantined, "quarantined"),
            (BackendState::Maintenance, "maintenance"),
            (BackendState::Removed, "removed"),
        ];
        let named = named.into_iter().find(|(known, _)| state == Some(*known as u8));
        self.explanation.backend_state = named.map_or("(removed)", |(_, name)| name).to_owned();
    }
}
