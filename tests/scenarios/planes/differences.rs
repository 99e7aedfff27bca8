//! Cases that the XDP programs fail, each with the reason.

/// A case that fails with XDP.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The case's claim.
    pub claim: &'static str,
    /// The reason.
    pub because: &'static str,
}

/// All cases that fail with XDP.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        claim: "With outer_checksum = true the outer UDP checksum of GUE is valid.",
        because: ZERO,
    },
    Difference {
        claim: "With outer_checksum = true the outer UDP checksum of VXLAN is valid.",
        because: ZERO,
    },
    Difference {
        claim: "With outer_checksum = true the outer UDP checksum of answers to the gateway is \
                valid.",
        because: ZERO,
    },
    Difference {
        claim: "A packet for which the queue to the kernel is full is counted.",
        because: "there is no queue to the kernel: the frame is already in the kernel",
    },
];

/// The reason of the cases with `outer_checksum = true`.
const ZERO: &str = "outer UDP checksums are 0, as the specifications of all tunnels allow";

/// Returns the entry of a case, if it has one.
pub fn find_difference(claim: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|other| other.claim == claim)
}
