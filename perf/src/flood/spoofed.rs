//! The attacker: an endless sequence of packets with changing ends (addresses and ports).

use super::clients::{Client, Frames, Packet};
use super::plan::{Kind, Mode};
use super::wire::{End, Template};
use crate::feed::Order;
use crate::fixture::{BACKEND, FRONTENDS, MACS};
use tests::frames::{Frame, error, tcp, udp};

/// The number of spoofed source addresses: those of 10.128.0.0/9.
const SOURCES: u32 = 1 << 23;
/// The first spoofed source address.
const SOURCES_AT: u32 = 0x0a80_0000;
/// A router that is in no table.
const ROUTER: &str = "192.0.2.1";
/// The MTU that forged errors report, bytes.
const FORGED_MTU: u32 = 576;

/// Generates the packets of a flood.
pub struct Attacker {
    kind: Kind,
    mode: Mode,
    /// The kinds of packets, which are sent in turn.
    templates: Vec<Forgery>,
    sources: Order,
    sent: u64,
}

/// A kind of packet that an attacker sends, and the arm at which it arrives.
struct Forgery {
    template: Template,
    arm: u8,
    ends_of: ForgedEnds,
}

/// The ends of a forged packet.
#[derive(Clone, Copy)]
enum ForgedEnds {
    /// From a spoofed client to a frontend.
    Spoofed,
    /// From an established client to its frontend.
    Client,
    /// From an established client's frontend to the client.
    FrontendToClient,
    /// From the backend of an established NAT flow to Weir.
    BackendToWeir,
    /// From Weir to the backend of an established NAT flow.
    WeirToBackend,
    /// Unchanged from the template.
    Fixed,
}

impl Attacker {
    /// Creates an attacker of services in this mode.
    pub fn new(kind: Kind, mode: Mode, frames: &Frames) -> Attacker {
        let spoofed = |template: &Template| Forgery {
            template: template.clone(),
            arm: 0,
            ends_of: ForgedEnds::Spoofed,
        };
        let client = |packet| spoofed(frames.client(packet));
        let templates = match kind {
            Kind::Syn => vec![client(Packet::Syn)],
            Kind::Ack | Kind::Endpoints => vec![client(Packet::Ack)],
            Kind::Udp | Kind::AnsweredUdp => vec![client(Packet::Udp)],
            Kind::Fragments => {
                let datagram = udp("10.128.0.1:9999", "203.0.0.0:53").payload(&[0x57; 512]);
                vec![spoofed(&mode.arriving(datagram.may_fragment().part(0, 64, true)))]
            }
            Kind::Ttl => {
                let last_hop = udp("10.128.0.1:9999", "203.0.0.0:53").payload(b"who?").ttl(1);
                vec![spoofed(&mode.arriving(last_hop))]
            }
            Kind::Resets => resets(mode, frames),
            Kind::TooBig => too_big(mode),
        };
        Attacker { kind, mode, templates, sources: Order::new(SOURCES), sent: 0 }
    }

    /// Returns the arm and the bytes of the next packet.
    pub fn next(&mut self, established: &[Client]) -> (u8, &[u8]) {
        let n = self.sent;
        self.sent += 1;
        let count = self.templates.len() as u64;
        let forgery = &mut self.templates[(n % count) as usize];
        let victim = &established[(n / count) as usize % established.len()];
        let template = &mut forgery.template;
        match forgery.ends_of {
            ForgedEnds::Spoofed => {
                let source = self.sources.step();
                let src = End { addr: SOURCES_AT + source, port: 1024 + (n % 60_000) as u16 };
                let front = (n % u64::from(FRONTENDS)) as u32;
                let port = if self.kind.is_udp() { 53 } else { 80 };
                template.ends(src, End { addr: self.mode.target() + front, port });
            }
            ForgedEnds::Client => drop(template.ends(victim.client, victim.front)),
            ForgedEnds::FrontendToClient => drop(template.ends(victim.front, victim.client)),
            ForgedEnds::BackendToWeir => drop(template.ends(victim.backend(), victim.nat_end())),
            ForgedEnds::WeirToBackend => drop(template.ends(victim.nat_end(), victim.backend())),
            ForgedEnds::Fixed => {}
        }
        match self.kind {
            Kind::Fragments => drop(template.id(n as u16)),
            // Multiplication by an odd factor scatters the numbers. Setting the lowest bit keeps
            // them off the honest clients' endpoint, which is even.
            Kind::Endpoints => drop(template.endpoint(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            _ => {}
        }
        (forgery.arm, forgery.template.bytes())
    }
}

/// Builds resets with the ends of both sides of established connections.
fn resets(mode: Mode, frames: &Frames) -> Vec<Forgery> {
    let client = Forgery {
        template: frames.client(Packet::Reset).clone(),
        arm: 0,
        ends_of: ForgedEnds::Client,
    };
    let ends_of =
        if mode == Mode::Nat { ForgedEnds::BackendToWeir } else { ForgedEnds::FrontendToClient };
    let arm = mode.answers_at();
    match mode {
        // Backends' packets do not pass through Weir.
        Mode::Dsr => vec![client],
        _ => {
            vec![client, Forgery { template: frames.backend(Packet::Reset).clone(), arm, ends_of }]
        }
    }
}

/// Builds too-big errors: about an answer of an established flow; about a packet that Weir never
/// sends, from its own address to a backend; and about a packet of an established NAT flow.
fn too_big(mode: Mode) -> Vec<Forgery> {
    let answer = tcp("203.0.0.0:80", "10.64.0.0:1024", 0x10).sized(1_500);
    let answer = error(ROUTER, "203.0.0.0", (3, 4), FORGED_MTU, answer);
    let about_answer = Forgery {
        template: mode.arriving(answer).quoting(),
        arm: 0,
        ends_of: ForgedEnds::FrontendToClient,
    };
    let plain = |ip| Template::plain(Frame::new(BACKEND, MACS[1], ip).bytes());
    let never = udp("10.0.2.10:1234", "10.0.2.101:6081").sized(1_500);
    let never = error(ROUTER, "10.0.2.10", (3, 4), FORGED_MTU, never);
    let mut all = vec![about_answer];
    if mode != Mode::Return {
        all.push(Forgery { template: plain(never), arm: 1, ends_of: ForgedEnds::Fixed });
    }
    if mode == Mode::Nat {
        let translated = tcp("10.0.2.11:1024", "10.0.2.101:8080", 0x10).sized(1_500);
        let translated = error(ROUTER, "10.0.2.11", (3, 4), FORGED_MTU, translated);
        let template = plain(translated).quoting();
        all.push(Forgery { template, arm: 1, ends_of: ForgedEnds::WeirToBackend });
    }
    all
}
