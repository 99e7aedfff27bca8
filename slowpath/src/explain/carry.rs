//! The way out: what the journey's `encap` does, on bytes that nobody sends.

use packet::addr::Addr;
use packet::ethernet::Macs;
use packet::geneve;
use packet::icmp;
use packet::ip::{Ip, L4};
use packet::rewrite::{self, Congestion, Rewrite};
use packet::tunnel::{Kind, OUTER_TTL, Outer, outer_len, source_port};
use packet::window::Window;
use tables::flow::{Answer, Ends, Missed, NO_TUNNEL};
use tables::next_hop::NextHop;
use tables::reason::DropReason;
use tables::record::{Mode, TUNNEL_REPLY_TOO_BIG, TunnelKind};

use super::outer::is_backend;
use super::{Arrival, Reply, Step, Verdict, Walk, drop_for};

/// Bytes of an Ethernet header without a VLAN tag, which no MTU counts.
const ETHERNET: usize = 14;

impl Walk<'_> {
    /// Whether the verdict can be carried out; what stands in its way is the verdict then.
    pub(super) fn carry_out(&mut self, window: &mut Window<'_>, verdict: Verdict) -> Step {
        let way = match verdict {
            Verdict::Nat => self.nat(window),
            Verdict::Tunnel => self.tunnel(window),
            Verdict::Answer => self.answer(window),
            Verdict::Reply(_) => Step::Break(verdict),
            Verdict::Return => {
                self.told.rewrite = "outer addresses turned around, the packet untouched".into();
                Step::Continue(())
            }
            Verdict::Punt | Verdict::Drop(_) | Verdict::Unknown(_) => Step::Continue(()),
        };
        match way {
            Step::Break(Verdict::Reply(reply)) => self.reply(reply),
            other => other,
        }
    }

    /// Whether the answer may be made, of this packet and to its sender.
    fn reply(&mut self, reply: Reply) -> Step {
        let silent = match reply {
            Reply::Echo => return Step::Break(Verdict::Reply(reply)),
            Reply::TooBig(_) => DropReason::TooBig,
            Reply::TimeExceeded => DropReason::TtlExceeded,
        };
        let wanted =
            icmp::may_answer(&self.inner) && (reply == Reply::TimeExceeded || self.tells_too_big());
        match wanted {
            true => Step::Break(Verdict::Reply(reply)),
            false => drop_for(silent),
        }
    }

    fn tells_too_big(&self) -> bool {
        let tunnel = self.tunnel.map(|(_, tunnel)| tunnel);
        tunnel.is_none_or(|t| is_backend(t) || t.flags & TUNNEL_REPLY_TOO_BIG != 0)
    }

    fn next_hop(&mut self) -> Step<NextHop> {
        let backend = self.backend.and_then(|id| self.set.backend(id));
        let Some(backend) = backend else { return drop_for(DropReason::NoBackend) };
        let Some((to, hop)) = self.set.next_hop_to(backend.next_hop) else {
            return drop_for(DropReason::NoRoute);
        };
        self.name_hop(&to, &hop);
        if !hop.known {
            self.because(format!("the MAC address of {to} is not known yet; it is asked for"));
            return drop_for(DropReason::NoNeighbour);
        }
        let link = if hop.mtu == 0 { u16::MAX } else { hop.mtu };
        let learned = self.region.path_mtu(backend.next_hop);
        let learned = learned.map_or(0, |mtu| mtu.load(std::sync::atomic::Ordering::Relaxed));
        let mtu = match learned {
            0 => link,
            learned => link.min(learned.min(u32::from(u16::MAX)) as u16),
        };
        Step::Continue(NextHop { mtu, ..hop })
    }

    fn fits(&mut self, mtu: u16) -> Step {
        let len = self.inner.end - self.inner.at;
        if len <= mtu {
            return Step::Continue(());
        }
        self.because(format!("{len} bytes are too many: {mtu} pass"));
        Step::Break(Verdict::Reply(Reply::TooBig(mtu)))
    }

    fn goes_on(&mut self) -> Step {
        if self.inner.ttl > 1 {
            return Step::Continue(());
        }
        self.because("its TTL ends here");
        Step::Break(Verdict::Reply(Reply::TimeExceeded))
    }

    /// What every packet undergoes that leaves a tunnel of ours and goes on.
    fn take_off(&self, window: &mut Window<'_>) -> Step {
        let Some(outer) = &self.outer else { return Step::Continue(()) };
        match rewrite::take_congestion(window, outer, &self.inner) {
            Ok(_) => Step::Continue(()),
            Err(Congestion::Short) => drop_for(DropReason::TooShort),
            Err(Congestion::Lost) => drop_for(DropReason::Congestion),
        }
    }

    fn nat(&mut self, window: &mut Window<'_>) -> Step {
        let hop = self.next_hop()?;
        self.fits(hop.mtu)?;
        self.goes_on()?;
        if self.arrival == Arrival::Gateway {
            self.take_off(window)?;
        }
        let path = self.path;
        let is_echo = |ip: &Ip| matches!(ip.kind, L4::IcmpEcho { .. });
        let done = match self.quoted {
            None => {
                let echo = is_echo(&self.inner);
                let dport = if echo { path.nat_port } else { path.backend_port };
                self.name_rewrite((&path.nat_addr, path.nat_port), (&path.backend_addr, dport));
                let to = Rewrite {
                    src: path.nat_addr,
                    sport: path.nat_port,
                    dst: path.backend_addr,
                    dport,
                };
                rewrite::nat(window, &self.inner, &to)
            }
            Some(quoted) => {
                self.name_rewrite((&path.nat_addr, 0), (&path.backend_addr, 0));
                let to = Rewrite { src: path.nat_addr, dst: path.backend_addr, ..Rewrite::none() };
                let sport = if is_echo(&quoted) { path.nat_port } else { path.backend_port };
                let (src, dst, dport) = (path.backend_addr, path.nat_addr, path.nat_port);
                let quote = Rewrite { src, sport, dst, dport };
                rewrite::nat_quoted(window, &self.inner, &quoted, &to, &quote)
            }
        };
        if done.is_err() { drop_for(DropReason::TooShort) } else { Step::Continue(()) }
    }

    fn tunnel(&mut self, window: &mut Window<'_>) -> Step {
        let Some(service) = self.of_service().copied() else {
            return drop_for(DropReason::NoBackend);
        };
        self.goes_on()?;
        let hop = self.next_hop()?;
        let to = self.path.backend_addr;
        let locals = self.set.settings().locals.iter();
        let ours = locals
            .take_while(|local| local.addr != Addr::UNSPECIFIED)
            .find(|local| local.arm & 1 == hop.arm & 1 && local.addr.is_v4() == to.is_v4());
        let Some(ours) = ours else {
            self.because("there is no address of ours of its family on that arm");
            return drop_for(DropReason::NoRoute);
        };
        let Some(kind) = TunnelKind::from_u8(service.tunnel) else {
            return drop_for(DropReason::NoBackend);
        };
        let options = [0; geneve::OWN_OPTIONS];
        let macs = Macs::new(hop.mac, hop.src_mac);
        let hash = self.key.map_or(0, |key| self.flows.hash(&key));
        let outer = Outer {
            kind: match kind {
                TunnelKind::Geneve => Kind::Geneve,
                TunnelKind::Vxlan => Kind::Vxlan,
                TunnelKind::Ipip => Kind::Ipip,
                TunnelKind::Gue => Kind::Gue,
            },
            macs,
            vlan: 0,
            src: ours.addr,
            dst: to,
            sport: source_port(hash),
            dport: service.tunnel_port,
            vni: service.vni,
            options: if kind == TunnelKind::Geneve { &options } else { &[] },
            inner_v6: self.inner.v6,
            inner_eth: (kind == TunnelKind::Vxlan).then_some(macs),
            tos: self.inner.tos,
            ttl: OUTER_TTL,
            df: false,
            checksum: false,
        };
        self.name_tunnel(&outer, kind);
        self.fits(hop.mtu.saturating_sub((outer_len(&outer) - ETHERNET) as u16))?;
        self.take_off(window)
    }

    /// Back to the flow's gateway with its latest options, or to the client of a plain flow.
    fn answer(&mut self, window: &mut Window<'_>) -> Step {
        let Some((hit, from_initiator)) = self.hit else { return drop_for(DropReason::NoFlow) };
        let gone = |missed| match missed {
            Missed::Gone => Step::Break(Verdict::Drop(DropReason::NoFlow)),
            Missed::Busy => Step::Break(Verdict::Drop(DropReason::FlowContended)),
        };
        let mut answer = Answer::empty();
        if let Err(missed) = self.flows.answer(&hit, from_initiator, &mut answer) {
            return gone(missed);
        }
        self.goes_on()?;
        let leg = answer.gateway;
        if leg.tunnel != NO_TUNNEL {
            let Some(tunnel) = self.set.tunnel(u32::from(leg.tunnel)) else {
                return drop_for(DropReason::NoFlow);
            };
            self.name_front(&leg);
            let limit = tunnel.inner_mtu;
            if limit != 0 && self.inner.end - self.inner.at > limit {
                self.because(format!("more than the gateway's {limit} bytes"));
                let told = tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0;
                return match told && self.tells_too_big() {
                    true => Step::Break(Verdict::Reply(Reply::TooBig(limit))),
                    false => drop_for(DropReason::TooBig),
                };
            }
        } else {
            self.name_front(&leg);
        }
        if self.arrival != Arrival::Plain {
            self.take_off(window)?;
        }
        if self.path.mode != Mode::Nat as u8 {
            return Step::Continue(());
        }
        let ends = match self.flows.ends(&hit) {
            Ok(ends) => ends,
            Err(missed) => return gone(missed),
        };
        self.answer_of_nat(window, &ends)
    }

    /// What a backend answers becomes what the client expects.
    fn answer_of_nat(&mut self, window: &mut Window<'_>, ends: &Ends) -> Step {
        let (client, service) = (ends.initiator, ends.target);
        let done = match self.quoted {
            None => {
                self.name_rewrite((&service.0, service.1), (&client.0, client.1));
                let to =
                    Rewrite { src: service.0, sport: service.1, dst: client.0, dport: client.1 };
                rewrite::nat(window, &self.inner, &to)
            }
            Some(quoted) => {
                // From the backend itself it must seem to come from the service.
                let own = self.inner.src == self.path.backend_addr;
                let src = if own { service.0 } else { self.inner.src };
                self.name_rewrite((&src, 0), (&client.0, 0));
                let to = Rewrite { src, dst: client.0, ..Rewrite::none() };
                let quote =
                    Rewrite { src: client.0, sport: client.1, dst: service.0, dport: service.1 };
                rewrite::nat_quoted(window, &self.inner, &quoted, &to, &quote)
            }
        };
        if done.is_err() { drop_for(DropReason::TooShort) } else { Step::Continue(()) }
    }
}
