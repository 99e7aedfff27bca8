//! The data plane under test.

/// The data plane under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// A DPDK poll loop.
    Dpdk,
    /// An XDP program in the kernel.
    Xdp {
        /// Native mode, in the driver, rather than generic mode. A veth then also needs a program
        /// at its peer, which the namespaces' ends lack unless a test attaches one.
        native: bool,
    },
}

impl Plane {
    /// Returns the plane selected in the environment: XDP for `PLANE=xdp`, otherwise DPDK.
    pub fn from_env() -> Self {
        match std::env::var_os("PLANE").is_some_and(|plane| plane == "xdp") {
            true => Self::Xdp { native: false },
            false => Self::Dpdk,
        }
    }

    /// Returns whether the plane is XDP.
    pub fn is_xdp(self) -> bool {
        self != Self::Dpdk
    }

    /// Returns the name of the program that moves packets or loads the XDP program.
    pub fn program(self) -> &'static str {
        if self.is_xdp() { "ebpf-fallback" } else { "fastpath" }
    }

    /// Returns its configuration keys: one at the top level, one of `[fastpath]`.
    pub fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Dpdk => ["plane = \"dpdk\"", ""],
            Self::Xdp { native: false } => ["plane = \"xdp\"", "attach = \"generic\""],
            Self::Xdp { native: true } => ["plane = \"xdp\"", "attach = \"native\""],
        }
    }
}
