//! What a path says of packets' ends: the paths of flows that begin, the keys of flows towards
//! their backends, and what NAT makes of addresses and ports. All planes, and what explains them,
//! ask here.

use super::{Ends, Forward, NatOrDigest, PATH_CROSSES, PATH_REDIRECT};
use crate::record::{Backend, Mode, NONE};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::ip::{Ip, L4};
use packet::rewrite::Rewrite;
use packet::translate;

impl Forward {
    /// The path of a flow that `ip` begins to a backend with this id, of no mode yet.
    #[inline(always)]
    pub fn to_backend(ip: &Ip, service: u32, id: u32, backend: &Backend) -> Forward {
        Forward {
            backend_addr: backend.addr,
            backend_port: if backend.port == 0 { ip.dport } else { backend.port },
            service,
            backend: id,
            incarnation: backend.incarnation,
            proto: ip.proto,
            ..Forward::default()
        }
    }

    /// The path of a flow that `ip` begins to the service's proxy on `port` of our address `ours`:
    /// translated to there, from the client's own address.
    #[inline(always)]
    pub fn to_proxy(ip: &Ip, service: u32, ours: &Addr, port: u16) -> Forward {
        Forward {
            nat_or_digest: NatOrDigest::nat(ip.src),
            backend_addr: *ours,
            nat_port: ip.sport,
            backend_port: port,
            service,
            backend: NONE,
            mode: Mode::Nat as u8,
            flags: PATH_REDIRECT,
            proto: ip.proto,
            ..Forward::default()
        }
    }

    /// The path of a flow that is in no table, of which the backend at `from` sent `ip` by tunnel.
    #[inline(always)]
    pub fn of_answer(ip: &Ip, service: u32, backend: u32, from: &Addr) -> Forward {
        Forward {
            backend_addr: *from,
            service,
            backend,
            mode: Mode::Tunnel as u8,
            proto: ip.proto,
            ..Forward::default()
        }
    }

    /// Makes a path to a backend that of a translated flow. False where `ip` is of a protocol that
    /// NAT doesn't translate, or answers an echo.
    #[inline(always)]
    pub fn translates(&mut self, ip: &Ip) -> bool {
        self.mode = Mode::Nat as u8;
        if self.backend_addr.is_v4() == ip.v6 {
            self.flags = PATH_CROSSES;
        }
        matches!(ip.kind, L4::Tcp { .. } | L4::Udp | L4::IcmpEcho { request: true })
    }

    /// Whether the backend is of the other family.
    #[inline(always)]
    pub const fn crosses(&self) -> bool {
        self.flags & PATH_CROSSES != 0
    }

    /// The protocol towards the backend of a translated flow with this packet.
    #[inline(always)]
    pub fn proto_behind(&self, ip: &Ip) -> u8 {
        if self.crosses() { translate::proto(ip) } else { ip.proto }
    }

    /// The key towards the backend of the translated flow with this packet, and the initiator's
    /// end of it.
    #[inline(always)]
    pub fn key_behind(&self, ip: &Ip) -> (FlowKey, Side) {
        self.key_from(ip, self.proto_behind(ip), self.nat_addr(), self.nat_port)
    }

    /// As [`Forward::key_behind`], of a flow of protocol `proto` from `ours` and `port`.
    #[inline(always)]
    pub fn key_from(&self, ip: &Ip, proto: u8, ours: &Addr, port: u16) -> (FlowKey, Side) {
        let to = if is_echo(ip) { port } else { self.backend_port };
        FlowKey::new(SCOPE_PLAIN, proto, *ours, port, self.backend_addr, to)
    }

    /// What a packet from the client's side of a translated flow becomes, and what it quotes.
    #[inline(always)]
    pub fn outward(&self, ip: &Ip, quoted: Option<&Ip>) -> (Rewrite, Rewrite) {
        let (ours, backend) = (*self.nat_addr(), self.backend_addr);
        let port = |ip: &Ip| if is_echo(ip) { self.nat_port } else { self.backend_port };
        let Some(quoted) = quoted else {
            let to = Rewrite { src: ours, sport: self.nat_port, dst: backend, dport: port(ip) };
            return (to, Rewrite::none());
        };
        // It tells of trouble with an answer: for the backend it is an answer to us.
        let (sport, dport) = (port(quoted), self.nat_port);
        let quote = Rewrite { src: backend, sport, dst: ours, dport };
        (Rewrite { src: ours, dst: backend, ..Rewrite::none() }, quote)
    }
}

impl Ends {
    /// What a packet from the backend's side of a translated flow becomes, and what it quotes if it
    /// quotes. An error of a `router`'s seems to come from there.
    #[inline(always)]
    pub const fn homeward(&self, quotes: bool, router: Option<Addr>) -> (Rewrite, Rewrite) {
        let (client, service) = (self.initiator, self.target);
        if !quotes {
            let (src, sport) = service;
            return (Rewrite { src, sport, dst: client.0, dport: client.1 }, Rewrite::none());
        }
        let src = match router {
            Some(router) => router,
            None => service.0,
        };
        let quote = Rewrite { src: client.0, sport: client.1, dst: service.0, dport: service.1 };
        (Rewrite { src, sport: 0, dst: client.0, dport: 0 }, quote)
    }
}

#[inline(always)]
const fn is_echo(ip: &Ip) -> bool {
    matches!(ip.kind, L4::IcmpEcho { .. })
}
