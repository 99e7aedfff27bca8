//! Address families.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address family: a pair of AFI and SAFI.
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
    /// All supported families.
    pub const ALL: [Family; 2] = [Family::Ipv4Unicast, Family::Ipv6Unicast];

    /// Returns the address family identifier (AFI).
    pub fn afi(self) -> u16 {
        match self {
            Family::Ipv4Unicast => 1,
            Family::Ipv6Unicast => 2,
        }
    }

    /// Returns the subsequent address family identifier (SAFI): unicast.
    pub fn safi(self) -> u8 {
        1
    }

    /// Returns the family of an AFI and SAFI, if it is supported.
    pub fn of(afi: u16, safi: u8) -> Option<Family> {
        Family::ALL.into_iter().find(|family| (family.afi(), family.safi()) == (afi, safi))
    }

    /// Returns the family that a prefix belongs to.
    pub fn of_prefix(prefix: &IpNet) -> Family {
        match prefix {
            IpNet::V4(_) => Family::Ipv4Unicast,
            IpNet::V6(_) => Family::Ipv6Unicast,
        }
    }

    /// Returns AFI and SAFI as encoded, three octets.
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
