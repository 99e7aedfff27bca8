//! Writes the packets of many flows into buffers without contents.
//!
//! Writing is part of every figure taken between `net_null` ports, so it is as cheap as possible:
//! a copy of a fixed length, and two stores for the fields that differ between flows. The order
//! is computed, not stored, so that it takes no cache space from the flow table.

use crate::fixture::{
    FRONTENDS, Family, GATEWAY, MACS, Workload, frontend_base, frontends, unmatched_base,
};
use ::tests::frames::{Frame, aws_options, tcp};
use std::net::IpAddr;

/// Bytes of a frame from the gateway, with an IP packet of 64 bytes inside its tunnel in both
/// address families.
pub const REQUEST: usize = 146;

/// Bytes of the frame of a backend's answer, an IP packet of 64 bytes without a tunnel.
pub const ANSWER: usize = 78;

/// Bytes in front of a request's inner packet: Ethernet, IPv4, UDP, GENEVE, AWS's options.
pub const INNER: usize = REQUEST - 64;

/// Bytes in front of an answer's IP packet.
pub const PLAIN: usize = ANSWER - 64;

/// Source ports per client address.
const CLIENT_PORTS: u32 = 1 << 14;

/// Gateway nodes that carry the packets of each endpoint, where there are several.
const NODES: u32 = 4;

/// The numbers below a bound, each once per round, in an order that caches cannot predict.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    at: u32,
    mask: u32,
    bound: u32,
}

impl Order {
    /// Creates an order of the numbers below `bound`, which is at least 1.
    pub fn new(bound: u32) -> Order {
        Order { at: 0, mask: bound.next_power_of_two() - 1, bound }
    }

    /// Returns the next number.
    #[inline(always)]
    pub fn step(&mut self) -> u32 {
        loop {
            // A full-period linear congruential generator (Hull and Dobell): with this factor and
            // an odd increment, all numbers up to the mask occur before one repeats.
            self.at = self.at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & self.mask;
            if self.at < self.bound {
                return self.at;
            }
        }
    }
}

/// The fields that differ between flows: the low words of the addresses, and the TCP ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    src: u32,
    dst: u32,
    ports: u32,
}

impl Ends {
    /// Reads the fields from the TCP packet in `ip`, which has no options or extension headers.
    fn of(ip: &[u8], family: Family) -> Ends {
        let (src, dst) = word_offsets(family);
        let word = |at: usize| ip[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        Ends { src: word(src), dst: word(dst), ports: word(dst + 4) }
    }

    /// Returns the ends of the opposite direction.
    fn back(self) -> Ends {
        Ends { src: self.dst, dst: self.src, ports: self.ports.rotate_left(16) }
    }
}

/// Returns the offsets of the addresses' last words in an IP header; the ports follow the second.
#[inline(always)]
fn word_offsets(family: Family) -> (usize, usize) {
    match family {
        Family::V4 => (12, 16),
        Family::V6 => (20, 36),
    }
}

/// A frame of `LEN` bytes whose IP packet begins at `IP`.
#[derive(Clone, Debug)]
struct Template<const LEN: usize, const IP: usize> {
    bytes: [u8; LEN],
    family: Family,
    /// IPv4: TTL and protocol.
    ttl_and_protocol: u64,
    /// IPv4: the sum of the header's 16-bit words without checksum and addresses.
    sum: u32,
}

impl<const LEN: usize, const IP: usize> Template<LEN, IP> {
    /// Creates a template of `frame`, whose length must be `LEN`.
    fn new(frame: &Frame, family: Family) -> Self {
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(&frame.bytes());
        let half = |at: usize| u16::from_be_bytes([bytes[IP + at], bytes[IP + at + 1]]);
        let sum = [0, 2, 4, 6, 8].iter().map(|at| u32::from(half(*at))).sum();
        Template { bytes, family, ttl_and_protocol: half(8).into(), sum }
    }

    /// Writes the template into `frame` with other ends. The IPv4 header checksum is correct; the
    /// TCP checksum remains the template's, since nothing on the path verifies it. Returns false
    /// if `frame` has another length.
    #[inline(always)]
    fn write(&self, ends: Ends, frame: &mut [u8]) -> bool {
        let Ok(frame) = <&mut [u8; LEN]>::try_from(frame) else { return false };
        // In two parts, since a single copy of more than 128 bytes would compile to a call.
        frame[..64].copy_from_slice(&self.bytes[..64]);
        frame[64..].copy_from_slice(&self.bytes[64..]);
        let (src, dst) = (u64::from(ends.src), u64::from(ends.dst));
        match self.family {
            Family::V4 => {
                let checksum = checksum(self.sum, &ends);
                let first = self.ttl_and_protocol << 48 | checksum << 32 | src;
                store(frame, IP + 8, first.to_be_bytes());
                store(frame, IP + 16, (dst << 32 | u64::from(ends.ports)).to_be_bytes());
            }
            Family::V6 => {
                store(frame, IP + 20, ends.src.to_be_bytes());
                store(frame, IP + 36, (dst << 32 | u64::from(ends.ports)).to_be_bytes());
            }
        }
        true
    }
}

/// Returns the checksum of an IPv4 header (RFC 1071) whose other fields have this sum.
#[inline(always)]
fn checksum(others: u32, ends: &Ends) -> u64 {
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let sum = others + halves(ends.src) + halves(ends.dst);
    // The sum of nine halves: the first fold leaves at most one carry.
    let sum = halves(halves(sum));
    u64::from(!sum & 0xffff)
}

#[inline(always)]
fn store<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(to) = frame[at..].first_chunk_mut() {
        *to = bytes;
    }
}

/// Returns the first client's address and port.
fn client(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.64.0.0:1024",
        Family::V6 => "[2001:db8:64::]:1024",
    }
}

/// The frames of an AWS gateway, one per flow.
#[derive(Clone, Debug)]
pub struct Requests {
    /// One per pair of an endpoint and a gateway node; their number is a power of two.
    templates: Vec<Template<REQUEST, INNER>>,
    /// The ends of flow 0.
    first: Ends,
    /// The number of frontends that the flows are spread over.
    frontends: u32,
    /// Whether source and destination are swapped: the other side's packets through the same
    /// gateway.
    reversed: bool,
}

impl Requests {
    /// Creates packets of established TCP connections: to frontends, or to addresses without a
    /// service for [`Workload::Return`].
    pub fn new(work: Workload, family: Family) -> Requests {
        Requests::by_pairs(work, family, 1)
    }

    /// Creates the same packets for `pairs` pairs of endpoint and node, at most 256, rounded up
    /// to a power of two.
    pub fn by_pairs(work: Workload, family: Family, pairs: u32) -> Requests {
        let client = client(family);
        let base =
            if work == Workload::Return { unmatched_base(family) } else { frontend_base(family) };
        let port = if work == Workload::Elsewhere { 81 } else { 80 };
        let ip = tcp(client, &at(base, port), 16).sized(64);
        let template = |pair: u32| {
            let options = aws_options(0x0a11_ce00 + u64::from(pair / NODES), 0, 0xbeef);
            let node = format!("10.0.1.{}:50000", 20 + pair % NODES);
            let ip = ip.clone().in_geneve(&node, "10.0.1.10:6081", options);
            Template::new(&Frame::new(GATEWAY, MACS[0], ip), family)
        };
        let templates: Vec<_> =
            (0..pairs.clamp(1, 256).next_power_of_two()).map(template).collect();
        let first = Ends::of(&templates[0].bytes[INNER..], family);
        Requests { templates, first, frontends: FRONTENDS, reversed: false }
    }

    /// Spreads the flows over the frontends of `services` services.
    pub fn to_services(self, services: u32) -> Requests {
        Requests { frontends: frontends(services), ..self }
    }

    /// Swaps the direction: the same flows' packets from the other side, through the same
    /// gateway.
    pub fn reversed(self) -> Requests {
        Requests { reversed: !self.reversed, ..self }
    }

    #[inline(always)]
    fn ends(&self, flow: u32) -> Ends {
        let ends = Ends {
            src: self.first.src + flow / CLIENT_PORTS,
            dst: self.first.dst + flow % self.frontends,
            ports: self.first.ports + ((flow % CLIENT_PORTS) << 16),
        };
        if self.reversed { ends.back() } else { ends }
    }

    /// Writes the packet of a flow into `frame`. Returns false if the frame's length is not
    /// [`REQUEST`].
    #[inline(always)]
    #[must_use]
    pub fn write(&self, flow: u32, frame: &mut [u8]) -> bool {
        let template = &self.templates[flow as usize & (self.templates.len() - 1)];
        template.write(self.ends(flow), frame)
    }
}

/// The backends' frames, one per flow, in response to the requests that they received.
#[derive(Clone, Debug)]
pub struct Answers {
    template: Template<ANSWER, PLAIN>,
    flows: Vec<Ends>,
    next: usize,
}

impl Answers {
    /// Creates an empty set. With NAT, a backend's answers have a NAT address of Weir as
    /// destination; with a tunnel, the client's address.
    pub fn new(work: Workload, family: Family) -> Answers {
        let (src, dst) = match work {
            Workload::Tunnel => (at(frontend_base(family), 80), client(family).to_string()),
            _ => (
                at(crate::fixture::backend(family, 1), 8080),
                at(crate::fixture::nat(family), 1024),
            ),
        };
        let ip = tcp(&src, &dst, 16).sized(64);
        let template = Template::new(&Frame::new(crate::fixture::BACKEND, MACS[1], ip), family);
        Answers { template, flows: Vec::new(), next: 0 }
    }

    /// Creates answers to `flows` requests as if each request had reached its backend unchanged, to
    /// measure the writing of frames alone.
    pub fn to_requests(family: Family, flows: u32) -> Answers {
        let requests = Requests::new(Workload::Tunnel, family);
        let flows = (0..flows).map(|flow| requests.ends(flow).back()).collect();
        Answers { flows, ..Answers::new(Workload::Tunnel, family) }
    }

    /// Adds the answer to a request, given its IP packet as the backend received it.
    pub fn learn(&mut self, received: &[u8]) {
        self.flows.push(Ends::of(received, self.template.family).back());
    }

    /// Returns the answers of flows `first` to `end` (exclusive), in an order that caches cannot
    /// predict.
    pub fn of_flows(&self, first: u32, end: u32) -> Answers {
        let mut order = Order::new(end - first);
        let flows = (first..end).map(|_| self.flows[(first + order.step()) as usize]);
        // Start in the middle, so that answers are not in step with the requests.
        let next = ((end - first) / 2) as usize;
        Answers { template: self.template.clone(), flows: flows.collect(), next }
    }

    /// Writes the answer of the flow added as number `flow` into `frame`. Returns false if the
    /// frame's length is not [`ANSWER`].
    #[must_use]
    pub fn write(&self, flow: u32, frame: &mut [u8]) -> bool {
        self.template.write(self.flows[flow as usize], frame)
    }

    /// Writes the next answer into `frame`. Returns false if the frame's length is not [`ANSWER`].
    #[inline(always)]
    #[must_use]
    pub fn write_next(&mut self, frame: &mut [u8]) -> bool {
        let ends = self.flows[self.next];
        self.next = if self.next + 1 == self.flows.len() { 0 } else { self.next + 1 };
        self.template.write(ends, frame)
    }
}

/// Formats an address with a port.
fn at(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

    #[test]
    fn order_yields_each_number_once_per_round() {
        for bound in [1, 2, 1000, 1024, 65_536, 70_000] {
            let mut order = Order::new(bound);
            for _ in 0..2 {
                let round: HashSet<u32> = (0..bound).map(|_| order.step()).collect();
                assert_eq!(round.len(), bound as usize);
            }
        }
    }

    #[test]
    fn packets_of_all_flows_differ_and_match_the_workload() {
        for family in FAMILIES {
            for (work, base) in
                [(Workload::Return, unmatched_base(family)), (Workload::Nat, frontend_base(family))]
            {
                let requests = Requests::new(work, family);
                let frames: HashSet<Vec<u8>> = (0..100_000)
                    .map(|flow| {
                        let mut frame = vec![0; REQUEST];
                        assert!(requests.write(flow, &mut frame));
                        frame
                    })
                    .collect();
                assert_eq!(frames.len(), 100_000);
                let mut frame = [0; REQUEST];
                assert!(requests.write(0, &mut frame) && !requests.write(0, &mut frame[1..]));
                let client = if family == Family::V4 { "10.64.0.0" } else { "2001:db8:64::" };
                let ip = tcp(&at(client.parse().unwrap(), 1024), &at(base, 80), 16).sized(64);
                assert_eq!(frame[INNER..], ip.bytes());
                for flow in [1, 999, 70_000] {
                    assert!(requests.write(flow, &mut frame));
                    let packet = packet::window::Window::new(&mut frame[INNER..]).sum(0, 20);
                    let sum = packet::checksum::fold(packet.unwrap());
                    assert!(family == Family::V6 || sum == 0xffff, "{flow}: {sum:x}");
                }
            }
        }
    }

    #[test]
    fn reversed_packets_swap_source_and_destination() {
        for family in FAMILIES {
            let (forward, back) = (
                Requests::by_pairs(Workload::Return, family, 4),
                Requests::by_pairs(Workload::Return, family, 4).reversed(),
            );
            let (mut a, mut b) = ([0; REQUEST], [0; REQUEST]);
            for flow in [0, 1, 999, 70_000] {
                assert!(forward.write(flow, &mut a) && back.write(flow, &mut b));
                let ends = Ends::of(&a[INNER..], family);
                assert_eq!(Ends::of(&b[INNER..], family), ends.back(), "{family:?} {flow}");
                assert_eq!(a[..INNER], b[..INNER]);
            }
        }
    }

    #[test]
    fn reply_comes_from_the_destination_of_its_request() {
        for family in FAMILIES {
            let (nat, backend) = (crate::fixture::nat(family), crate::fixture::backend(family, 1));
            let mut answers = Answers::new(Workload::Nat, family);
            for port in 2000..2010 {
                answers.learn(&tcp(&at(nat, port), &at(backend, 8080), 16).bytes());
            }
            let (mut some, mut ports) = (answers.of_flows(2, 7), HashSet::new());
            for _ in 0..5 {
                let mut frame = [0; ANSWER];
                assert!(some.write_next(&mut frame));
                let ends = Ends::of(&frame[PLAIN..], family);
                assert_eq!(ends.ports >> 16, 8080);
                ports.insert(ends.ports & 0xffff);
                let expected = tcp(&at(backend, 8080), &at(nat, 1024), 16).sized(64).bytes();
                let (_, dst) = word_offsets(family);
                assert_eq!(frame[PLAIN + 8..PLAIN + dst + 4], expected[8..dst + 4], "{family:?}");
            }
            assert_eq!(ports, (2002..2007).collect());
        }
    }
}
