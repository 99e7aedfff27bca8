//! Ports: network interfaces with a DPDK driver, in hardware or software.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::Eal;
use crate::queue::{RxQueue, TxQueue};
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub mod counters;
mod error;
pub(crate) mod guard;
pub mod hotplug;
mod setup;

pub use counters::PortCounters;
pub use error::PortError;
pub use hotplug::PortEvents;
pub use setup::PortOptions;

use guard::{PORTS, PortGuard};
use setup::Setup;

/// An owned port. It is stopped and closed after it and its queues are dropped.
#[derive(Debug)]
pub struct Port {
    open: Arc<PortGuard>,
    setup: Setup,
}

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Link {
    /// Whether the link is up.
    pub up: bool,
    /// Speed in Mbit/s, or 0 if the driver does not report it.
    pub speed_mbps: u32,
}

/// The queues of a started port, one handle each.
#[derive(Debug)]
pub struct Queues {
    /// Receive queues, by number.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, by number.
    pub tx: Vec<TxQueue>,
}

impl Port {
    /// Opens the port with this name: a virtual device (`net_af_packet0`) or a PCI address
    /// (`0000:00:06.0`).
    ///
    /// # Errors
    /// Returns [`PortError::Unknown`], or [`PortError::Taken`] if the port has an owner.
    pub fn by_name(eal: &Eal, name: &str) -> Result<Port, PortError> {
        let unknown = || PortError::Unknown { name: name.to_string(), present: Port::names(eal) };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        let mut id = 0;
        // SAFETY: a terminated string and a valid pointer for the result.
        let status = unsafe { sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) };
        if status != 0 {
            return Err(unknown());
        }
        Port::claim(eal, id, name)
    }

    /// Opens the port of a device, given by the device's name on its bus (`0000:00:06.0`). `mac`
    /// selects one of several ports of the device.
    ///
    /// # Errors
    /// Returns [`PortError::Unknown`], [`PortError::Ambiguous`] if the device has several ports and
    /// `mac` does not select one, or [`PortError::Taken`].
    pub fn of_device(eal: &Eal, device: &str, mac: Option<[u8; 6]>) -> Result<Port, PortError> {
        let ids = (0..PORTS as u16).filter(|id| {
            setup::device_name_of(*id).as_deref() == Some(device)
                && (mac.is_none() || mac == mac_of(*id))
        });
        let found: Vec<(u16, String)> = ids.filter_map(|id| Some((id, name_of(id)?))).collect();
        match &found[..] {
            [] => Err(PortError::Unknown { name: device.to_string(), present: Port::names(eal) }),
            [(id, name)] => Port::claim(eal, *id, name),
            several => {
                let text = |(id, name): &(u16, String)| {
                    format!("{name} ({})", mac_of(*id).map_or(String::new(), mac_text))
                };
                let ports = several.iter().map(text).collect();
                Err(PortError::Ambiguous { device: device.to_string(), ports })
            }
        }
    }

    fn claim(eal: &Eal, id: u16, name: &str) -> Result<Port, PortError> {
        let open = PortGuard::claim(eal, id, name)?;
        Ok(Port { open: Arc::new(open), setup: Setup::default() })
    }

    /// Returns the number of ports, owned or not.
    pub fn count(_: &Eal) -> usize {
        // SAFETY: counts; the EAL runs.
        unsafe { sys::rte_eth_dev_count_avail() }.into()
    }

    /// Returns the names of all ports, owned or not.
    pub fn names(_: &Eal) -> Vec<String> {
        (0..PORTS as u16).filter_map(name_of).collect()
    }

    /// Configures queues, rings, MTU and RSS. May be called again after [`Port::stop`].
    ///
    /// # Errors
    /// Returns [`PortError::InvalidState`] if the port is started, or a [`PortError`] that names
    /// the value that the driver does not support or the step that failed.
    pub fn configure(&mut self, options: &PortOptions<'_>) -> Result<(), PortError> {
        if self.is_started() {
            return Err(self.state_error("started: stop it before configuring it again"));
        }
        self.setup = setup::configure(&self.open, options)?;
        Ok(())
    }

    /// Starts the port and returns its queues.
    ///
    /// # Errors
    /// Returns [`PortError::InvalidState`] if the port is not configured or already started,
    /// [`PortError::Failed`], or [`PortError::QueuesHeld`].
    pub fn start(&mut self) -> Result<Queues, PortError> {
        if self.is_started() {
            return Err(self.state_error("already started"));
        }
        if self.setup.rx_queues == 0 {
            return Err(self.state_error("not configured: configure it before starting it"));
        }
        self.check_queues_dropped()?;
        // SAFETY: an owned, configured and stopped port.
        self.check("start", unsafe { sys::rte_eth_dev_start(self.id()) })?;
        self.open.started.store(true, Ordering::Release);
        let open = || Arc::clone(&self.open);
        Ok(Queues {
            // SAFETY: the queues were set up, and no handle exists (checked above).
            rx: (0..self.setup.rx_queues).map(|q| unsafe { RxQueue::new(open(), q) }).collect(),
            // SAFETY: as above.
            tx: (0..self.setup.tx_queues).map(|q| unsafe { TxQueue::new(open(), q) }).collect(),
        })
    }

    /// Stops the port. Its queues must have been dropped.
    ///
    /// # Errors
    /// Returns [`PortError::QueuesHeld`] or [`PortError::Failed`].
    pub fn stop(&mut self) -> Result<(), PortError> {
        if !self.is_started() {
            return Ok(());
        }
        self.check_queues_dropped()?;
        // SAFETY: an owned port without a queue in use.
        self.check("stop", unsafe { sys::rte_eth_dev_stop(self.id()) })?;
        self.open.started.store(false, Ordering::Release);
        Ok(())
    }

    /// Stops and closes the port, like dropping it, but returns the error of the stop.
    ///
    /// # Errors
    /// As for [`Port::stop`].
    pub fn close(mut self) -> Result<(), PortError> {
        self.stop()
    }

    /// Returns DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.open.id()
    }

    /// Returns the name by which the port was opened.
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// Returns the MAC address of the port.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn mac(&self) -> Result<[u8; 6], PortError> {
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: a valid pointer for the result.
        let status = unsafe { sys::rte_eth_macaddr_get(self.id(), &raw mut mac) };
        self.check("read the MAC address", status)?;
        Ok(mac.addr_bytes)
    }

    /// Returns the MTU in effect, or the configured one if the driver does not report the MTU of
    /// its kernel interface.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn mtu(&self) -> Result<u16, PortError> {
        if let Some(mtu) = self.setup.interface_mtu {
            return Ok(mtu);
        }
        let mut mtu = 0;
        // SAFETY: a valid pointer for the result.
        self.check("read the MTU", unsafe { sys::rte_eth_dev_get_mtu(self.id(), &raw mut mtu) })?;
        Ok(mtu)
    }

    /// Enables or disables the reception of all multicast frames, some of which neighbor discovery
    /// needs.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let id = self.id();
        // SAFETY: an owned port.
        let status = unsafe {
            if on {
                sys::rte_eth_allmulticast_enable(id)
            } else {
                sys::rte_eth_allmulticast_disable(id)
            }
        };
        self.check("set all-multicast mode", status)
    }

    /// Returns true if the driver reports the link as up; does not wait for the link.
    pub fn link_up(&self) -> bool {
        self.link().up
    }

    /// Returns the link as the driver reports it; does not wait for the link.
    pub fn link(&self) -> Link {
        let mut speed_mbps = 0;
        // SAFETY: reads the state of an open port; a valid pointer for the speed.
        let up = unsafe { sys::weir_link(self.id(), &raw mut speed_mbps) } == 1;
        Link { up, speed_mbps }
    }

    /// Returns the name of the port's driver, for example `net_ena`; empty if DPDK reports none.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn driver(&self) -> Result<String, PortError> {
        let name = setup::limits(&self.open)?.driver_name;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a constant string of the driver, terminated.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Returns the NUMA socket of the port, or `None` if DPDK does not know it (virtual devices,
    /// machines without NUMA information).
    pub fn socket(&self) -> Option<i32> {
        self.open.socket()
    }

    /// Returns true if packets of several segments can be sent, as of the last configuration. If
    /// not, they must be linearized first ([`crate::Mbuf::linearize`]).
    pub fn sends_chains(&self) -> bool {
        self.setup.chains
    }

    fn is_started(&self) -> bool {
        self.open.started.load(Ordering::Acquire)
    }

    /// Checks that all queues of the port were dropped.
    fn check_queues_dropped(&self) -> Result<(), PortError> {
        if Arc::strong_count(&self.open) == 1 {
            Ok(())
        } else {
            Err(PortError::QueuesHeld(self.name().to_string()))
        }
    }

    /// Returns the error of an operation that is invalid in the port's current state.
    fn state_error(&self, state: &'static str) -> PortError {
        PortError::InvalidState { name: self.name().to_string(), state }
    }

    fn check(&self, step: &'static str, status: i32) -> Result<(), PortError> {
        self.open.check(step, status)
    }
}

/// Returns the name of a port, or `None` if there is no port with this number.
fn name_of(id: u16) -> Option<String> {
    // Checked first, because DPDK logs an error if the name of an invalid port is queried.
    // SAFETY: looks the number up; the EAL runs.
    if unsafe { sys::rte_eth_dev_is_valid_port(id) } == 0 {
        return None;
    }
    let mut text = [0 as c_char; sys::RTE_ETH_NAME_MAX_LEN as usize];
    // SAFETY: the buffer has the maximum length that the function writes.
    let status = unsafe { sys::rte_eth_dev_get_name_by_port(id, text.as_mut_ptr()) };
    // SAFETY: terminated by the function where it succeeds, all zeros otherwise.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    (status == 0).then(|| text.to_string_lossy().into_owned())
}

/// Returns the MAC address of the valid port with this number, if its driver reports one.
fn mac_of(id: u16) -> Option<[u8; 6]> {
    let mut mac = sys::rte_ether_addr::default();
    // SAFETY: a valid pointer for the result.
    let status = unsafe { sys::rte_eth_macaddr_get(id, &raw mut mac) };
    (status == 0).then_some(mac.addr_bytes)
}

/// Formats a MAC address.
fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
