//! The kernel's end of an arm: a persistent TAP with the port's MAC and the arm's addresses.
//!
//! It outlives the fastpath, so that a TCP or BGP session to the appliance survives a restart. It
//! is made and addressed before EAL starts, by the control thread's own means; no lcore ever
//! touches it.

use config::checked::Arm;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
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
    /// `ip` could not set an address or a route.
    #[error("{arm}: `ip {command}` failed: {answer}")]
    Address {
        /// Which arm.
        arm: &'static str,
        /// The arguments.
        command: String,
        /// What it printed.
        answer: String,
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
        ip(arm_name, &["link", "set", "dev", &arm.tap, "up"])?;
        for address in &arm.addresses {
            let text = format!("{}/{}", address.addr, address.len);
            let mut words = vec!["address", "replace", &text, "dev", &arm.tap];
            if address.addr.is_ipv6() {
                words.push("nodad"); // Duplicate detection would leave it unusable for a second.
            }
            ip(arm_name, &words)?;
        }
        for gateway in &arm.gateways {
            let via = gateway.to_string();
            ip(arm_name, &["route", "replace", "default", "via", &via, "dev", &arm.tap])?;
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

fn ip(arm: &'static str, words: &[&str]) -> Result<(), TapError> {
    let failed = |answer: String| TapError::Address { arm, command: words.join(" "), answer };
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|e| failed(format!("{e} (is iproute2 installed? apt-get install iproute2)")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
