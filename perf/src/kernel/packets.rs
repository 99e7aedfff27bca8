//! The packets of a case: one or two frames, and each flow's addresses and ports.

use super::setting::{Failure, Order, Setting};
use crate::fixture::{
    AZURE, BACKEND, FRONTENDS, Family, GATEWAY, MACS, Workload, frontend_base, unmatched_base,
};
use packet::geneve::ATTACHMENT_MARK;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use tables::flow::Snapshot;
use tables::record::TunnelKind;
use tests::frames::{Frame, Ip, aws_options, tcp};

/// Bytes of the longest frame: GENEVE over IPv6 with Weir's options around 64 bytes.
pub(super) const LONGEST: usize = 166;
/// Bytes of the inner packet.
const INNER: usize = 64;
/// 64-bit words of a frame.
const FRAME: usize = LONGEST.div_ceil(8);
/// Words of a template: its parameters and the frame.
const TEMPLATE: usize = 3 + FRAME;
/// The contents of map `FEED`, in words: counter, mask, two templates.
pub(super) type FeedState = [u64; 2 + 2 * TEMPLATE];
/// The fields that differ between flows: inner source, destination, ports, outer source.
pub(super) type Words = [u32; 4];

/// Source ports per client address.
const CLIENT_PORTS: u32 = 1 << 14;
/// The endpoint behind the gateway.
const ENDPOINT: u64 = 0x0a11_ce00;

/// The direction of the packets in a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From clients, through the gateway.
    Requests,
    /// From backends: plain with NAT, in GENEVE with tunnels.
    Answers,
    /// From backends of a tunnel, plain.
    PlainAnswers,
    /// A request and an answer in turn, each of another flow.
    Both,
}

/// The packets of a case, in their order.
pub struct Packets {
    ends: Vec<Words>,
    templates: [Template; 2],
}

/// A frame, and the positions of the fields that differ between flows.
#[derive(Clone)]
struct Template {
    frame: Vec<u8>,
    v6: bool,
    /// Offset of the last word of the outer source, if it differs between flows; otherwise 0.
    outer: usize,
}

impl Packets {
    /// Builds requests of `flows` flows, a power of two; the flows need not exist.
    pub fn requests(setting: &Setting, flows: u32, order: Order) -> Packets {
        let template = Template::new(&request(setting), setting.family, false);
        let first = ends(&template.frame[template.frame.len() - INNER..], setting.family);
        let ends = order.numbers(flows).map(|flow| nth_request(first, flow)).collect();
        Packets { ends, templates: [template.clone(), template] }
    }

    /// Builds the packets of this direction for `flows` flows, which must be among those `known`
    /// unless the packets are requests.
    ///
    /// # Errors
    /// A flow does not exist.
    pub(super) fn of(
        setting: &Setting,
        known: Vec<Snapshot>,
        direction: Direction,
        flows: u32,
        order: Order,
    ) -> Result<Packets, Failure> {
        let requests = Packets::requests(setting, flows, order);
        if direction == Direction::Requests {
            return Ok(requests);
        }
        let known = known.into_iter().map(|flow| (client(&flow), flow));
        let known: HashMap<_, _> = known.collect();
        let plain = setting.work == Workload::Nat || direction == Direction::PlainAnswers;
        let mut answers = Vec::new();
        for [src, _, ports, _] in &requests.ends {
            let flow = known.get(&(*src, (ports >> 16) as u16)).ok_or("a flow is not known")?;
            answers.push(answer(setting.work, flow));
        }
        let frame = match plain {
            true => Frame::new(BACKEND, MACS[0], answer_packet(setting)),
            false => Frame::new(BACKEND, MACS[0], in_tunnel(setting, answer_packet(setting))),
        };
        let template = Template::new(&frame, setting.family, !plain);
        if direction != Direction::Both {
            return Ok(Packets { ends: answers, templates: [template.clone(), template] });
        }
        // Each round has all requests and all answers; those of the same flow are far apart.
        answers.rotate_left(flows as usize / 2);
        let ends = requests.ends.into_iter().zip(answers).flat_map(|(a, b)| [a, b]).collect();
        let [request, _] = requests.templates;
        Ok(Packets { ends, templates: [request, template] })
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = Words> {
        self.ends.iter().copied()
    }

    /// Returns the initial contents of map `FEED`.
    pub(super) fn feed_state(&self) -> FeedState {
        let mut fed = [0; 2 + 2 * TEMPLATE];
        fed[1] = self.ends.len() as u64 - 1;
        for (template, to) in self.templates.iter().zip(fed[2..].chunks_mut(TEMPLATE)) {
            template.write(to);
        }
        fed
    }
}

impl Template {
    fn new(frame: &Frame, family: Family, outer: bool) -> Template {
        let outer_at = if frame.ip.is_v6() { 34 } else { 26 };
        let outer = if outer { outer_at } else { 0 };
        Template { frame: frame.bytes(), v6: family == Family::V6, outer }
    }

    /// Writes the template in the format that the kernel program reads.
    fn write(&self, to: &mut [u64]) {
        let half = |at: usize| u64::from(self.frame[at]) << 8 | u64::from(self.frame[at + 1]);
        let sum = |at: usize| [0, 2, 4, 6, 8].into_iter().map(|i| half(at + i)).sum::<u64>();
        let inner = self.frame.len() - INNER;
        // The outer sum omits the source's last word and includes the destination.
        let outer_sum = match self.outer {
            26 => sum(14) + half(30) + half(32),
            _ => 0,
        };
        to[0] = self.frame.len() as u64 | (inner as u64) << 32;
        to[1] = u64::from(self.v6) | if self.v6 { 0 } else { sum(inner) << 32 };
        to[2] = outer_sum | (self.outer as u64) << 32;
        for (bytes, word) in self.frame.chunks(8).zip(&mut to[3..]) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
    }
}

/// Builds the first flow's request.
pub(super) fn request(setting: &Setting) -> Frame {
    let Setting { work, family, gateway } = *setting;
    let base =
        if work == Workload::Return { unmatched_base(family) } else { frontend_base(family) };
    let ip = tcp(first_client(family), &at(base, 80), 16).sized(INNER);
    let ip = match gateway {
        TunnelKind::Vxlan => {
            let (vni, port) = AZURE[0];
            let (from, to) = ([2, 0, 0, 0, 5, 1], [2, 0, 0, 0, 5, 2]);
            ip.in_vxlan("10.0.1.20:50000", &format!("10.0.1.10:{port}"), vni, from, to)
        }
        _ => ip.in_geneve("10.0.1.20:50000", "10.0.1.10:6081", aws_options(ENDPOINT, 0, 0xbeef)),
    };
    Frame::new(GATEWAY, MACS[0], ip)
}

/// Builds an answer; its addresses and ports are replaced by those of each flow.
fn answer_packet(setting: &Setting) -> Ip {
    let Setting { work, family, .. } = *setting;
    let (src, dst) = match work {
        Workload::Nat => {
            (at(crate::fixture::backend(family, 1), 8080), at(crate::fixture::nat(family), 1024))
        }
        _ => (at(frontend_base(family), 80), first_client(family).to_string()),
    };
    tcp(&src, &dst, 16).sized(INNER)
}

/// Encapsulates a backend's answer in Weir's GENEVE, with the options that the request had.
fn in_tunnel(setting: &Setting, ip: Ip) -> Ip {
    // 77 is the scope key of the fixture's VXLAN tunnels.
    let endpoint = if setting.gateway == TunnelKind::Vxlan { 77 } else { ENDPOINT };
    let local = match setting.family {
        Family::V4 => "10.0.2.10:6081",
        Family::V6 => "[fd00:0:0:2::a]:6081",
    };
    let backend = at(crate::fixture::backend(setting.family, 1), 50000);
    ip.in_geneve(&backend, local, aws_options(endpoint, ATTACHMENT_MARK, 0xbeef))
}

/// Reads addresses and ports of the TCP packet in `ip`.
fn ends(ip: &[u8], family: Family) -> Words {
    let (src, dst) = match family {
        Family::V4 => (12, 16),
        Family::V6 => (20, 36),
    };
    let word = |at: usize| ip[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    [word(src), word(dst), word(dst + 4), 0]
}

/// Returns the words of a flow's request, from the first flow's.
fn nth_request([src, dst, ports, _]: Words, flow: u32) -> Words {
    let ports = ports + ((flow % CLIENT_PORTS) << 16);
    [src + flow / CLIENT_PORTS, dst + flow % FRONTENDS, ports, 0]
}

/// Returns the last word of the client's address, and its port.
fn client(flow: &Snapshot) -> (u32, u16) {
    let (addr, port) = flow.front.end(flow.initiator);
    (u32::from_be(addr.words[3]), port)
}

/// Returns the words of a flow's answer.
fn answer(work: Workload, flow: &Snapshot) -> Words {
    let word = |addr: &packet::addr::Addr| u32::from_be(addr.words[3]);
    let forward = &flow.forward;
    let (src, dst) = match work {
        Workload::Nat => {
            ((forward.backend_addr, forward.backend_port), (*forward.nat_addr(), forward.nat_port))
        }
        _ => (flow.front.end(flow.initiator.other()), flow.front.end(flow.initiator)),
    };
    let ports = u32::from(src.1) << 16 | u32::from(dst.1);
    [word(&src.0), word(&dst.0), ports, word(&forward.backend_addr)]
}

fn first_client(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.64.0.0:1024",
        Family::V6 => "[2001:db8:64::]:1024",
    }
}

/// Formats an address with a port.
fn at(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}
