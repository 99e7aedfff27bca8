//! Outermost headers and tunnel: mirrors the pipeline's stages `parse` and `decap`.

use packet::ethernet::{self, Ethernet};
use packet::flow::SCOPE_PLAIN;
use packet::ip::{Fragment, IPV4_IN_IP, IPV6_IN_IP, Ip, UDP};
use packet::parsed::Malformed;
use packet::window::Window;
use packet::{checksum, geneve, gue, vxlan};
use tables::outer::bad_geneve;
use tables::reason::DropReason;
use tables::record::{TUNNEL_BACKEND, Tunnel, TunnelKind};
use tables::scope::Scopes;

use super::{Arrival, EntryPoint, Step, Trace, Verdict, drop_with};

/// A tunnel whose header was parsed, and the offset of the inner packet.
struct ParsedTunnel {
    tunnel: u32,
    inner_at: u16,
    ethertype: u16,
}

pub(super) fn is_backend(tunnel: &Tunnel) -> bool {
    tunnel.flags & TUNNEL_BACKEND != 0
}

fn kind(tunnel: &Tunnel) -> Option<TunnelKind> {
    TunnelKind::from_u8(tunnel.kind)
}

impl Trace<'_> {
    /// Parses the headers up to the packet that the verdict is about.
    pub(super) fn parse_outer(&mut self, window: &Window<'_>) -> Step {
        if self.arrival == Arrival::Kernel {
            return self.parse_from_kernel(window);
        }
        let Ok(eth) = Ethernet::parse(window) else { return drop_with(DropReason::TooShort) };
        let Ok(to) = window.load::<[u8; 6]>(0) else { return drop_with(DropReason::TooShort) };
        if self.port_mac.is_some_and(|mac| mac != to) {
            if to[0] & 1 == 0 {
                self.add_reason("the destination MAC address is not this port's");
                return drop_with(DropReason::ForeignDstMac);
            }
            self.add_reason("broadcast and multicast frames go to the kernel");
            return Step::Break(Verdict::Punt);
        }
        if eth.ethertype != ethernet::IPV4 && eth.ethertype != ethernet::IPV6 {
            self.add_reason(format!("Ethernet type {:#06x} goes to the kernel", eth.ethertype));
            return Step::Break(Verdict::Punt);
        }
        let outer = match Ip::parse(window, eth.l3, eth.ethertype) {
            Ok(outer) => outer,
            Err(Malformed::Short) => return drop_with(DropReason::TooShort),
            Err(_) => return drop_with(DropReason::BadIpHeader),
        };
        if !outer.v6 && !checksum::ipv4_header_ok(window, &outer) {
            return drop_with(DropReason::BadIpChecksum);
        }
        if self.arrival == Arrival::Plain && outer.src.is_martian() {
            self.add_reason("its source address is loopback, multicast or broadcast");
            return drop_with(DropReason::MartianSource);
        }
        self.inner = outer;
        let Some(parsed) = self.tunnel_of(window, &outer)? else { return Step::Continue(()) };
        let Some(tunnel) = self.set.tunnel(parsed.tunnel) else { return Step::Continue(()) };
        self.enter(parsed.tunnel, tunnel);
        self.outer = Some(outer);
        // Bytes after the outer packet are Ethernet padding, not data.
        match Ip::parse(window, parsed.inner_at, parsed.ethertype) {
            Ok(inner) if inner.end <= outer.end => self.inner = inner,
            _ => return drop_with(DropReason::InnerMalformed),
        }
        Step::Continue(())
    }

    /// Parses a packet of the kernel, which has no tunnel.
    fn parse_from_kernel(&mut self, window: &Window<'_>) -> Step {
        let malformed = drop_with(DropReason::ExceptionMalformed);
        let Ok(eth) = Ethernet::parse(window) else { return malformed };
        if eth.ethertype != ethernet::IPV4 && eth.ethertype != ethernet::IPV6 {
            return Step::Break(Verdict::Forward);
        }
        match Ip::parse(window, eth.l3, eth.ethertype) {
            Ok(ip) if ip.v6 || checksum::ipv4_header_ok(window, &ip) => self.inner = ip,
            _ => return malformed,
        }
        Step::Continue(())
    }

    /// Records that the packet arrived through this tunnel.
    fn enter(&mut self, id: u32, tunnel: &Tunnel) {
        let name = self.tunnel_name(id);
        self.arrival = if is_backend(tunnel) { Arrival::Backend } else { Arrival::Gateway };
        self.add_reason(match self.arrival {
            Arrival::Backend => format!("it arrived through tunnel {name}, which backends use"),
            _ => format!("it arrived through the gateway's tunnel {name}"),
        });
        self.explanation.arrival = name;
        self.tunnel = self.set.tunnel(id).map(|tunnel| (id, tunnel));
    }

    /// Records the gateway of a packet that is given without outer headers, a 5-tuple.
    pub(super) fn enter_gateway(&mut self, entry: &EntryPoint) -> Result<Step, String> {
        if entry.gateway.is_empty() {
            return Ok(Step::Continue(()));
        }
        let gateways = || self.set.tunnels().filter(|(_, tunnel)| !is_backend(tunnel));
        let found = gateways().find(|(id, _)| {
            let name = self.tunnel_name(*id);
            name == entry.gateway || name.split(' ').next() == Some(entry.gateway.as_str())
        });
        let Some((id, tunnel)) = found else {
            let known: Vec<String> = gateways().map(|(id, _)| self.tunnel_name(id)).collect();
            return Err(format!(
                "--gateway {}: there is no such gateway; configured gateways: {}",
                entry.gateway,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ));
        };
        self.enter(id, tunnel);
        let kind = kind(tunnel).unwrap_or(TunnelKind::Geneve);
        let key = if kind == TunnelKind::Geneve { entry.endpoint } else { tunnel.scope_key };
        self.scope_key = key;
        Ok(self.scope_of(kind, tunnel.gateway, key).map_continue(|scope| self.scope = scope))
    }

    fn tunnel_of(&mut self, window: &Window<'_>, outer: &Ip) -> Step<Option<ParsedTunnel>> {
        match outer.proto {
            UDP => self.udp_tunnel(window, outer),
            IPV4_IN_IP | IPV6_IN_IP => {
                let hashed_source = self.set.settings().is_ipip_source(&outer.dst);
                let matches = |(_, t): &(u32, &Tunnel)| {
                    kind(t) == Some(TunnelKind::Ipip)
                        && (t.local == outer.dst || hashed_source && is_backend(t))
                };
                let Some((id, _)) = self.set.tunnels().find(matches) else {
                    return Step::Continue(None);
                };
                // A fragment cannot be decapsulated: its inner headers may be in another fragment.
                if outer.fragment != Fragment::Whole {
                    return drop_with(DropReason::OuterFragment);
                }
                let v4 = outer.proto == IPV4_IN_IP;
                let ethertype = if v4 { ethernet::IPV4 } else { ethernet::IPV6 };
                Step::Continue(Some(ParsedTunnel { tunnel: id, inner_at: outer.l4, ethertype }))
            }
            _ => Step::Continue(None),
        }
    }

    fn udp_tunnel(&mut self, window: &Window<'_>, outer: &Ip) -> Step<Option<ParsedTunnel>> {
        if outer.fragment != Fragment::Whole {
            return match self.set.tunnels().any(|(_, tunnel)| tunnel.local == outer.dst) {
                true => drop_with(DropReason::OuterFragment),
                false => Step::Continue(None),
            };
        }
        // The first tunnel on this port determines the type of header. IPIP tunnels, which have no
        // ports, have port 0.
        let first = self.set.tunnels().find(|(_, tunnel)| tunnel.port == outer.dport);
        let Some(first) = first.and_then(|(_, tunnel)| kind(tunnel)) else {
            return Step::Continue(None);
        };
        if first == TunnelKind::Ipip {
            return Step::Continue(None);
        }
        let Ok(udp_len) = window.be16(usize::from(outer.l4) + 4) else {
            return drop_with(DropReason::TooShort);
        };
        if outer.l4.wrapping_add(udp_len) != outer.end {
            return drop_with(DropReason::BadUdpLength);
        }
        let header = outer.l4 + 8;
        let parsed = match first {
            TunnelKind::Geneve => self.geneve(window, outer, header)?,
            TunnelKind::Vxlan => self.vxlan(window, outer, header)?,
            // Returned above.
            TunnelKind::Ipip => return Step::Continue(None),
            TunnelKind::Gue => {
                let tunnel = self.admitted(outer, TunnelKind::Gue, None)?;
                let Ok(inner) = gue::parse(window, header) else {
                    return drop_with(DropReason::GueHeader);
                };
                let ethertype = if inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
                ParsedTunnel { tunnel, inner_at: inner.payload, ethertype }
            }
        };
        Step::Continue(Some(parsed))
    }

    /// Returns the first tunnel of this kind that has the packet's outer destination address, its
    /// UDP port and (for VXLAN) its VNI, and permits its outer source. A tunnel that backends use
    /// permits any source here.
    fn admitted(&self, outer: &Ip, of: TunnelKind, vni: Option<u32>) -> Step<u32> {
        let mut reason = DropReason::NotOurAddress;
        for (id, tunnel) in self.set.tunnels() {
            let other = tunnel.port != outer.dport
                || kind(tunnel) != Some(of)
                || vni.is_some_and(|vni| vni != tunnel.vni)
                || tunnel.local != outer.dst;
            if other {
                continue;
            }
            if is_backend(tunnel) || tunnel.admits(&outer.src) {
                return Step::Continue(id);
            }
            reason = DropReason::TunnelSource;
        }
        drop_with(reason)
    }

    fn geneve(&mut self, window: &Window<'_>, outer: &Ip, header: u16) -> Step<ParsedTunnel> {
        let id = self.admitted(outer, TunnelKind::Geneve, None)?;
        let Some(tunnel) = self.set.tunnel(id) else { return drop_with(DropReason::NotOurAddress) };
        let bad = |cause| drop_with(bad_geneve(cause));
        let geneve = match geneve::parse(window, header) {
            Ok(geneve) => geneve,
            Err(cause) => return bad(cause),
        };
        if geneve.control {
            return drop_with(DropReason::GeneveControl);
        }
        let class = tunnel.option_class;
        let options = match geneve::options(window, header + 8, geneve.opt_len, class) {
            Ok(options) => options,
            Err(cause) => return bad(cause),
        };
        if options.unknown_critical {
            return drop_with(DropReason::GeneveCriticalOption);
        }
        if options.present != geneve::ALL_OPTIONS {
            return drop_with(DropReason::GeneveMissingOption);
        }
        if geneve.protocol != ethernet::IPV4 && geneve.protocol != ethernet::IPV6 {
            return drop_with(DropReason::TunnelProtocol);
        }
        self.scope_key = options.endpoint;
        self.options = geneve::usual_options(window, header + 8, geneve.opt_len, class);
        // A packet that a backend returns through our tunnel carries the endpoint and gateway of
        // its flow in its options.
        self.scope = match (is_backend(tunnel), options.endpoint) {
            (false, endpoint) => self.scope_of(TunnelKind::Geneve, tunnel.gateway, endpoint)?,
            (true, 0) => SCOPE_PLAIN,
            (true, endpoint) => {
                let gateway = options.attachment as u16;
                let mut tunnels = self.set.tunnels();
                let from = tunnels.find(|(_, t)| !is_backend(t) && t.gateway == gateway);
                let kind = from.and_then(|(_, t)| kind(t)).unwrap_or(TunnelKind::Geneve);
                self.scope_of(kind, gateway, endpoint)?
            }
        };
        Step::Continue(ParsedTunnel {
            tunnel: id,
            inner_at: geneve.payload,
            ethertype: geneve.protocol,
        })
    }

    fn vxlan(&mut self, window: &Window<'_>, outer: &Ip, header: u16) -> Step<ParsedTunnel> {
        let vxlan = match vxlan::parse(window, header) {
            Ok(vxlan) => vxlan,
            Err(Malformed::Short) => return drop_with(DropReason::TooShort),
            Err(_) => return drop_with(DropReason::VxlanFlags),
        };
        let of_vni =
            |(_, t): &(u32, &Tunnel)| kind(t) == Some(TunnelKind::Vxlan) && t.vni == vxlan.vni;
        let by_port = |tunnel: &(u32, &Tunnel)| of_vni(tunnel) && tunnel.1.port == outer.dport;
        if !self.set.tunnels().any(|tunnel| by_port(&tunnel)) {
            return drop_with(match self.set.tunnels().any(|tunnel| of_vni(&tunnel)) {
                false => DropReason::WrongVni,
                true => DropReason::WrongPort,
            });
        }
        let id = self.admitted(outer, TunnelKind::Vxlan, Some(vxlan.vni))?;
        let Ok(inner) = Ethernet::parse_at(window, vxlan.payload) else {
            return drop_with(DropReason::InnerMalformed);
        };
        if inner.ethertype != ethernet::IPV4 && inner.ethertype != ethernet::IPV6 {
            return drop_with(DropReason::TunnelProtocol);
        }
        if let Some(tunnel) = self.set.tunnel(id).filter(|tunnel| !is_backend(tunnel)) {
            self.scope_key = tunnel.scope_key;
            self.scope = self.scope_of(TunnelKind::Vxlan, tunnel.gateway, tunnel.scope_key)?;
        }
        Step::Continue(ParsedTunnel { tunnel: id, inner_at: inner.l3, ethertype: inner.ethertype })
    }

    fn scope_of(&self, kind: TunnelKind, gateway: u16, endpoint: u64) -> Step<u32> {
        match Scopes::new(self.region).peek(kind as u8, gateway, endpoint) {
            Some(scope) => Step::Continue(scope),
            None => drop_with(DropReason::ScopeTableFull),
        }
    }
}
