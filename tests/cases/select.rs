//! Frontend lookup: the exact address, port and protocol first, then any port, then any protocol,
//! then the longest prefix; and frontends of one gateway endpoint.

use super::addresses::*;
use super::setups::{Setup, aws_nat, service};
use super::{Case, arrives, case};
use crate::frames::{Ip, flags, tcp, udp};

/// Builds services with overlapping frontends; the backend's port identifies the selected service.
fn overlapping() -> Setup {
    let nat = |name: &str, frontend: &str, port: u16| {
        let backend = format!("{{address = \"10.0.2.11\", port = {port}}}");
        service(name, "mode = \"nat\"", frontend, &backend)
    };
    let mut setup = aws_nat().named("overlapping frontends");
    setup.services = [
        nat("exact", r#"{address = "203.0.113.30", port = 80, protocol = "tcp"}"#, 1001),
        nat("any-port", r#"{address = "203.0.113.30", protocol = "tcp"}"#, 1002),
        nat("any-protocol", r#"{address = "203.0.113.30"}"#, 1003),
        nat("network", r#"{address = "203.0.113.0/24"}"#, 1004),
        nat("everything", r#"{address = "0.0.0.0/0"}"#, 1005),
    ]
    .concat();
    setup
}

/// Builds the services of [`overlapping`], and the exact frontend again for one gateway endpoint
/// alone.
fn scoped() -> Setup {
    let mut setup = overlapping().named("a frontend of one endpoint");
    let scope = format!("{ENDPOINT:#x}");
    setup.services += &service(
        "endpoint",
        "mode = \"nat\"",
        &format!(
            "{{address = \"203.0.113.30\", port = 80, protocol = \"tcp\", scope = \"{scope}\"}}"
        ),
        r#"{address = "10.0.2.11", port = 1006}"#,
    );
    setup
}

/// A case in which a packet from this gateway endpoint reaches the backend at `port`.
fn chosen(claim: &'static str, setup: Setup, endpoint: u64, ip: Ip, port: u16) -> Case {
    let out = ip.clone().from(OUR_NAT).from_port(NAT_1).to("10.0.2.11").to_port(port).hop();
    let step = arrives(INGRESS, from_node(NODE, endpoint, 1, ip));
    case(claim, setup, vec![step.leaves(EGRESS, to_backend(11, out), "nat")])
}

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let syn = |to: &str| tcp(CLIENT, to, flags::SYN);
    let overlap = |claim, ip, port| chosen(claim, overlapping(), ENDPOINT, ip, port);
    let of_one =
        |claim, endpoint, port| chosen(claim, scoped(), endpoint, syn("203.0.113.30:80"), port);
    vec![
        overlap(
            "A frontend of address, port and protocol has precedence over all others.",
            syn("203.0.113.30:80"),
            1001,
        ),
        overlap(
            "A frontend of address and protocol is second in precedence.",
            syn("203.0.113.30:81"),
            1002,
        ),
        overlap(
            "A frontend of an address is third in precedence.",
            udp(CLIENT, "203.0.113.30:80").payload(b"x"),
            1003,
        ),
        overlap(
            "Among frontends of networks the longest prefix has precedence.",
            syn("203.0.113.31:80"),
            1004,
        ),
        overlap(
            "The shortest prefix matches if no other frontend does.",
            syn("192.0.2.80:443"),
            1005,
        ),
        of_one("A frontend of one endpoint matches packets of that endpoint.", ENDPOINT, 1006),
        of_one(
            "Packets of an endpoint without frontends of its own match the frontends of all \
             endpoints.",
            OTHER_ENDPOINT,
            1001,
        ),
    ]
}
