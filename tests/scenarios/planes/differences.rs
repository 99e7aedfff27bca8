//! Cases in which the XDP program differs, each with the reason.

/// A case that does not hold with XDP.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The case's claim.
    pub claim: &'static str,
    /// The reason.
    pub because: &'static str,
}

/// All such cases.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        claim: "An outer UDP checksum that was asked for is right, in GUE.",
        because: ZERO,
    },
    Difference {
        claim: "An outer UDP checksum that was asked for is right, in VXLAN.",
        because: ZERO,
    },
    Difference {
        claim: "An outer UDP checksum that was asked for is right in answers to the gateway.",
        because: ZERO,
    },
    Difference {
        claim: "What the kernel does not take in time is counted.",
        because: "there is no queue to the kernel that could be full: it has the frame already",
    },
];

const ZERO: &str = "outer UDP checksums are 0, which all of the tunnels' RFCs allow";

/// Returns the entry of a case, if it has one.
pub fn find_difference(claim: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|other| other.claim == claim)
}
