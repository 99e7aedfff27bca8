//! The kernel's end of an arm: a persistent TAP with the port's MAC address and the arm's
//! addresses.
//!
//! The device outlives the fast path, so that TCP and BGP sessions to the appliance survive a
//! restart. It is set up before the lcores start; only the control thread uses it.

use config::checked::Arm;
use netlink::{ChangeError, Netlink, Setting, Verb};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// The reason for which the exception port of an arm could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel did not create the device, or rejected its MAC address or mode.
    #[error(
        "{arm}.tap = \"{name}\": cannot set up the TAP device: {source}; run as root \
         (CAP_NET_ADMIN), check /dev/net/tun and that no other fastpath uses the device"
    )]
    Device {
        /// Name of the arm.
        arm: &'static str,
        /// Interface name.
        name: String,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The kernel did not bring the device up, did not list its addresses, or rejected an address
    /// or a route.
    #[error("{arm}: {source}")]
    Address {
        /// Name of the arm.
        arm: &'static str,
        /// The failed change or query, and the kernel's error.
        source: ChangeError,
    },
}

/// The exception port of one arm.
pub struct Tap {
    device: SyncDevice,
    name: String,
    mac: [u8; 6],
    /// The address that another program set last, which was logged.
    foreign_mac: Option<[u8; 6]>,
}

impl Tap {
    /// Creates the TAP, or opens the one of an earlier run, brings it up, and sets the arm's MAC
    /// address, MTU, addresses and default routes. Deletes the addresses of an earlier
    /// configuration. Disables IPv6 on it if the arm has no IPv6 address. Idempotent.
    pub fn open(arm_name: &'static str, arm: &Arm, mac: [u8; 6]) -> Result<Tap, TapError> {
        let device_error =
            |source| TapError::Device { arm: arm_name, name: arm.tap.clone(), source };
        let device = DeviceBuilder::new()
            .name(&arm.tap)
            .layer(Layer::L2)
            .packet_information(false)
            .mtu(arm.mtu)
            .inherit_enable_state()
            .build_sync()
            .map_err(device_error)?;
        device.persist().map_err(device_error)?;
        if device.mac_address().map_err(device_error)? != mac {
            device.set_mac_address(mac).map_err(device_error)?;
        }
        device.set_nonblocking(true).map_err(device_error)?;
        // An arm without IPv6 must not send IPv6 packets of its own (router solicitations).
        let disabled = if arm.addresses.iter().any(|a| a.addr.is_ipv6()) { "0" } else { "1" };
        let _ =
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", arm.tap), disabled);
        let failed = |source| TapError::Address { arm: arm_name, source };
        let mut netlink = Netlink::default();
        netlink.set_link(&arm.tap, "up", |link| link.up()).map_err(failed)?;
        netlink.set_addresses(&arm.tap, &arm.addresses).map_err(failed)?;
        for via in &arm.gateways {
            let gateway = Setting::DefaultRoute(*via, arm.tap.clone());
            netlink.apply(Verb::Replace, &gateway).map_err(failed)?;
        }
        Ok(Tap { device, name: arm.tap.clone(), mac, foreign_mac: None })
    }

    /// Sets the port's MAC address again if another program has changed it: the kernel would
    /// announce the other address, for which the NIC receives nothing. systemd-udevd sets an
    /// address of its own on a new device (`MACAddressPolicy=persistent`) if it reads the device
    /// before this program has set the address, and writes it afterwards.
    pub fn restore_mac(&mut self) {
        let Ok(found) = self.device.mac_address() else { return };
        if found == self.mac {
            return;
        }
        let restored = self.device.set_mac_address(self.mac);
        if self.foreign_mac.replace(found) == Some(found) {
            return;
        }
        let outcome = match restored {
            Ok(()) => "set back".to_owned(),
            Err(error) => format!("cannot set it back: {error}"),
        };
        let (name, found, mac) = (&self.name, mac_text(found), mac_text(self.mac));
        tracing::warn!(
            event = "tap_mac_changed",
            tap = name,
            found,
            expected = mac,
            outcome,
            "another program changed the MAC address of a TAP"
        );
    }

    /// Reads a frame from the kernel, or returns `None` if none is pending.
    pub fn receive(&self, frame: &mut [u8]) -> Option<usize> {
        self.device.recv(frame).ok()
    }

    /// Sends a frame to the kernel. Returns false if the kernel rejected it.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.device.send(frame).is_ok()
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
