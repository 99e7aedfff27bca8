//! The process that connected to a Unix socket, as the kernel recorded it at that time.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::{getsockopt_impl, sockopt_impl};

/// Credentials of the process that connected to a Unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Effective user ID.
    pub user: u32,
    /// Effective group ID.
    pub group: u32,
    /// Supplementary groups; empty if there are more than 64.
    pub groups: Vec<u32>,
}

impl Peer {
    /// Returns the peer of a connection.
    ///
    /// # Errors
    /// The socket is no connected Unix socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Peer> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        let groups = match supplementary_groups(socket) {
            Err(Errno::ERANGE) => {
                tracing::debug!(
                    event = "peer_groups_ignored",
                    user = credentials.uid(),
                    "too many groups, ignored"
                );
                Vec::new()
            }
            groups => groups?,
        };
        Ok(Peer { user: credentials.uid(), group: credentials.gid(), groups })
    }
}

/// Defines the socket option SO_PEERGROUPS for each number of groups, and a function that tries
/// them in ascending order. The kernel fails with ERANGE if there are more groups, and nix accepts
/// a result only if it has exactly the expected length: that of the first that does not fail.
macro_rules! peer_groups {
    ($($option:ident $count:literal)*) => {
        $(sockopt_impl!(
            #[doc = "SO_PEERGROUPS of a process with this number of groups."]
            $option, GetOnly, libc::SOL_SOCKET, libc::SO_PEERGROUPS, [u32; $count]
        );)*

        fn supplementary_groups(socket: &impl AsFd) -> Result<Vec<u32>, Errno> {
            $(match getsockopt(socket, $option) {
                Err(Errno::ERANGE) => {}
                groups => return groups.map(|groups| groups.to_vec()),
            })*
            Err(Errno::ERANGE)
        }
    };
}
peer_groups! {
    G0 0 G1 1 G2 2 G3 3 G4 4 G5 5 G6 6 G7 7 G8 8
    G9 9 G10 10 G11 11 G12 12 G13 13 G14 14 G15 15 G16 16 G17 17
    G18 18 G19 19 G20 20 G21 21 G22 22 G23 23 G24 24 G25 25 G26 26
    G27 27 G28 28 G29 29 G30 30 G31 31 G32 32 G33 33 G34 34 G35 35
    G36 36 G37 37 G38 38 G39 39 G40 40 G41 41 G42 42 G43 43 G44 44
    G45 45 G46 46 G47 47 G48 48 G49 49 G50 50 G51 51 G52 52 G53 53
    G54 54 G55 55 G56 56 G57 57 G58 58 G59 59 G60 60 G61 61 G62 62
    G63 63 G64 64
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_of_a_pair_is_this_process() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&socket).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        assert_eq!((peer.user, peer.group), (numbers("Uid:")[1], numbers("Gid:")[1]));
        assert_eq!(peer.groups, numbers("Groups:"));
    }
}
