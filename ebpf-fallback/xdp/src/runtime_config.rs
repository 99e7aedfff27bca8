//! Runtime configuration of the BPF programs, compiled for the programs and for the loader.

/// The port of an arm.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Port {
    /// Index of its interface.
    pub ifindex: u32,
    /// Its MAC address, followed by two zeros.
    pub mac: [u8; 8],
}

/// Configuration that the loader writes before it attaches the programs.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RuntimeConfig {
    /// Ports of the arms: ingress, egress. Both are the same on a one-armed appliance.
    pub ports: [Port; 2],
    /// Interfaces on which packets sent by the kernel arrive, by arm; 0 for none.
    pub kernel: [u32; 2],
    /// Seconds of the region's clock minus seconds of the kernel's monotonic clock.
    pub skew_s: u32,
    /// Number of configuration changes; data cached under another number is invalid.
    pub revision: u32,
    /// Captures that are on: a bit for each number.
    pub captures: u32,
    /// Whether a trace is on: 1 or 0.
    pub traced: u32,
}

impl RuntimeConfig {
    /// Returns whether a capture or a trace is on.
    #[inline(always)]
    pub fn observes(&self) -> bool {
        self.captures | self.traced != 0
    }
}

const _: () = assert!(size_of::<RuntimeConfig>() == 48);
