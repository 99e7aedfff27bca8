//! What moves packets.

/// What moves packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// A poll loop, by DPDK.
    Dpdk,
    /// A program in the kernel.
    Xdp {
        /// In the driver, and not in the stack. A veth's needs a program at its peer as well, which
        /// the namespaces' ends have not unless a test attaches one.
        native: bool,
    },
}

impl Plane {
    /// The plane that is asked for in the environment: `PLANE=xdp`, or else DPDK.
    pub fn asked() -> Self {
        match std::env::var_os("PLANE").is_some_and(|plane| plane == "xdp") {
            true => Self::Xdp { native: false },
            false => Self::Dpdk,
        }
    }

    /// Whether packets are moved in the kernel.
    pub fn is_xdp(self) -> bool {
        self != Self::Dpdk
    }

    /// The program that moves packets, or has the kernel do it.
    pub fn mover(self) -> &'static str {
        if self.is_xdp() { "ebpf-fallback" } else { "fastpath" }
    }

    /// Its keys: one at the top, one of `[fastpath]`.
    pub fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Dpdk => ["plane = \"dpdk\"", ""],
            Self::Xdp { native: false } => ["plane = \"xdp\"", "attach = \"generic\""],
            Self::Xdp { native: true } => ["plane = \"xdp\"", "attach = \"native\""],
        }
    }
}
