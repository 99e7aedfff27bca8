//! A TUN device in a namespace, with reads that time out.

use super::error::{LabError, Result};
use super::netns::Netns;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Duration;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// A buffer size in bytes that exceeds any packet of a lab device.
pub const LARGEST: usize = 65_536;

/// The longest wait for a packet, after which a reading thread checks whether to stop.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A TUN device, removed on drop.
pub struct Tun(SyncDevice);

impl Tun {
    /// Creates (or takes over) TUN device `name` in the calling thread's namespace, with this
    /// MTU. It is up and has no address.
    pub fn create(name: &str, mtu: u16) -> Result<Self> {
        let device = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L3)
            .packet_information(false)
            .mtu(mtu)
            .enable(true)
            .build_sync()
            .map_err(LabError::io(format!("creating TUN device {name} with MTU {mtu}")))?;
        device
            .set_nonblocking(true)
            .map_err(LabError::io(format!("setting TUN device {name} to non-blocking")))?;
        Ok(Self(device))
    }

    /// Creates the device in `ns`.
    pub fn new(ns: &Netns, name: &str, mtu: u16) -> Result<Self> {
        let name = name.to_owned();
        ns.run(move || Self::create(&name, mtu))?
    }

    /// Returns the next packet that the kernel has sent into the device. If there is none, waits
    /// for one for at most [`POLL_INTERVAL`] and returns `None`; the next call returns the packet.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b mut [u8]>> {
        match self.0.recv(buffer) {
            Ok(len) => return Ok(Some(&mut buffer[..len])),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(LabError::io("reading from a TUN device")(e)),
        }
        wait(&self.0)?;
        Ok(None)
    }

    /// Passes a packet to the kernel. Returns false if the kernel did not accept it, for example
    /// because the device is down or its queue is full; a real wire loses packets as well.
    pub fn write(&self, packet: &[u8]) -> bool {
        self.0.send(packet).is_ok()
    }
}

/// Waits until `source` is readable, at most for [`POLL_INTERVAL`].
pub fn wait(source: &impl AsFd) -> Result<()> {
    let mut fds = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(LabError::errno("waiting for packets")(e)),
    }
}
