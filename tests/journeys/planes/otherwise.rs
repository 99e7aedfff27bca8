//! What the kernel's program does otherwise than the cases say, each with the reason.

/// A case that does not hold there.
#[derive(Clone, Copy, Debug)]
pub struct Otherwise {
    /// Its claim.
    pub claim: &'static str,
    /// Why.
    pub because: &'static str,
}

/// All of them.
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

/// What is said of a case.
pub fn otherwise(claim: &str) -> Option<&'static Otherwise> {
    OTHERWISE.iter().find(|other| other.claim == claim)
}
