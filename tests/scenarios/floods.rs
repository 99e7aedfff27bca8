//! Floods of spoofed packets beside clients, on both planes: established connections lose no
//! packet, and new ones succeed. One test counts simulated milliseconds; the others count time in
//! rounds with a fixed number of spoofed packets.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use planes::memory::Memory;
use planes::xdp::{Xdp, namespace};
use std::collections::VecDeque;
use std::error::Error;
use tables::flow::{DEFAULT_PERCENT, budget};
use tests::cases::addresses::{
    BACKEND, EGRESS, FRONTEND, INGRESS, OUR_NAT, from_backend, from_gateway,
};
use tests::cases::setups::{Setup, WEB, WEB_BACKEND, aws_nat, service};
use tests::cases::{Exit, Plane};
use tests::frames::{Frame, Ip, flags, tcp, udp};

/// The frontend of the UDP service "dns".
const DNS: &str = "203.0.113.10:53";
/// The backend of "dns", with NAT.
const DNS_BACKEND: &str = "10.0.2.11:5353";
/// `region.max_flows`: half of them may be unconfirmed.
const MAX_FLOWS: u32 = 4096;
/// Connections established before the flood.
const ESTABLISHED: u32 = 500;
/// Clients that connect during the flood, one per round.
const NEW: u32 = 600;
/// Packets of the flood in each round.
const FLOOD: u32 = 20;
/// Numbers of rounds from a client's packet to its answer, and as many from the answer to the
/// client's next packet; each test uses all three.
const DELAYS: [usize; 3] = [1, 10, 20];

/// Creates a setup with NAT, or with a tunnel whose answers return through Weir.
fn setup(mode: &'static str) -> Setup {
    let keys = match mode {
        "nat" => "mode = \"nat\"",
        _ => "mode = \"tunnel\"\ntunnel = \"geneve\"",
    };
    let dns = r#"{address = "203.0.113.10", port = 53, protocol = "udp"}"#;
    let port = if mode == "nat" { ", port = 5353" } else { "" };
    let web = if mode == "nat" { WEB_BACKEND } else { r#"{address = "10.0.2.11"}"# };
    let backend = format!("{{address = \"10.0.2.11\"{port}}}");
    let services = service("web", keys, WEB, web) + &service("dns", keys, dns, &backend);
    Setup { services, max_flows: MAX_FLOWS, ..aws_nat().named(mode) }
}

/// A client of the web service, by number.
#[derive(Clone, Copy)]
struct Client {
    number: u32,
    /// The NAT port of the client's connection; with a tunnel the client's own port.
    port: u16,
}

impl Client {
    /// Returns the address and port of client number `number`.
    fn at(number: u32) -> String {
        format!("198.51.{}.{}:{}", 100 + number / 250, 1 + number % 250, 20_000 + number % 9)
    }

    fn packet(number: u32, flags: u8) -> Ip {
        tcp(&Client::at(number), FRONTEND, flags)
    }
}

/// Returns the source port of a TCP or UDP packet, plain or in GENEVE with Weir's options.
fn source_port(mode: &str, frame: &[u8]) -> u16 {
    // After Ethernet, in a tunnel IPv4, UDP and GENEVE with 32 bytes of options, and IPv4.
    let at = if mode == "nat" { 14 + 20 } else { 14 + 20 + 8 + 8 + 32 + 20 };
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// A plane with the tables of [`setup`].
struct Fixture<'p> {
    plane: &'p mut dyn Plane,
    mode: &'static str,
}

impl Fixture<'_> {
    /// Returns the source port of a client's packet at the backend; `None` if it did not arrive.
    fn sends_request(&mut self, ip: Ip) -> Option<u16> {
        let left = self.plane.send(INGRESS, &from_gateway(1, ip).bytes());
        match &left[..] {
            [(Exit::Port(EGRESS), frame)] => Some(source_port(self.mode, frame)),
            _ => None,
        }
    }

    fn is_answered(&mut self, frame: Frame) -> bool {
        let left = self.plane.send(EGRESS, &frame.bytes());
        matches!(&left[..], [(Exit::Port(INGRESS), _)])
    }

    /// Sends a client's SYN; `None` if it did not reach the backend.
    fn connects(&mut self, number: u32) -> Option<Client> {
        self.sends_request(Client::packet(number, flags::SYN)).map(|port| Client { number, port })
    }

    /// Returns whether the backend's answer reaches the client.
    fn gets_reply(&mut self, client: Client, flags: u8) -> bool {
        let ip = match self.mode {
            "nat" => tcp(BACKEND, OUR_NAT, flags).to_port(client.port),
            _ => tcp(FRONTEND, &Client::at(client.number), flags),
        };
        self.is_answered(from_backend(11, ip))
    }

    /// Returns whether the client's next packet reaches the backend from the same source port, and
    /// so in the same connection.
    fn continues(&mut self, client: Client) -> bool {
        self.sends_request(Client::packet(client.number, flags::ACK)) == Some(client.port)
    }

    /// Sends one spoofed packet, and for "answered udp" the backend's answer.
    fn spoofed(&mut self, kind: &str, n: u32) {
        let from = format!("10.{}.{}.{}:{}", 64 + n / 62_500, n / 250 % 250, 1 + n % 250, 9_999);
        match kind {
            "syn" => drop(self.sends_request(tcp(&from, FRONTEND, flags::SYN))),
            "ack" => drop(self.sends_request(tcp(&from, FRONTEND, flags::ACK))),
            "udp" => drop(self.sends_request(udp(&from, DNS).payload(b"who?"))),
            "answered udp" => {
                let Some(port) = self.sends_request(udp(&from, DNS).payload(b"who?")) else {
                    return;
                };
                let answer = match self.mode {
                    "nat" => udp(DNS_BACKEND, OUR_NAT).to_port(port),
                    _ => udp(DNS, &from),
                };
                self.is_answered(from_backend(11, answer.payload(b"he!")));
            }
            other => panic!("no kind of flood: {other}"),
        }
    }
}

/// Runs a flood. Panics if a client loses a packet.
fn run_flood(plane: &mut dyn Plane, mode: &'static str, kind: &str, delay: usize) {
    plane.load(&setup(mode));
    let about = format!("{kind} on {} in mode {mode}, delay {delay}", plane.name());
    let mut fixture = Fixture { plane, mode };
    let ack = flags::ACK;
    let mut established = Vec::new();
    for number in 0..ESTABLISHED {
        let client = fixture.connects(number).unwrap_or_else(|| panic!("{about}: no connection"));
        assert!(
            fixture.gets_reply(client, flags::SYN | ack) && fixture.continues(client),
            "{about}"
        );
        established.push(client);
    }
    let (mut opened, mut answered) = (VecDeque::new(), VecDeque::new());
    let (mut spoofed, mut failed) = (0, Vec::new());
    for round in 0..NEW {
        for _ in 0..FLOOD {
            fixture.spoofed(kind, spoofed);
            spoofed += 1;
        }
        match fixture.connects(ESTABLISHED + round) {
            Some(client) => opened.push_back(client),
            None => failed.push((ESTABLISHED + round, "no SYN")),
        }
        if opened.len() > delay
            && let Some(client) = opened.pop_front()
        {
            match fixture.gets_reply(client, flags::SYN | ack) {
                true => answered.push_back(client),
                false => failed.push((client.number, "no answer")),
            }
        }
        if answered.len() > delay
            && let Some(client) = answered.pop_front()
            && !fixture.continues(client)
        {
            failed.push((client.number, "another connection"));
        }
        let client = established[round as usize % established.len()];
        assert!(fixture.gets_reply(client, ack), "{about}: {} received no answer", client.number);
        assert!(fixture.continues(client), "{about}: {} lost its connection", client.number);
    }
    let first = failed.first();
    assert!(failed.is_empty(), "{about}: {} of {NEW} clients, first {first:?}", failed.len());
    for client in established {
        assert!(
            fixture.continues(client) && fixture.gets_reply(client, ack),
            "{about}: lost later"
        );
    }
    let counts = fixture.plane.counts();
    assert_eq!(counts.entered(), counts.ended(), "{about}");
    assert!(
        spoofed > budget(MAX_FLOWS, DEFAULT_PERCENT[0]),
        "{about}: the flood did not fill the table"
    );
}

/// Milliseconds from a client's packet to its answer, and from the answer to its next packet.
const ROUND_TRIP_MS: u32 = 100;
/// Packets of the flood per millisecond. Without a limit of new flows, an unconfirmed flow is
/// evicted after 20 ms.
const FAST_FLOOD: u32 = 100;

/// Runs a SYN flood with one new client per millisecond. Returns how many clients' SYNs passed (of
/// those that the test follows to the end), and how many of these clients could continue after two
/// round trips.
fn run_fast_flood(new_flows: &'static str) -> (u32, u32) {
    let mut plane = Memory::new();
    plane.load(&Setup { new_flows, ..setup("nat") });
    let ack = flags::ACK;
    let mut established = Vec::new();
    for number in 0..ESTABLISHED {
        // Slowly, so that the limit of new flows rejects none of them.
        plane.loaded().lcore.advance_us(10_000);
        let mut fixture = Fixture { plane: &mut plane, mode: "nat" };
        let client = fixture.connects(number).expect("a connection before the flood");
        assert!(fixture.gets_reply(client, flags::SYN | ack) && fixture.continues(client));
        established.push(client);
    }
    let (mut opened, mut answered) = (VecDeque::new(), VecDeque::new());
    let (mut admitted, mut completed) = (0, 0);
    for ms in 0..10 * ROUND_TRIP_MS {
        plane.loaded().lcore.advance_us(1_000);
        let mut fixture = Fixture { plane: &mut plane, mode: "nat" };
        for n in 0..FAST_FLOOD {
            // The client's position in the millisecond varies, because the token bucket is refilled
            // and emptied in the course of each.
            if n == ms * 37 % FAST_FLOOD
                && let Some(client) = fixture.connects(ESTABLISHED + ms)
            {
                admitted += 1;
                opened.push_back((ms + ROUND_TRIP_MS, client));
            }
            fixture.spoofed("syn", ms * FAST_FLOOD + n);
        }
        if let Some((_, client)) = opened.pop_front_if(|(due, _)| *due == ms)
            && fixture.gets_reply(client, flags::SYN | ack)
        {
            answered.push_back((ms + ROUND_TRIP_MS, client));
        }
        if let Some((_, client)) = answered.pop_front_if(|(due, _)| *due == ms) {
            completed += u32::from(fixture.continues(client));
        }
        let client = established[ms as usize % established.len()];
        assert!(
            fixture.gets_reply(client, ack) && fixture.continues(client),
            "lost {}",
            client.number
        );
    }
    let waiting = opened.len() + answered.len();
    let counts = plane.counts();
    assert_eq!(counts.entered(), counts.ended());
    (admitted - waiting as u32, completed)
}

#[test]
fn clients_admitted_in_a_flood_beyond_the_limit_stay() {
    let (admitted, completed) = run_fast_flood("");
    assert!(admitted >= 40, "only {admitted} clients were admitted");
    assert_eq!(completed, admitted, "the limit is too high: admitted clients lose their NAT port");
    let (admitted, completed) = run_fast_flood("nat_new_per_s = 0");
    assert!(admitted >= 800 && completed == 0, "{completed} of {admitted} clients without a limit");
}

fn run_floods(plane: &mut dyn Plane) {
    for mode in ["nat", "tunnel"] {
        let kinds = ["syn", "ack", "udp", "answered udp"];
        for kind in kinds {
            for delay in DELAYS {
                run_flood(plane, mode, kind, delay);
            }
        }
    }
}

#[test]
fn clients_lose_no_packet_in_a_flood_in_memory() {
    run_floods(&mut Memory::new());
}

#[test]
fn clients_lose_no_packet_in_a_flood_in_the_kernel() -> Result<(), Box<dyn Error>> {
    let namespace = namespace("floods-xdp")?;
    namespace.run(|| run_floods(&mut Xdp::new()))?;
    Ok(())
}
