//! Checks that no other program listens on Weir's ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::context::Context;
use super::finding::{Finding, Severity};
use crate::Root;
use crate::machine::{Process, socket_owner};

const CHECK: &str = "ports";

/// The program that listens on Weir's ports.
const OWN: &str = "slowpath";

/// `TCP_LISTEN` in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// A UDP socket without a peer in `/proc/net/udp`.
const UNCONNECTED: &str = "07";

/// A port that Weir needs.
struct Needed {
    /// The key, or the protocol of a fixed port.
    key: String,
    protocol: &'static str,
    address: SocketAddr,
    severity: Severity,
    consequence: &'static str,
}

/// A listening socket.
struct Socket {
    address: IpAddr,
    port: u16,
    inode: u64,
}

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut free = 0;
    for protocol in ["tcp", "udp"] {
        let Some(sockets) = sockets(context.root, protocol) else {
            let reason = format!("/proc/net/{protocol} cannot be read");
            findings.push(Finding::not_checked(CHECK, reason, ""));
            continue;
        };
        for needed in needed(context).into_iter().filter(|needed| needed.protocol == protocol) {
            match sockets.iter().find(|socket| overlap(socket, needed.address)) {
                None => free += 1,
                Some(socket) => findings.extend(taken(context.root, &needed, socket)),
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{free} of Weir's ports are free or its own")));
    }
    findings
}

fn needed(context: &Context<'_>) -> Vec<Needed> {
    let config = context.config;
    let mut all = Vec::new();
    let mut add = |key: &str, addresses: &[SocketAddr], severity, consequence| {
        all.extend(addresses.iter().map(|address| Needed {
            key: key.to_owned(),
            protocol: "tcp",
            address: *address,
            severity,
            consequence,
        }));
    };
    let probes = "probes of this appliance reach the other program, whose answers count as Weir's";
    add("health.listen", &config.health.listen, Severity::Error, probes);
    add("health.tcp", &config.health.tcp, Severity::Error, probes);
    add("metrics.listen", &config.metrics.listen, Severity::Warning, "no metrics can be read");
    let api = config.api.iter().flat_map(|api| api.listen.clone()).collect::<Vec<_>>();
    add("api.listen", &api, Severity::Error, "the API over TCP is not available");
    // BGP is enabled by policies, which come over the API: whether it is used is not known here.
    let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    add("BGP", &[any(179)], Severity::Warning, "BGP neighbors reach the other program, not Weir");
    let bfd = [("BFD (single hop)", 3784), ("BFD (multihop)", 4784)];
    all.extend(bfd.map(|(key, port)| Needed {
        key: key.to_owned(),
        protocol: "udp",
        address: any(port),
        severity: Severity::Warning,
        consequence: "BFD sessions of Weir do not come up",
    }));
    all
}

/// Returns the sockets that listen; `None` if they cannot be read.
fn sockets(root: &Root, protocol: &str) -> Option<Vec<Socket>> {
    let state = if protocol == "tcp" { LISTENING } else { UNCONNECTED };
    let text = std::fs::read_to_string(root.join(format!("proc/net/{protocol}"))).ok()?;
    // Without IPv6 there is no second file.
    let v6 = root.read(format!("proc/net/{protocol}6")).unwrap_or_default();
    let lines = text.lines().chain(v6.lines());
    Some(lines.filter_map(|line| socket(line, state)).collect())
}

/// Parses `N: LOCAL:PORT REMOTE:PORT STATE QUEUES TIMER RETRANSMITS UID TIMEOUT INODE ...`.
fn socket(line: &str, state: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    if *words.get(3)? != state || !address.is_ascii() {
        return None;
    }
    // Words of 32 bits in the byte order of the machine.
    let word = |i: usize| u32::from_str_radix(address.get(8 * i..8 * i + 8)?, 16).ok();
    let bytes = |i: usize| word(i).map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(bytes(0)?)),
        32 => {
            let all: Vec<u8> = (0..4).map(bytes).collect::<Option<Vec<_>>>()?.concat();
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(all).ok()?))
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Socket { address: address.to_canonical(), port, inode: words.get(9)?.parse().ok()? })
}

/// Returns whether a socket and a needed address conflict. A socket of `::` usually serves IPv4
/// too.
fn overlap(socket: &Socket, needed: SocketAddr) -> bool {
    let (one, other) = (socket.address, needed.ip());
    socket.port == needed.port()
        && (one == other
            || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
            || (other.is_unspecified()
                && (other.is_ipv6() || one.is_ipv4() || one.is_unspecified())))
}

fn taken(root: &Root, needed: &Needed, socket: &Socket) -> Option<Finding> {
    let Needed { key, protocol, address, severity, consequence } = needed;
    let port = address.port();
    let owner = socket_owner(root, socket.inode);
    if owner.as_ref().is_some_and(|owner| owner.name == OWN) {
        return None;
    }
    let user = match &owner {
        Some(Process { pid, name }) => format!("{name} (process {pid})"),
        None => "a process that is not visible to this user".to_owned(),
    };
    let found = format!("{key}: {protocol} port {port} is in use by {user}");
    let remedy = match &owner {
        Some(_) if key.contains('.') => format!("stop it, or set {key} to another port"),
        Some(Process { name, .. }) => format!("stop {name}, if Weir is to use the port"),
        None => "run `weir doctor` as root to see the process".to_owned(),
    };
    Some(match (severity, &owner) {
        // The process may be slowpath.
        (_, None) => Finding::not_checked(CHECK, found, remedy),
        (Severity::Error, _) => Finding::error(CHECK, found, *consequence, remedy),
        _ => Finding::warning(CHECK, found, *consequence, remedy),
    })
}
