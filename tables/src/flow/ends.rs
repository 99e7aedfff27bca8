//! Addresses and ports of forwarded packets: paths of new flows, keys towards backends, and
//! rewrites by NAT. Both data planes and `weir explain` use them.

use super::{Ends, Forward, NatOrDigest, PATH_CROSSES, PATH_REDIRECT};
use crate::record::{Backend, Mode, NONE};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::ip::{Ip, L4};
use packet::rewrite::Rewrite;
use packet::translate;

impl Forward {
    /// Creates the path of a new flow of `ip` to a backend, without a forwarding mode.
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

    /// Creates the path of a new flow of `ip` to the service's proxy at the local address `local`
    /// and `port`: a NAT flow with the client's own address as source.
    #[inline(always)]
    pub fn to_proxy(ip: &Ip, service: u32, local: &Addr, port: u16) -> Forward {
        Forward {
            nat_or_digest: NatOrDigest::nat(ip.src),
            backend_addr: *local,
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

    /// Creates the path of a flow that is in no table, from the packet `ip` that the backend at
    /// `from` sent through its tunnel.
    #[inline(always)]
    pub fn of_reply(ip: &Ip, service: u32, backend: u32, from: &Addr) -> Forward {
        Forward {
            backend_addr: *from,
            service,
            backend,
            mode: Mode::Tunnel as u8,
            proto: ip.proto,
            ..Forward::default()
        }
    }

    /// Turns a path to a backend into that of a NAT flow. Returns false if NAT does not support the
    /// protocol of `ip`, or if `ip` is an echo reply.
    #[inline(always)]
    pub fn set_nat(&mut self, ip: &Ip) -> bool {
        self.mode = Mode::Nat as u8;
        if self.backend_addr.is_v4() == ip.v6 {
            self.flags = PATH_CROSSES;
        }
        matches!(ip.kind, L4::Tcp { .. } | L4::Udp | L4::IcmpEcho { request: true })
    }

    /// Returns whether the backend is of the other address family.
    #[inline(always)]
    pub const fn crosses(&self) -> bool {
        self.flags & PATH_CROSSES != 0
    }

    /// Returns the IP protocol number towards the backend of the NAT flow of this packet. Only
    /// ICMP has another number in the other address family.
    #[inline(always)]
    pub fn backend_proto(&self, ip: &Ip) -> u8 {
        if self.crosses() { translate::proto(ip) } else { ip.proto }
    }

    /// Returns the key on the backend's side of the NAT flow of this packet, and the side of the
    /// local address, which replaces the initiator.
    #[inline(always)]
    pub fn backend_key(&self, ip: &Ip) -> (FlowKey, Side) {
        self.key_from(ip, self.backend_proto(ip), self.nat_addr(), self.nat_port)
    }

    /// As [`Forward::backend_key`], for protocol `proto` and the local address and port `local` and
    /// `port`.
    #[inline(always)]
    pub fn key_from(&self, ip: &Ip, proto: u8, local: &Addr, port: u16) -> (FlowKey, Side) {
        let to = if is_echo(ip) { port } else { self.backend_port };
        FlowKey::new(SCOPE_PLAIN, proto, *local, port, self.backend_addr, to)
    }

    /// Returns the rewrites of a packet from the client's side of a NAT flow, and of the packet
    /// that it quotes, if any.
    #[inline(always)]
    pub fn forward_rewrites(&self, ip: &Ip, quoted: Option<&Ip>) -> (Rewrite, Rewrite) {
        let (local, backend) = (*self.nat_addr(), self.backend_addr);
        let port = |ip: &Ip| if is_echo(ip) { self.nat_port } else { self.backend_port };
        let Some(quoted) = quoted else {
            let to = Rewrite { src: local, sport: self.nat_port, dst: backend, dport: port(ip) };
            return (to, Rewrite::none());
        };
        // The error concerns a reply, which the backend sent to the local address.
        let (sport, dport) = (port(quoted), self.nat_port);
        let quote = Rewrite { src: backend, sport, dst: local, dport };
        (Rewrite { src: local, dst: backend, ..Rewrite::none() }, quote)
    }
}

impl Ends {
    /// Returns the rewrites of a packet from the backend's side of a NAT flow, and of the packet
    /// that it quotes, if `quotes`. An ICMP error gets the address of `router`, its sender, as
    /// source, or that of the service if `router` is `None`.
    #[inline(always)]
    pub const fn reply_rewrites(&self, quotes: bool, router: Option<Addr>) -> (Rewrite, Rewrite) {
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
