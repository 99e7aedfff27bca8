//! The parameters of a simulation: service mode, kind of flood, and rates.

use std::net::IpAddr;

use ::tests::frames::{Frame, Ip, aws_options};
use tables::record::{ErrorLimits, Mode as ServiceMode, TunnelKind};

use super::wire::Template;
use crate::fixture::{self, Family, GATEWAY, MACS, Policy};

/// Round trips of new clients, milliseconds.
pub const ROUND_TRIPS_MS: [u64; 3] = [1, 20, 100];

/// Limits of ICMP errors: the defaults of the configuration.
pub(super) const ERROR_LIMITS: ErrorLimits =
    ErrorLimits { by_arm: 1_000, to_network: 100, path_mtu: 100 };

/// Index of the tally of established clients.
pub(super) const ESTABLISHED: usize = 0;

/// Index of the first tally of new clients during the flood, one for each round trip.
pub(super) const DURING: usize = 1;

/// Index of the first tally of new clients after the flood, one for each round trip.
pub(super) const AFTER: usize = DURING + ROUND_TRIPS_MS.len();

/// Number of tallies.
pub(super) const TALLIES: usize = AFTER + ROUND_TRIPS_MS.len();

/// How packets reach the backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Not at all: packets are returned to the gateway.
    Return,
    /// Through GENEVE; backends answer through Weir.
    Tunnel,
    /// Through IP in IP, for packets that arrive without a tunnel; backends answer directly.
    Dsr,
    /// Through NAT44.
    Nat,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Return, Mode::Tunnel, Mode::Dsr, Mode::Nat];

    pub(super) fn policy(self) -> Policy {
        let (mode, tunnel) = match self {
            Mode::Return | Mode::Tunnel => (ServiceMode::Tunnel, TunnelKind::Geneve),
            Mode::Dsr => (ServiceMode::Dsr, TunnelKind::Ipip),
            Mode::Nat => (ServiceMode::Nat, TunnelKind::Geneve),
        };
        let (ports, gateway) = (&[(6, 80), (17, 53)], TunnelKind::Geneve);
        let (services, error_limits) = (fixture::SERVICES, ERROR_LIMITS);
        Policy { services, mode, tunnel, family: Family::V4, ports, error_limits, gateway }
    }

    /// Returns the first destination address of clients.
    pub(super) fn target(self) -> u32 {
        let base = match self {
            Mode::Return => fixture::unmatched_base(Family::V4),
            _ => fixture::frontend_base(Family::V4),
        };
        match base {
            IpAddr::V4(base) => base.to_bits(),
            IpAddr::V6(_) => 0,
        }
    }

    /// Returns the arm at which backends' packets arrive; returned packets have no backend, and the
    /// other side's packets arrive through the gateway.
    pub(super) fn answers_at(self) -> u8 {
        u8::from(self != Mode::Return)
    }

    /// Builds a client's packet as it arrives.
    pub(super) fn arriving(self, ip: Ip) -> Template {
        match self {
            Mode::Dsr => Template::plain(Frame::new(GATEWAY, MACS[0], ip).bytes()),
            _ => {
                let options = aws_options(0x0a11_ce00, 0, 0xbeef);
                let ip = ip.in_geneve("10.0.1.20:50000", "10.0.1.10:6081", options);
                Template::inner(Frame::new(GATEWAY, MACS[0], ip).bytes())
            }
        }
    }
}

/// The packets of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// SYNs of spoofed clients.
    Syn,
    /// ACKs of spoofed clients.
    Ack,
    /// Datagrams that backends do not answer.
    Udp,
    /// Datagrams that backends answer.
    AnsweredUdp,
    /// First fragments of datagrams.
    Fragments,
    /// Packets whose TTL expires at Weir.
    Ttl,
    /// ACKs through spoofed gateway endpoints.
    Endpoints,
    /// TCP resets with the addresses and ports of established flows.
    Resets,
    /// Forged ICMP packet-too-big errors.
    TooBig,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 9] = [
        Kind::Syn,
        Kind::Ack,
        Kind::Udp,
        Kind::AnsweredUdp,
        Kind::Fragments,
        Kind::Ttl,
        Kind::Endpoints,
        Kind::Resets,
        Kind::TooBig,
    ];

    pub(super) fn is_udp(self) -> bool {
        matches!(self, Kind::Udp | Kind::AnsweredUdp | Kind::Fragments | Kind::Ttl)
    }

    /// Returns whether this flood exists in a mode: plain packets have no endpoint, and answers
    /// that bypass Weir are not part of the flood.
    pub fn exists_in(self, mode: Mode) -> bool {
        match self {
            Kind::AnsweredUdp => matches!(mode, Mode::Tunnel | Mode::Nat),
            Kind::Endpoints => mode != Mode::Dsr,
            _ => true,
        }
    }

    /// Returns whether each of its packets begins a flow.
    pub fn begins_flows(self) -> bool {
        !matches!(self, Kind::Endpoints | Kind::Resets | Kind::TooBig)
    }
}

/// The parameters of one simulation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How packets reach the backends.
    pub mode: Mode,
    /// The packets of the flood.
    pub kind: Kind,
    /// Packets of the flood per second.
    pub rate: u64,
    /// `region.max_flows`.
    pub flows: u32,
    /// Flows that are established before the flood.
    pub established: u32,
    /// New clients per second.
    pub new_per_s: u32,
    /// How long new clients arrive, milliseconds. The flood lasts until the last one has
    /// finished.
    pub ms: u64,
}
