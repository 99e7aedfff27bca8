//! The kernel's end of an arm: a persistent TAP with the port's MAC and the arm's addresses.
//!
//! It outlives the fastpath, so that a TCP or BGP session to the appliance survives a restart. It
//! is made and addressed before EAL starts, by the control thread's own means; no lcore ever
//! touches it.

use config::checked::Arm;
use netlink::{ChangeError, Netlink, Setting, Verb};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Why the exception port of an arm could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel refused the device.
    #[error(
        "{arm}.tap = \"{name}\": the kernel did not make this TAP device: {source}. \
         It needs root (CAP_NET_ADMIN) and /dev/net/tun; another fastpath may hold it"
    )]
    Device {
        /// Which arm.
        arm: &'static str,
        /// Interface name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused to bring it up, or an address or a route.
    #[error("{arm}: {source}")]
    Address {
        /// Which arm.
        arm: &'static str,
        /// What was asked, and what the kernel returned.
        source: ChangeError,
    },
}

/// The exception port of one arm.
pub struct Tap {
    device: SyncDevice,
}

impl Tap {
    /// Makes the TAP, or takes over the one that an earlier run left, and gives it the arm's MAC,
    /// MTU, addresses and default routes. Idempotent: what is already so is not touched.
    pub fn open(arm_name: &'static str, arm: &Arm, mac: [u8; 6]) -> Result<Tap, TapError> {
        let refused = |source| TapError::Device { arm: arm_name, name: arm.tap.clone(), source };
        let device = DeviceBuilder::new()
            .name(&arm.tap)
            .layer(Layer::L2)
            .packet_information(false)
            .mtu(arm.mtu)
            .inherit_enable_state()
            .build_sync()
            .map_err(refused)?;
        device.persist().map_err(refused)?;
        if device.mac_address().map_err(refused)? != mac {
            device.set_mac_address(mac).map_err(refused)?;
        }
        device.set_nonblocking(true).map_err(refused)?;
        // The kernel must not invent IPv6 traffic (router solicitations) on an arm without IPv6.
        let six = if arm.addresses.iter().any(|a| a.addr.is_ipv6()) { "0" } else { "1" };
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", arm.tap), six);
        let failed = |source| TapError::Address { arm: arm_name, source };
        let mut netlink = Netlink::default();
        netlink.set_link(&arm.tap, "up", |link| link.up()).map_err(failed)?;
        for setting in Setting::of_arm(arm, &arm.tap) {
            netlink.apply(Verb::Replace, &setting).map_err(failed)?;
        }
        Ok(Tap { device })
    }

    /// Reads one frame the kernel sends; `None` when there is none now.
    pub fn receive(&self, frame: &mut [u8]) -> Option<usize> {
        self.device.recv(frame).ok()
    }

    /// Gives the kernel a frame; false when it took it not.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.device.send(frame).is_ok()
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
