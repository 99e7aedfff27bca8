//! Input of the checks.

use std::path::Path;

use config::Config;
use config::checked::{Arm, Plane};

use crate::Root;
use crate::arm_device::{ArmDevice, arm_devices};
use crate::commands::Commands;
use crate::nic::Inventory;
use crate::plane::Dpdk;
use crate::tune;

/// What the checks examine.
pub struct Context<'a> {
    /// The root directory of the machine.
    pub root: &'a Root,
    /// The configuration.
    pub config: &'a Config,
    /// The machine's NICs.
    pub inventory: &'a Inventory,
    /// Runs the machine's programs.
    pub commands: &'a dyn Commands,
    /// The DPDK of fastpath; `None` if fastpath did not list its drivers.
    pub dpdk: Option<Dpdk>,
    /// The directory of Weir's programs.
    pub programs: Option<&'a Path>,
    /// The version of this program.
    pub version: &'a str,
}

impl<'a> Context<'a> {
    /// Returns the device and the settings of each arm.
    pub(super) fn arms(&self) -> Vec<(ArmDevice<'a>, &'a Arm)> {
        let settings = self.config.arms().map(|(_, arm)| arm);
        arm_devices(self.config, self.inventory).into_iter().zip(settings).collect()
    }

    /// Returns the commands that bring the kernel parameters of `weir tune` into force.
    pub(super) fn boot_remedy(&self) -> String {
        match tune::plan(self.root, self.config, self.inventory) {
            Ok(plan) => plan.boot_remedy(),
            // Its text has the remedy.
            Err(error) => error.to_string(),
        }
    }

    /// Returns the name of the program that forwards packets.
    pub(super) fn data_plane(&self) -> &'static str {
        if self.is_dpdk() { "fastpath" } else { "ebpf-fallback" }
    }

    /// Returns whether packets are forwarded by DPDK.
    pub(super) fn is_dpdk(&self) -> bool {
        self.config.plane == Plane::Dpdk
    }

    /// Returns the interface with which the kernel receives an arm's packets: with DPDK its TAP,
    /// with XDP the NIC's own; `None` if the NIC has none.
    pub(super) fn kernel_interface<'d>(
        &self,
        device: &'d ArmDevice<'_>,
        arm: &'d Arm,
    ) -> Option<&'d str> {
        match self.config.plane {
            Plane::Dpdk => Some(&arm.tap),
            Plane::Xdp => device.interface(),
        }
    }
}
