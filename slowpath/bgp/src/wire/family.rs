//! Address families with their subsequent ones.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address family with its subsequent one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Family {
    /// AFI 1, SAFI 1.
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    /// AFI 2, SAFI 1.
    #[serde(rename = "ipv6-unicast")]
    Ipv6Unicast,
}

impl Family {
    /// All that we speak.
    pub const ALL: [Family; 2] = [Family::Ipv4Unicast, Family::Ipv6Unicast];

    /// The address family identifier.
    pub fn afi(self) -> u16 {
        match self {
            Family::Ipv4Unicast => 1,
            Family::Ipv6Unicast => 2,
        }
    }

    /// The subsequent one: unicast.
    pub fn safi(self) -> u8 {
        1
    }

    /// The family of two numbers, if we speak it.
    pub fn of(afi: u16, safi: u8) -> Option<Family> {
        Family::ALL.into_iter().find(|family| (family.afi(), family.safi()) == (afi, safi))
    }

    /// The family that a prefix belongs to.
    pub fn of_prefix(prefix: &IpNet) -> Family {
        match prefix {
            IpNet::V4(_) => Family::Ipv4Unicast,
            IpNet::V6(_) => Family::Ipv6Unicast,
        }
    }

    /// AFI and SAFI as three octets.
    pub fn octets(self) -> [u8; 3] {
        let afi = self.afi().to_be_bytes();
        [afi[0], afi[1], self.safi()]
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4Unicast => "ipv4 unicast",
            Family::Ipv6Unicast => "ipv6 unicast",
        })
    }
}
