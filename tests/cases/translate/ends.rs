//! The ends of a translated flow (client, frontend, backend), and the packets between them.

use super::super::addresses::*;
use super::super::{Step, arrives};
use crate::frames::{Frame, Ip, error, flags, tcp};

/// The addresses of the flows of one translation direction, NAT46 or NAT64.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) client: &'static str,
    pub(super) frontend: &'static str,
    /// A frontend that serves any port.
    pub(super) any: &'static str,
    /// The source address of packets to the backend.
    pub(super) nat: &'static str,
    pub(super) backend: &'static str,
    /// The backend of `any`, without a port.
    pub(super) any_backend: &'static str,
    /// A router on the client's side, and one on the backend's.
    pub(super) routers: [&'static str; 2],
    /// Whether the clients use IPv6.
    pub(super) six: bool,
}

/// IPv4 clients, IPv6 backends.
pub(super) const NAT46: Ends = Ends {
    client: CLIENT,
    frontend: FRONTEND,
    any: "203.0.113.20",
    nat: OUR_NAT6,
    backend: BACKEND6,
    any_backend: "fd00:2::12",
    routers: ["198.51.100.1", "fd00:9::9"],
    six: false,
};

/// IPv6 clients, IPv4 backends.
pub(super) const NAT64: Ends = Ends {
    client: CLIENT6,
    frontend: FRONTEND6,
    any: "2001:db8:f::20",
    nat: OUR_NAT,
    backend: BACKEND,
    any_backend: "10.0.2.12",
    routers: ["2001:db8:c::1", "10.9.9.9"],
    six: true,
};

/// Returns the address without its port.
pub(super) fn address_of(end: &str) -> String {
    crate::frames::end(end).ip().to_string()
}

/// Returns the packet with the IP header that a translator writes (RFC 7915): without options or
/// extension headers. Over IPv4, packets of up to 1,260 bytes may be fragmented and have an
/// identification, longer ones have DF.
pub(super) fn written(mut ip: Ip) -> Ip {
    ip.options.clear();
    ip.extensions.clear();
    ip.label = 0;
    if ip.fragment.is_some() {
        return ip;
    }
    let small = ip.bytes().len() <= 1_260;
    match ip.is_v6() || !small {
        true => Ip { df: true, id: 0, ..ip },
        false => ip.may_fragment().id(u32::from(INNER_ID)),
    }
}

/// Returns a quoted packet as a translator writes it; its identification is not compared.
pub(super) fn quoted(ip: Ip) -> Ip {
    written(ip).id(0)
}

impl Ends {
    pub(super) fn syn(&self) -> Ip {
        tcp(self.client, self.frontend, flags::SYN).numbers(7_000, 0).mss(1_400)
    }

    pub(super) fn request(&self) -> Ip {
        let segment = tcp(self.client, self.frontend, flags::PSH | flags::ACK);
        segment.numbers(7_001, 9_001).payload(b"GET / HTTP/1.1\r\n")
    }

    pub(super) fn syn_ack(&self) -> Ip {
        let segment = tcp(self.frontend, self.client, flags::SYN | flags::ACK);
        segment.numbers(9_000, 7_001).mss(1_400)
    }

    pub(super) fn response(&self) -> Ip {
        let segment = tcp(self.frontend, self.client, flags::PSH | flags::ACK);
        segment.numbers(9_001, 7_017).payload(b"HTTP/1.1 200 OK\r\n")
    }

    /// Returns the client's packet with the addresses of the backend's side, and the same TTL.
    pub(super) fn beyond(&self, ip: Ip) -> Ip {
        ip.from(self.nat).from_port(NAT_1).to(self.backend)
    }

    /// Returns the frontend's packet as the backend sends it.
    pub(super) fn behind(&self, ip: Ip) -> Ip {
        ip.from(self.backend).to(self.nat).to_port(NAT_1)
    }

    /// A step in which the AWS gateway's packet reaches the backend.
    pub(super) fn forward(&self, ip: Ip) -> Step {
        self.forward_by(|ip| from_gateway(1, ip), ip)
    }

    /// As [`Ends::forward`], for a packet that arrives in the frame that `by` builds.
    pub(super) fn forward_by(&self, by: fn(Ip) -> Frame, ip: Ip) -> Step {
        let out = written(self.beyond(ip.clone()).hop());
        arrives(INGRESS, by(ip)).leaves(EGRESS, to_backend(11, out), "nat")
    }

    /// A step in which the backend's answer reaches the AWS gateway.
    pub(super) fn back(&self, ip: Ip) -> Step {
        self.back_by(|ip| to_gateway(1, ip), ip)
    }

    /// As [`Ends::back`], for an answer that leaves in the frame that `by` builds.
    pub(super) fn back_by(&self, by: fn(Ip) -> Frame, ip: Ip) -> Step {
        // The outer header has the traffic class of the inner packet.
        let frame = by(written(ip.clone().hop())).with(|outer| outer.tos(ip.tos));
        arrives(EGRESS, from_backend(11, self.behind(ip))).leaves(INGRESS, frame, "answer")
    }

    /// A step in which a packet to `any` reaches its backend at the same port.
    pub(super) fn any_forward(&self, ip: Ip) -> Step {
        let port = ip.dst.port();
        let out = ip.clone().from(self.nat).from_port(NAT_1).to(self.any_backend).to_port(port);
        let out = to_backend(12, written(out.hop()));
        arrives(INGRESS, from_gateway(1, ip)).leaves(EGRESS, out, "nat")
    }

    /// A step in which the backend of `any` sends `plain`, and the gateway gets `ip`.
    pub(super) fn any_back(&self, ip: Ip, plain: Ip) -> Step {
        let frame = to_gateway(1, written(ip.hop()));
        arrives(EGRESS, from_backend(12, plain)).leaves(INGRESS, frame, "answer")
    }

    /// A step with an error from the backend's side about the request, sent by address `from`, and
    /// its translation for the client. `was` and `is` are type, code and the rest of the ICMP
    /// header before and after.
    pub(super) fn error_back(&self, from: &str, was: (u8, u8, u32), is: (u8, u8, u32)) -> Step {
        let about = written(self.beyond(self.request()).hop());
        let plain = error(from, self.nat, (was.0, was.1), was.2, about).quoting(1_000);
        let quote = quoted(self.request().hop());
        let (from, to) = (address_of(self.frontend), address_of(self.client));
        let inner = error(&from, &to, (is.0, is.1), is.2, quote).quoting(1_000);
        let frame = to_gateway(1, written(inner.hop()));
        arrives(EGRESS, from_backend(11, plain)).leaves(INGRESS, frame, "answer")
    }

    /// A step with an error from a router on the client's side about an answer, and its translation
    /// for the backend; `was` and `is` as for [`Ends::error_back`].
    pub(super) fn error_forward(&self, was: (u8, u8, u32), is: (u8, u8, u32)) -> Step {
        let (at, to) = (address_of(self.frontend), address_of(self.backend));
        let about = written(self.response().hop());
        let inner = error(self.routers[0], &at, (was.0, was.1), was.2, about).quoting(1_000);
        let quote = quoted(self.behind(self.response()).hop());
        let plain = error(self.nat, &to, (is.0, is.1), is.2, quote).quoting(1_000);
        let out = to_backend(11, written(plain.hop()));
        arrives(INGRESS, from_gateway(1, inner)).leaves(EGRESS, out, "nat")
    }
}
