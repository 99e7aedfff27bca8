//! The gateway's flow table: the packets it sent, and therefore those that may return.

use super::incoming::{IncomingPacket, first};
use super::report::{Check, Report};
use super::setup::{Admits, GatewaySetup, Side};
use crate::lab::wire::{self, Header, Options, Tuple};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// The maximum number of packets awaited per direction of a flow.
const MAX_AWAITED: usize = 1_024;
/// The maximum number of recently returned packets that a flow records, to distinguish a duplicate
/// from a modified packet.
const MAX_RETURNED: usize = 64;
/// A direction without packets for this long is removed: the gateway's idle timeout.
const IDLE: Duration = Duration::from_secs(350);

/// How the gateway delivers a flow's packets at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leg {
    node: Ipv4Addr,
    appliance: Ipv4Addr,
    sport: u16,
    endpoint: u64,
    cookie: u32,
}

/// What the appliance should do with a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Return them unchanged.
    Return,
    /// Forward them to a service, which answers: only packets of the other direction come back.
    Answer,
    /// Either: without a far side, the gateway does not know which.
    Any,
}

/// A sent packet that may return.
struct Sent {
    at: Instant,
    leg: Leg,
    /// The inner packet as it should return.
    inner: Box<[u8]>,
}

/// One direction of a flow.
struct Flow {
    leg: Leg,
    /// Former legs, each with the time until which an answer may still use it.
    former: VecDeque<(Instant, Leg)>,
    /// The number of packets sent.
    packets: u64,
    /// The time of the last packet sent.
    last: Instant,
    expect: Expect,
    /// Packets that may return, in the order in which they were sent.
    sent: VecDeque<Sent>,
    /// Hashes of the packets that returned last.
    returned: VecDeque<u64>,
}

/// The state and the checks of the gateway. It has no socket and no clock.
pub struct Ledger {
    setup: GatewaySetup,
    admits: Admits,
    flows: HashMap<Tuple, Flow>,
    report: Report,
    hash: RandomState,
    next_cookie: u32,
}

impl Ledger {
    /// Creates a ledger without flows.
    pub fn new(setup: GatewaySetup) -> Self {
        let hash = RandomState::new();
        // Cookies start at a random number, so that those of two runs against one appliance
        // differ.
        let next_cookie = hash.hash_one("cookie") as u32;
        let (flows, report) = Default::default();
        Self { setup, admits: Admits::All, flows, report, hash, next_cookie }
    }

    /// Sets which packets are sent to appliances from now on.
    pub fn admit(&mut self, admits: Admits) {
        self.admits = admits;
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        let awaiting = self.flows.values().filter(|flow| flow.expect == Expect::Return);
        let awaited = awaiting.map(|flow| flow.sent.len() as u64).sum();
        Report { awaited, ..self.report.clone() }
    }

    /// Removes the flow's last packet: the kernel did not accept it, so it cannot return.
    pub fn not_sent(&mut self, inner: &[u8]) {
        self.report.sent -= 1;
        self.report.not_sent += 1;
        let Some(header) = Header::read(inner) else { return };
        if let Some(flow) = self.flows.get_mut(&Tuple::of(inner, &header)) {
            flow.sent.pop_back();
        }
    }

    /// Counts a correct packet as delivered if the TUN device of its side accepted it, and as not
    /// delivered otherwise.
    pub fn delivered(&mut self, accepted: bool) {
        self.report.delivered += u64::from(accepted);
        self.report.not_delivered += u64::from(!accepted);
    }

    /// Processes a packet from one side; returns the appliance and the outer IPv4 packet to send.
    pub fn outgoing(&mut self, inner: &[u8], now: Instant) -> Option<(Ipv4Addr, Vec<u8>)> {
        let header = Header::read(inner).filter(|header| !header.dst.is_multicast());
        let Some(header) = header else {
            self.report.not_sent += 1;
            return None;
        };
        if inner.len() > self.setup.largest_inner {
            self.report.too_big += 1;
            return None;
        }
        let tuple = Tuple::of(inner, &header);
        let exists = |tuple: &Tuple| self.flows.contains_key(tuple);
        let admitted = match self.admits {
            Admits::All => true,
            Admits::ExistingFlows => exists(&tuple) || exists(&tuple.reversed()),
            Admits::None => false,
        };
        if !admitted {
            self.report.not_admitted += 1;
            return None;
        }
        let leg = self.leg_for(tuple, inner, now);
        self.report.sent += 1;
        let geneve = leg.options(&self.setup).geneve(self.setup.class, inner[0]);
        let (node, appliance) = ((leg.node, leg.sport), (leg.appliance, self.setup.port));
        let pieces: [&[u8]; 2] = [&geneve, inner];
        Some((leg.appliance, wire::udp4(node, appliance, &pieces, self.setup.outer_checksum)))
    }

    /// Finds or creates the flow, changes its cookie or node if due, and records the packet.
    fn leg_for(&mut self, tuple: Tuple, inner: &[u8], now: Instant) -> Leg {
        let Self { setup, flows, report, next_cookie, .. } = self;
        let mut new_cookie = || {
            *next_cookie = next_cookie.wrapping_add(1);
            *next_cookie
        };
        let hash = self.hash.hash_one(tuple);
        let reverse_leg =
            flows.get(&tuple.reversed()).filter(|_| setup.symmetric).map(|flow| flow.leg);
        let flow = flows.entry(tuple).or_insert_with(|| {
            report.flows += 1;
            let leg = reverse_leg.unwrap_or_else(|| Leg {
                node: setup.nodes[hash as usize % setup.nodes.len()],
                appliance: setup.appliances[(hash >> 16) as usize % setup.appliances.len()],
                sport: 0xc000 | (hash >> 32) as u16,
                endpoint: endpoint_of(setup, &tuple),
                cookie: new_cookie(),
            });
            let far = setup.far.iter().any(|p| p.contains(tuple.src) || p.contains(tuple.dst));
            let expect = match far {
                true => Expect::Return,
                false if setup.far.is_empty() => Expect::Any,
                false => Expect::Answer,
            };
            let (former, sent, returned) = Default::default();
            Flow { leg, former, packets: 0, last: now, expect, sent, returned }
        });
        let due =
            |every: u32| every != 0 && flow.packets != 0 && flow.packets % u64::from(every) == 0;
        let (churn, roam) = (due(setup.churn), due(setup.roam));
        if churn || roam {
            flow.former.push_back((now + setup.former_for, flow.leg));
        }
        if churn {
            flow.leg.cookie = new_cookie();
            report.cookies_changed += 1;
        }
        if roam {
            let at = setup.nodes.iter().position(|node| *node == flow.leg.node).unwrap_or(0);
            flow.leg.node = setup.nodes[(at + 1) % setup.nodes.len()];
            report.nodes_changed += 1;
        }
        flow.packets += 1;
        flow.last = now;
        if flow.expect != Expect::Answer {
            if flow.sent.len() == MAX_AWAITED {
                let first = flow.sent.pop_front();
                lost(report, flow.expect, &tuple, first.as_slice());
            }
            flow.sent.push_back(Sent {
                at: now,
                leg: flow.leg,
                inner: wire::aged(inner, setup.hops),
            });
        }
        flow.leg
    }

    /// Checks a frame from the wire. Returns the side that it is for and the inner packet if the
    /// frame is correct. Frames that are not IPv4 with UDP from or to a node are ignored.
    pub fn incoming<'f>(&mut self, frame: &'f [u8], now: Instant) -> Option<(Side, &'f [u8])> {
        let packet = frame.get(14..)?;
        let src = Ipv4Addr::from(wire::be32(packet, 12)?);
        let dst = Ipv4Addr::from(wire::be32(packet, 16)?);
        let own = self.setup.nodes.contains(&dst) || self.setup.nodes.contains(&src);
        if packet[0] >> 4 != 4 || packet[9] != wire::UDP || !own {
            return None;
        }
        let back = match IncomingPacket::read(packet) {
            Ok(back) => back,
            Err((check, text)) => {
                self.report.fail(check, || text);
                return None;
            }
        };
        let header = Header::read(back.inner);
        let Some(header) = header.filter(|h| h.end == back.inner.len()) else {
            let text = || format!("truncated inner packet: {:02x?}", first(back.inner, 24));
            self.report.fail(Check::InnerBytes, text);
            return None;
        };
        let tuple = Tuple::of(back.inner, &header);
        let right = if self.flows.contains_key(&tuple) {
            self.returned(&tuple, &back)
        } else if let Some((about, quote)) = Tuple::quoted(back.inner, &header) {
            self.remove_quoted(&about, quote);
            let flow = if self.flows.contains_key(&about) { about } else { about.reversed() };
            self.answered(&flow, &back, &header, now)
        } else {
            self.answered(&tuple.reversed(), &back, &header, now)
        };
        let far = self.setup.far.iter().any(|p| p.contains(header.dst));
        right.then_some((if far { Side::Far } else { Side::Near }, back.inner))
    }

    /// Checks a packet of a direction in which the gateway sends: it must be one of those sent.
    fn returned(&mut self, tuple: &Tuple, back: &IncomingPacket<'_>) -> bool {
        let Some(flow) = self.flows.get_mut(tuple) else { return false };
        let hash = self.hash.hash_one(back.inner);
        let same = |sent: &Sent| *sent.inner == *back.inner;
        // Identical bytes may have been sent twice with different cookies; the sent packet with the
        // matching outer headers is preferred.
        let exact = flow.sent.iter().position(|s| same(s) && s.leg.agrees(back, &self.setup));
        let found = exact.or_else(|| flow.sent.iter().position(same));
        if flow.expect == Expect::Answer {
            let text = || format!("{tuple}: returned, expected an answer of a service");
            self.report.fail(Check::Direction, text);
            return false;
        }
        if found.is_none() && flow.returned.contains(&hash) {
            self.report.fail(Check::Duplicate, || format!("{tuple}: returned twice"));
            return false;
        }
        let alike = || flow.sent.iter().position(|s| s.inner.len() == back.inner.len());
        let Some(at) = found.or_else(alike).or((!flow.sent.is_empty()).then_some(0)) else {
            let bytes = first(back.inner, 40);
            let text = || format!("{tuple}: no packet was awaited: {bytes:02x?}");
            self.report.fail(Check::InnerBytes, text);
            return false;
        };
        let Some(sent) = flow.sent.remove(at) else { return false };
        if flow.returned.len() == MAX_RETURNED {
            flow.returned.pop_front();
        }
        flow.returned.push_back(hash);
        let mut right = self.leg_is_right(&sent.leg, back, tuple);
        if found.is_none() {
            let text = || format!("{tuple}: {}", difference(&sent.inner, back.inner));
            self.report.fail(Check::InnerBytes, text);
            right = false;
        }
        self.report.returned += u64::from(right);
        right
    }

    /// Checks a packet that answers the flow sent as `tuple`.
    fn answered(
        &mut self,
        tuple: &Tuple,
        back: &IncomingPacket<'_>,
        header: &Header,
        now: Instant,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(tuple) else {
            let text = || format!("{}: no such flow", Tuple::of(back.inner, header));
            self.report.fail(Check::Unexpected, text);
            return false;
        };
        flow.former.retain(|(until, _)| *until >= now);
        let latest = flow.leg;
        let former = flow.former.iter().any(|(_, leg)| leg.agrees(back, &self.setup));
        if flow.expect == Expect::Return && Tuple::quoted(back.inner, header).is_none() {
            let text = || format!("{tuple}: answered, expected to be returned");
            self.report.fail(Check::Direction, text);
            return false;
        }
        let mut right = true;
        if !latest.agrees(back, &self.setup) && former {
            self.report.answered_with_former += 1;
        } else {
            right = self.leg_is_right(&latest, back, tuple);
        }
        if !header.sums_are_right(back.inner) {
            let text = || format!("{tuple}: wrong checksum in {:02x?}", first(back.inner, 60));
            self.report.fail(Check::InnerChecksum, text);
            right = false;
        }
        self.report.answered += u64::from(right);
        right
    }

    /// Removes the sent packet that an ICMP error quotes: it was dropped, so it will not return.
    fn remove_quoted(&mut self, tuple: &Tuple, quote: &[u8]) {
        if let Some(flow) = self.flows.get_mut(tuple) {
            let quoted = |sent: &Sent| sent.inner.starts_with(&quote[..quote.len().min(28)]);
            if let Some(at) = flow.sent.iter().position(quoted) {
                flow.sent.remove(at);
            }
        }
    }

    /// Checks the headers around the inner packet (outer addresses, UDP ports, GENEVE header,
    /// options), and counts each one that differs from `leg`.
    fn leg_is_right(&mut self, leg: &Leg, back: &IncomingPacket<'_>, tuple: &Tuple) -> bool {
        let expected = leg.options(&self.setup).geneve(self.setup.class, back.inner[0]);
        let report = &mut self.report;
        let before = report.failures.values().map(|f| f.count).sum::<u64>();
        if (back.src, back.dst) != (leg.appliance, leg.node) {
            let text = || format!("{tuple}: from {} to {}, expected {leg:?}", back.src, back.dst);
            report.fail(Check::OuterAddresses, text);
        }
        if (back.sport, back.dport) != (leg.sport, self.setup.port) {
            report.fail(Check::UdpPorts, || {
                let expected = (leg.sport, self.setup.port);
                format!("{tuple}: ports {:?}, expected {expected:?}", (back.sport, back.dport))
            });
        }
        let (base, options) = back.geneve.split_at(8);
        if base != &expected[..8] {
            report.fail(Check::GeneveHeader, || {
                format!("{tuple}: header {base:02x?}, expected {:02x?}", &expected[..8])
            });
        }
        if options != &expected[8..] {
            report.fail(Check::Options, || {
                format!("{tuple}: options {options:02x?}, expected {:02x?}", &expected[8..])
            });
        }
        report.failures.values().map(|f| f.count).sum::<u64>() == before
    }

    /// Counts overdue packets as lost, and removes idle flows.
    pub fn expire(&mut self, now: Instant) {
        let Self { setup, flows, report, .. } = self;
        flows.retain(|tuple, flow| {
            while flow.sent.front().is_some_and(|sent| now - sent.at > setup.return_timeout) {
                let first = flow.sent.pop_front();
                lost(report, flow.expect, tuple, first.as_slice());
            }
            now - flow.last < IDLE
        });
    }
}

/// Counts packets that had to return and did not; others need not return.
fn lost(report: &mut Report, expect: Expect, tuple: &Tuple, sent: &[Sent]) {
    for sent in sent.iter().filter(|_| expect == Expect::Return) {
        report.fail(Check::Lost, || {
            format!("{tuple}: {} bytes, cookie {:08x}", sent.inner.len(), sent.leg.cookie)
        });
    }
}

/// Returns the endpoint of a flow's client: the end that is not on the far side.
fn endpoint_of(setup: &GatewaySetup, tuple: &Tuple) -> u64 {
    let from_far = setup.far.iter().any(|prefix| prefix.contains(tuple.src));
    let number = match if from_far { tuple.dst } else { tuple.src } {
        IpAddr::V4(client) => u128::from(u32::from(client)),
        IpAddr::V6(client) => u128::from(client),
    };
    setup.endpoints[(number % setup.endpoints.len() as u128) as usize]
}

impl Leg {
    /// Returns the options that the gateway sends on this leg.
    fn options(&self, setup: &GatewaySetup) -> Options {
        let Leg { endpoint, cookie, .. } = *self;
        Options { endpoint, attachment: setup.attachment, cookie }
    }

    /// Returns whether all headers around the inner packet are those of an answer on this leg.
    fn agrees(&self, back: &IncomingPacket<'_>, setup: &GatewaySetup) -> bool {
        let options = self.options(setup);
        (back.src, back.dst) == (self.appliance, self.node)
            && (back.sport, back.dport) == (self.sport, setup.port)
            && back.geneve == options.geneve(setup.class, back.inner[0])
    }
}

/// Describes the first difference of two packets.
fn difference(sent: &[u8], received: &[u8]) -> String {
    match sent.iter().zip(received).position(|(a, b)| a != b) {
        Some(at) => format!("byte {at} is {:02x}, sent as {:02x}", received[at], sent[at]),
        None => format!("{} bytes, {} sent", received.len(), sent.len()),
    }
}
