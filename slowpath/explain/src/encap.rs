//! Output of a packet: mirrors the pipeline's stage `encap` on a copy that is never sent.

use packet::ethernet::Macs;
use packet::flow::FlowKey;
use packet::geneve;
use packet::icmp;
use packet::rewrite::{self, EcnError};
use packet::tunnel::{TunnelKind, outer_len};
use packet::window::Window;
use tables::flow::{Answer, NO_TUNNEL, PathError};
use tables::next_hop::NextHop;
use tables::outer;
use tables::reason::DropReason;
use tables::record::{
    Mode, SERVICE_REPLY_TOO_BIG, Service, TUNNEL_CROSS, TUNNEL_REPLY_TOO_BIG, Tunnel,
};
use tables::return_leg::ReturnLegs;

use super::format::arm_text;
use super::outer::is_backend;
use super::{Arrival, Reply, Step, Trace, Verdict, drop_with};

/// Size of an Ethernet header without VLAN tag, which does not count towards an MTU.
const ETHERNET: usize = 14;

impl Trace<'_> {
    /// Checks whether the verdict can be carried out. If not, breaks with the verdict that replaces
    /// it: a drop, or a reply with an ICMP error.
    pub(super) fn check_output(&mut self, window: &mut Window<'_>, verdict: Verdict) -> Step {
        let result = match verdict {
            Verdict::Nat => self.nat(window),
            Verdict::Tunnel => self.tunnel(window),
            Verdict::Probe => self.probe(window),
            Verdict::Redirect => self.redirect(window),
            Verdict::Answer => self.answer(window),
            Verdict::Reply(_) => Step::Break(verdict),
            Verdict::Return => {
                self.explanation.rewrite = self.returned();
                Step::Continue(())
            }
            Verdict::Punt | Verdict::Forward | Verdict::Drop(_) => Step::Continue(()),
        };
        match result {
            Step::Break(Verdict::Reply(Reply::TooBig(_)))
                if matches!(verdict, Verdict::Nat | Verdict::Tunnel) && self.drops_too_big() =>
            {
                self.add_reason("the service drops packets that are too big (`too_big`)");
                drop_with(DropReason::TooBig)
            }
            Step::Break(Verdict::Reply(reply)) => self.reply(reply),
            other => other,
        }
    }

    /// Checks whether the reply may be sent to the packet's sender; if not, breaks with a drop.
    fn reply(&mut self, reply: Reply) -> Step {
        let drop_reason = match reply {
            Reply::Echo | Reply::Reset => return Step::Break(Verdict::Reply(reply)),
            Reply::TooBig(_) => DropReason::TooBig,
            Reply::TimeExceeded => DropReason::TtlExceeded,
        };
        // The kernel gets no error about its own packets: it knows the MTU from its routes.
        let permitted = self.arrival != Arrival::Kernel
            && icmp::may_answer(&self.inner)
            && (reply == Reply::TimeExceeded || self.reports_too_big());
        match permitted {
            true => Step::Break(Verdict::Reply(reply)),
            false => drop_with(drop_reason),
        }
    }

    fn drops_too_big(&self) -> bool {
        self.service_record().is_some_and(|service| service.flags & SERVICE_REPLY_TOO_BIG == 0)
    }

    fn reports_too_big(&self) -> bool {
        let tunnel = self.tunnel.map(|(_, tunnel)| tunnel);
        tunnel.is_none_or(|t| is_backend(t) || t.flags & TUNNEL_REPLY_TOO_BIG != 0)
    }

    fn next_hop(&mut self) -> Step<NextHop> {
        let backend = self.backend.and_then(|id| self.set.backend(id));
        let Some(backend) = backend else { return drop_with(DropReason::NoBackend) };
        let Some((to, hop)) = self.set.next_hop_to(backend.next_hop) else {
            return drop_with(DropReason::NoRoute);
        };
        self.name_hop(&to, &hop);
        if !hop.known {
            self.add_reason(format!("the MAC address of {to} is not resolved yet"));
            return drop_with(DropReason::NoNeighbor);
        }
        let mtu = hop.path_mtu(self.region.path_mtu(backend.next_hop));
        Step::Continue(NextHop { mtu, ..hop })
    }

    fn check_mtu(&mut self, mtu: u16) -> Step {
        let len = self.inner.end - self.inner.at;
        if len <= mtu {
            return Step::Continue(());
        }
        self.add_reason(format!(
            "the packet without tunnel headers has {len} bytes; at most {mtu} are allowed"
        ));
        Step::Break(Verdict::Reply(Reply::TooBig(mtu)))
    }

    fn check_ttl(&mut self) -> Step {
        if self.inner.ttl > 1 {
            return Step::Continue(());
        }
        self.add_reason("the TTL expires at this hop");
        Step::Break(Verdict::Reply(Reply::TimeExceeded))
    }

    /// Copies the congestion marks (ECN) of the removed outer header to the inner one, if there was
    /// an outer header.
    fn propagate_ecn(&self, window: &mut Window<'_>) -> Step {
        let Some(outer) = &self.outer else { return Step::Continue(()) };
        match rewrite::propagate_ecn(window, outer, &self.inner) {
            Ok(_) => Step::Continue(()),
            Err(EcnError::Short) => drop_with(DropReason::TooShort),
            Err(EcnError::NotEcnCapable) => drop_with(DropReason::Congestion),
        }
    }

    fn nat(&mut self, window: &mut Window<'_>) -> Step {
        let hop = self.next_hop()?;
        match self.path.crosses() {
            true => self.check_translated_mtu(hop.mtu)?,
            false => self.check_mtu(hop.mtu)?,
        }
        self.check_ttl()?;
        self.propagate_ecn(window)?;
        let to = self.backend_rewrites();
        self.rewrite(window, to)
    }

    /// Checks a redirect to a proxy on this machine. A redirect is not a hop: the TTL is unchanged.
    fn redirect(&mut self, window: &mut Window<'_>) -> Step {
        self.propagate_ecn(window)?;
        self.name_proxy();
        let to = self.backend_rewrites();
        self.rewrite(window, to)
    }

    /// Checks whether a health check can be sent through the tunnel of its backend's service.
    fn probe(&mut self, window: &mut Window<'_>) -> Step {
        let backend = self.backend.and_then(|id| self.set.backend(id));
        let Some(backend) = backend else { return drop_with(DropReason::NoBackend) };
        self.path.backend_addr = backend.addr;
        let Some(service) = self.set.service(backend.probe_service).copied() else {
            return drop_with(DropReason::NoBackend);
        };
        self.check_tunnel(window, &service)
    }

    /// Returns the rewrite of a packet that is sent back to its gateway.
    fn returned(&self) -> String {
        let tunnel = self.tunnel.map(|(_, tunnel)| tunnel);
        let crossing = tunnel.filter(|tunnel| tunnel.flags & TUNNEL_CROSS != 0);
        let peer = crossing.and_then(|tunnel| Some((tunnel.peer, self.set.tunnel(tunnel.peer)?)));
        match peer {
            Some((id, Tunnel { port, vni, .. })) => format!(
                "outer addresses swapped, to UDP port {port} and VNI {vni} of tunnel {}, inner \
                 packet unchanged",
                self.tunnel_name(id)
            ),
            None => "outer addresses swapped, inner packet unchanged".into(),
        }
    }

    fn tunnel(&mut self, window: &mut Window<'_>) -> Step {
        let Some(service) = self.service_record().copied() else {
            return drop_with(DropReason::NoBackend);
        };
        self.check_ttl()?;
        self.check_tunnel(window, &service)
    }

    fn check_tunnel(&mut self, window: &mut Window<'_>, service: &Service) -> Step {
        let hop = self.next_hop()?;
        let to = self.path.backend_addr;
        let Some(src) = self.set.settings().local_on(hop.arm, &to).copied() else {
            let arm = arm_text(hop.arm);
            self.add_reason(format!("this machine has no address of the family of {to} on {arm}"));
            return drop_with(DropReason::NoRoute);
        };
        let Some(kind) = TunnelKind::from_u8(service.tunnel) else {
            return drop_with(DropReason::NoBackend);
        };
        let hashed_source = match kind {
            TunnelKind::Ipip if to.is_v4() => {
                self.set.settings().ipip_source(hop.arm, self.flow_hash())
            }
            _ => None,
        };
        let options = [0; geneve::OWN_OPTIONS];
        let macs = Macs::new(hop.mac, hop.src_mac);
        let ends = (hashed_source.unwrap_or(src), to);
        let outer = outer::to_backend(kind, service, &macs, ends, 0, &options, &self.inner);
        self.name_tunnel(&outer, kind);
        self.check_mtu(hop.mtu.saturating_sub((outer_len(&outer) - ETHERNET) as u16))?;
        self.propagate_ecn(window)
    }

    /// Returns the flow's hash, by which the outer source address varies. A health check has no
    /// flow key: its own 5-tuple is hashed. 0 for other packets without a key, such as later
    /// fragments.
    fn flow_hash(&self) -> u64 {
        let probe = || {
            let (ip, is_probe) = (&self.inner, self.arrival == Arrival::Kernel);
            let key = FlowKey::new(0, ip.proto, ip.src, ip.sport, ip.dst, ip.dport).0;
            is_probe.then_some(key)
        };
        self.key.or_else(probe).map_or(0, |key| self.flows.hash(&key))
    }

    /// Checks whether an answer can be sent to its flow's gateway, or to the client of a flow
    /// without a tunnel.
    fn answer(&mut self, window: &mut Window<'_>) -> Step {
        let drop_of = |missed| match missed {
            PathError::Gone => Step::Break(Verdict::Drop(DropReason::NoFlow)),
            PathError::Busy => Step::Break(Verdict::Drop(DropReason::FlowContended)),
        };
        let mut answer = Answer::empty();
        if let Some((hit, from_initiator)) = self.hit {
            if let Err(missed) = self.flows.answer(&hit, from_initiator, &mut answer) {
                return drop_of(missed);
            }
        } else if !self.untracked.is_some_and(|origin| {
            let legs = ReturnLegs::new(self.region);
            legs.answer(&self.set, self.scope_key, &origin, &mut answer)
        }) {
            self.add_reason(
                "no packet of the endpoint has arrived from the gateway node that the packet's own \
                 options name",
            );
            return drop_with(self.unknown_flow_reason());
        }
        self.check_ttl()?;
        let leg = answer.gateway;
        let tunnel = match leg.tunnel {
            NO_TUNNEL => None,
            id => match self.set.tunnel(u32::from(id)) {
                None => return drop_with(DropReason::NoFlow),
                tunnel => tunnel,
            },
        };
        self.name_answer(&leg);
        self.check_answer_size(tunnel, leg.arm)?;
        if self.arrival != Arrival::Plain {
            self.propagate_ecn(window)?;
        }
        if self.path.mode != Mode::Nat as u8 {
            return Step::Continue(());
        }
        let Some((hit, _)) = self.hit else { return drop_with(DropReason::NoFlow) };
        let ends = match self.flows.ends(&hit) {
            Ok(ends) => ends,
            Err(missed) => return drop_of(missed),
        };
        let to = self.client_rewrites(&ends);
        self.rewrite(window, to)
    }

    /// Checks whether an answer fits the gateway's inner MTU or, if it is translated to the other
    /// family and has no gateway, the MTU of the client's arm.
    fn check_answer_size(&mut self, tunnel: Option<&Tunnel>, arm: u8) -> Step {
        let (limit, reports) = match tunnel {
            Some(tunnel) => (tunnel.inner_mtu, tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0),
            None if self.path.crosses() => (self.set.settings().mtu_of(arm), true),
            None => return Step::Continue(()),
        };
        if limit == 0 {
            return Step::Continue(());
        }
        let fits = match self.path.crosses() {
            true => self.check_translated_mtu(limit),
            false => self.check_mtu(limit),
        };
        match fits {
            Step::Break(_) if !(reports && self.reports_too_big()) => drop_with(DropReason::TooBig),
            fits => fits,
        }
    }
}
