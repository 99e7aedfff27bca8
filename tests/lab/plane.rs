//! The choice between the DPDK plane and the XDP plane.

/// The data plane under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// A DPDK poll loop.
    Dpdk,
    /// XDP programs in the kernel.
    Xdp {
        /// Whether the programs run in native mode (in the driver) rather than in generic mode. In
        /// native mode a veth also needs a program at its peer, which a test has to attach.
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

    /// Returns the name of the program that moves packets or loads the XDP programs.
    pub fn program(self) -> &'static str {
        if self.is_xdp() { "ebpf-fallback" } else { "fastpath" }
    }

    /// Returns the plane's lines of the configuration: one for the top level, and one, which may be
    /// empty, for `[fastpath]`.
    pub fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Dpdk => ["plane = \"dpdk\"", ""],
            Self::Xdp { native: false } => ["plane = \"xdp\"", "attach = \"generic\""],
            Self::Xdp { native: true } => ["plane = \"xdp\"", "attach = \"native\""],
        }
    }
}
