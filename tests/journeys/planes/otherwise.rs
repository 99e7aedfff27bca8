//! Cases in which the XDP program differs, each with the reason.

/// A case that does not hold with XDP.
#[derive(Clone, Copy, Debug)]
pub struct Otherwise {
    /// The case's claim.
    pub claim: &'static str,
    /// The reason.
    pub because: &'static str,
}

/// All such cases.
pub const OTHERWISE: &[Otherwise] = &[
    Otherwise {
        claim: "An outer UDP checksum that was asked for is right, in GUE.",
        because: ZERO,
    },
    Otherwise {
        claim: "An outer UDP checksum that was asked for is right, in VXLAN.",
        because: ZERO,
    },
    Otherwise {
        claim: "An outer UDP checksum that was asked for is right in answers to the gateway.",
        because: ZERO,
    },
    Otherwise {
        claim: "What the kernel does not take in time is counted.",
        because: "there is no queue to the kernel that could be full: it has the frame already",
    },
];

const ZERO: &str = "outer UDP checksums are 0, which all of the tunnels' RFCs allow";

/// Returns the entry of a case, if it has one.
pub fn otherwise(claim: &str) -> Option<&'static Otherwise> {
    OTHERWISE.iter().find(|other| other.claim == claim)
}
