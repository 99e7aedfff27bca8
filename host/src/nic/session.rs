//! The local addresses of ssh sessions, whose NICs must not be taken away.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Root;

/// The port of sshd, unless `SSH_CONNECTION` names another one.
const SSH_PORT: u16 = 22;

/// `TCP_ESTABLISHED` in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// Local addresses of ssh sessions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sessions(BTreeSet<IpAddr>);

impl Sessions {
    /// Returns the local addresses of this session and of all established connections to sshd.
    /// `ssh_connection` is the value of the environment variable `SSH_CONNECTION`, which sudo
    /// removes; the table of connections is read for that case, and for the sessions of others.
    pub fn read(root: &Root, ssh_connection: Option<&str>) -> Sessions {
        let own = ssh_connection.and_then(own_session);
        let port = own.map_or(SSH_PORT, |(_, port)| port);
        let mut addresses: BTreeSet<IpAddr> = own.into_iter().map(|(address, _)| address).collect();
        for file in ["proc/net/tcp", "proc/net/tcp6"] {
            let text = root.read(file).unwrap_or_default();
            let local = text.lines().filter_map(established);
            let of_sshd = local.filter(|(_, local)| [SSH_PORT, port].contains(local));
            addresses.extend(of_sshd.map(|(address, _)| address));
        }
        Sessions(addresses)
    }

    /// Returns whether a session has this local address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

/// Parses `CLIENT CLIENT_PORT SERVER SERVER_PORT`. A link-local address may have a zone.
fn own_session(text: &str) -> Option<(IpAddr, u16)> {
    let mut words = text.split_whitespace().skip(2);
    let (address, port) = (words.next()?, words.next()?);
    let address = address.split('%').next()?.parse::<IpAddr>().ok()?;
    Some((address.to_canonical(), port.parse().ok()?))
}

/// Returns the local address and port of a line of `/proc/net/tcp` or `/proc/net/tcp6`, if its
/// connection is established.
fn established(line: &str) -> Option<(IpAddr, u16)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    let (address, port) = local.split_once(':')?;
    if state != ESTABLISHED || !address.is_ascii() {
        return None;
    }
    // Words of 32 bits in the byte order of the machine.
    let word = |i: usize| u32::from_str_radix(address.get(8 * i..8 * i + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(i)?.to_ne_bytes());
            }
            // A connection of IPv4 to a socket of IPv6.
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_those_of_the_environment_and_of_established_connections() {
        let path = std::env::temp_dir().join(format!("weir-sessions-{}", std::process::id()));
        std::fs::create_dir_all(path.join("proc/net")).unwrap();
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        // 10.0.0.5:22 established, 10.0.0.6:22 closing, 10.0.0.7:80 established, a listener.
        let tcp = "   0: 0500000A:0016 0100000A:D431 01 00000000:00000000\n   \
                   1: 0600000A:0016 0100000A:D432 06 00000000:00000000\n   \
                   2: 0700000A:0050 0100000A:D433 01 00000000:00000000\n   \
                   3: 00000000:0016 00000000:0000 0A 00000000:00000000\n   4: x\n";
        std::fs::write(path.join("proc/net/tcp"), format!("{head}{tcp}")).unwrap();
        // fd00::8 to port 22, 10.0.0.9 to port 22 of a socket of IPv6, fd00::a to port 2222.
        let tcp6 = "   0: 000000FD000000000000000008000000:0016 0:0 01\n   \
                    1: 0000000000000000FFFF00000900000A:0016 0:0 01\n   \
                    2: 000000FD00000000000000000A000000:08AE 0:0 01\n";
        std::fs::write(path.join("proc/net/tcp6"), format!("{head}{tcp6}")).unwrap();
        let root = Root::new(&path);
        let read = |environment| {
            let Sessions(addresses) = Sessions::read(&root, environment);
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let all = ["10.0.0.5", "10.0.0.9", "fd00::8"];
        assert_eq!(read(None), all);
        let with_port = read(Some("192.0.2.1 50000 10.0.0.4 2222"));
        assert_eq!(with_port, ["10.0.0.4", "10.0.0.5", "10.0.0.9", "fd00::8", "fd00::a"]);
        assert_eq!(read(Some("fe80::1%eth0 50000 fe80::2%eth0 22"))[2], "fd00::8");
        assert!(read(Some("fe80::1%eth0 50000 fe80::2%eth0 22")).contains(&"fe80::2".into()));
        assert_eq!(read(Some("nonsense")), all);
        std::fs::remove_dir_all(path).unwrap();
    }
}
