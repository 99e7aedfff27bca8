//! Live flows, read from the flow table in the region, and the filter that `weir flows` and
//! `weir trace` apply.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use packet::addr::Addr;
use tables::command::TraceFilter;
use tables::flow::{Flows, NO_TUNNEL, PATH_RETURN, Snapshot, TcpState};
use tables::record::Mode;
use tables::region::Region;

use crate::control::report::{FlowPage, FlowReport};
use crate::live::{Live, PublishedTables};
use state::text::{address_port, protocol_text};

/// Condition on one end of a flow: its address, and optionally its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The address.
    pub addr: Addr,
    /// The port; `None` matches any port.
    pub port: Option<u16>,
}

impl End {
    /// Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
    pub(super) fn read(what: &str, text: &str) -> Result<End, String> {
        if let Ok(addr) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(End { addr: addr.into(), port: None });
        }
        match text.parse::<SocketAddr>() {
            Ok(both) => Ok(End { addr: both.ip().into(), port: Some(both.port()) }),
            Err(_) => Err(format!(
                "--{what} {text}: invalid address; write ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, \
                 such as 192.0.2.1:80"
            )),
        }
    }

    /// Returns whether this end matches `addr` and `port`.
    pub fn matches(&self, addr: Addr, port: u16) -> bool {
        self.addr == addr && self.port.is_none_or(|expected| expected == port)
    }
}

/// Filter of flows. All given conditions must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFilter {
    /// The end that began the flow.
    pub client: Option<End>,
    /// The address and port that the client sent to.
    pub frontend: Option<End>,
    /// The backend that serves the flow.
    pub backend: Option<End>,
    /// Name of the service.
    pub service: Option<String>,
    /// IP protocol number.
    pub protocol: Option<u8>,
}

impl FlowFilter {
    /// Parses the conditions as given on the command line.
    pub fn new(
        client: Option<&str>,
        frontend: Option<&str>,
        backend: Option<&str>,
        service: Option<&str>,
        protocol: Option<&str>,
    ) -> Result<FlowFilter, String> {
        let end = |what, text: Option<&str>| text.map(|text| End::read(what, text)).transpose();
        Ok(FlowFilter {
            client: end("client", client)?,
            frontend: end("frontend", frontend)?,
            backend: end("backend", backend)?,
            service: service.map(str::to_owned),
            protocol: protocol.map(read_protocol).transpose()?,
        })
    }
}

/// Parses a protocol by name or number.
pub(super) fn read_protocol(text: &str) -> Result<u8, String> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "icmpv6" => Ok(58),
        number => number.parse().map_err(|_| {
            format!("--protocol {text}: write tcp, udp, icmp, icmpv6 or a number up to 255")
        }),
    }
}

/// Names of services and tunnels by id.
struct Names<'a> {
    services: HashMap<u32, &'a str>,
    tunnels: HashMap<u32, &'a str>,
}

impl<'a> Names<'a> {
    fn new(published: &'a PublishedTables, region: &Region) -> Names<'a> {
        let published_services = published.services(region).iter();
        let services = published_services
            .flat_map(|one| one.ids.iter().map(|id| (*id, one.service.name.as_str())));
        let tunnels = published.tunnels.iter().map(|(id, name)| (*id, name.as_str()));
        Names { services: services.collect(), tunnels: tunnels.collect() }
    }

    fn service(&self, flow: &Snapshot) -> &'a str {
        match flow.forward.mode {
            PATH_RETURN => "",
            _ => self.services.get(&flow.forward.service).copied().unwrap_or("(removed)"),
        }
    }
}

impl FlowFilter {
    fn matches(&self, flow: &Snapshot, names: &Names<'_>) -> bool {
        let end_matches = |end: &Option<End>, (addr, port): (Addr, u16)| {
            end.is_none_or(|end| end.matches(addr, port))
        };
        let forward = &flow.forward;
        end_matches(&self.client, flow.front.end(flow.initiator))
            && end_matches(&self.frontend, flow.front.end(flow.initiator.other()))
            && end_matches(&self.backend, (forward.backend_addr, forward.backend_port))
            && self.protocol.is_none_or(|expected| expected == forward.proto)
            && self.service.as_deref().is_none_or(|expected| expected == names.service(flow))
    }

    /// Returns the filter with which each lcore traces `count` packets from client to frontend.
    /// Lcores cannot filter by service or backend: a `FlowFilter` that names one is replaced by the
    /// addresses and ports of the matching live flow with the latest packet.
    pub fn for_lcores(&self, live: &Live, count: u32) -> Result<TraceFilter, String> {
        let ends = |client: Option<End>, frontend: Option<End>| TraceFilter {
            src: client.map(|end| end.addr),
            sport: client.and_then(|end| end.port),
            dst: frontend.map(|end| end.addr),
            dport: frontend.and_then(|end| end.port),
            proto: self.protocol,
            count,
        };
        if self.service.is_none() && self.backend.is_none() {
            return Ok(ends(self.client, self.frontend));
        }
        let published = live.published();
        let names = Names::new(&published, live.region);
        let flows = Flows::new(live.region);
        let all = (0..flows.capacity()).filter_map(|path| flows.snapshot(path));
        let newest = all.filter(|flow| self.matches(flow, &names)).max_by_key(|f| f.last_seen_s);
        let flow = newest.ok_or("no live flow matches; `weir flows` lists all flows")?;
        let end = |(addr, port)| Some(End { addr, port: Some(port) });
        let filter =
            ends(end(flow.front.end(flow.initiator)), end(flow.front.end(flow.initiator.other())));
        Ok(TraceFilter { proto: Some(flow.forward.proto), ..filter })
    }
}

impl Live {
    /// `GET /flows`: returns up to `limit` flows that match the filter, in the order of the ids of
    /// their path records, beginning at id `from`.
    pub fn flows(&self, filter: &FlowFilter, from: u32, limit: u32) -> FlowPage {
        let published = self.published();
        let names = Names::new(&published, self.region);
        let flows = Flows::new(self.region);
        let now_s = self.region.now_s();
        let mut page = FlowPage { total: self.flows_in_use(), ..FlowPage::default() };
        for path in from..flows.capacity() {
            let Some(flow) = flows.snapshot(path).filter(|flow| filter.matches(flow, &names))
            else {
                continue;
            };
            if page.flows.len() as u32 == limit {
                page.next = Some(path);
                break;
            }
            page.flows.push(report(path, &flow, &names, now_s));
        }
        page
    }
}

fn report(path: u32, flow: &Snapshot, names: &Names<'_>, now_s: u32) -> FlowReport {
    let forward = &flow.forward;
    let pair = |(addr, port): (Addr, u16)| match addr {
        Addr::UNSPECIFIED => String::new(),
        addr => address_port(&addr.to_string(), port),
    };
    let tunnel = flow.gateway.tunnel;
    let gateway = names.tunnels.get(&u32::from(tunnel)).map_or_else(
        || if tunnel == NO_TUNNEL { String::new() } else { format!("tunnel {tunnel}") },
        |name| (*name).to_owned(),
    );
    FlowReport {
        path,
        kind: kind(forward.mode).to_owned(),
        protocol: protocol_text(forward.proto),
        client: pair(flow.front.end(flow.initiator)),
        frontend: pair(flow.front.end(flow.initiator.other())),
        service: names.service(flow).to_owned(),
        backend: pair((forward.backend_addr, forward.backend_port)),
        source: pair((*forward.nat_addr(), forward.nat_port)),
        node: if gateway.is_empty() { String::new() } else { flow.gateway.node.to_string() },
        gateway,
        state: flow.tcp.map_or("", state).to_owned(),
        idle_s: now_s.saturating_sub(flow.last_seen_s),
    }
}

fn kind(mode: u8) -> &'static str {
    const NAT: u8 = Mode::Nat as u8;
    const TUNNEL: u8 = Mode::Tunnel as u8;
    const DSR: u8 = Mode::Dsr as u8;
    match mode {
        PATH_RETURN => "return",
        NAT => "nat",
        TUNNEL => "tunnel",
        DSR => "dsr",
        _ => "?",
    }
}

fn state(tcp: TcpState) -> &'static str {
    match tcp {
        TcpState::Embryonic => "embryonic",
        TcpState::Established => "established",
        TcpState::Closing => "closing",
        TcpState::Closed => "closed",
        TcpState::Reset => "reset",
        TcpState::Reopened => "reopened",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn parses_addresses_with_and_without_ports() {
        let read = |text| End::read("client", text).unwrap();
        assert_eq!(read("192.0.2.1"), End { addr: addr("192.0.2.1"), port: None });
        assert_eq!(read("192.0.2.1:80"), End { addr: addr("192.0.2.1"), port: Some(80) });
        assert_eq!(read("2001:db8::1"), End { addr: addr("2001:db8::1"), port: None });
        assert_eq!(read("[2001:db8::1]"), read("2001:db8::1"));
        assert_eq!(read("[2001:db8::1]:80").port, Some(80));
        for wrong in ["", "web", "192.0.2.1:", "192.0.2.1:70000", "1.2.3:4"] {
            let error = End::read("client", wrong).unwrap_err();
            assert!(error.contains("--client") && error.contains("ADDRESS:PORT"), "{error}");
        }
    }

    #[test]
    fn an_address_without_a_port_matches_all_ports() {
        let any = End::read("client", "192.0.2.1").unwrap();
        let one = End::read("client", "192.0.2.1:80").unwrap();
        assert!(any.matches(addr("192.0.2.1"), 443) && !any.matches(addr("192.0.2.2"), 443));
        assert!(one.matches(addr("192.0.2.1"), 80) && !one.matches(addr("192.0.2.1"), 443));
    }

    #[test]
    fn parses_protocols_by_name_and_number() {
        let protocol = |text| FlowFilter::new(None, None, None, None, Some(text));
        assert_eq!(protocol("TCP").unwrap().protocol, Some(6));
        assert_eq!(protocol("47").unwrap().protocol, Some(47));
        assert!(protocol("300").unwrap_err().contains("--protocol 300"));
    }
}
