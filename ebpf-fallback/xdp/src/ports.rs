//! What the loader tells the program of where it runs. Compiled for the kernel and for the loader.

/// An arm's port.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Port {
    /// Its interface.
    pub ifindex: u32,
    /// Its MAC address, and zeros.
    pub mac: [u8; 8],
}

/// What the loader tells before the program is attached, and whenever it changes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Place {
    /// The arms: ingress, egress. A one-armed appliance has the same twice.
    pub ports: [Port; 2],
    /// By which interfaces the kernel sends its probes of backends, for each arm; 0 for none.
    pub kernel: [u32; 2],
    /// Seconds of the region's clock less those of the kernel's monotonic one.
    pub skew_s: u32,
    /// Counts how often the program was told; what it remembers of before holds no more.
    pub told: u32,
}

const _: () = assert!(size_of::<Place>() == 40);
