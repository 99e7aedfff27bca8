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
mod setup;

pub use counters::PortCounters;
pub use error::PortError;
pub use setup::PortOptions;

use guard::{PORTS, PortGuard};
use setup::Setup;

/// An owned port. It is stopped and closed after it and its queues are dropped.
#[derive(Debug)]
pub struct Port {
    open: Arc<PortGuard>,
    setup: Setup,
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
        let name = |id: u16| {
            // SAFETY: looks the number up; the EAL runs. Querying the name of an invalid port logs
            // an error.
            if unsafe { sys::rte_eth_dev_is_valid_port(id) } == 0 {
                return None;
            }
            let mut text = [0 as c_char; sys::RTE_ETH_NAME_MAX_LEN as usize];
            // SAFETY: the buffer has the maximum length that the function writes.
            let status = unsafe { sys::rte_eth_dev_get_name_by_port(id, text.as_mut_ptr()) };
            // SAFETY: terminated by the function where it succeeds, all zeros otherwise.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            (status == 0).then(|| text.to_string_lossy().into_owned())
        };
        (0..PORTS as u16).filter_map(name).collect()
    }

    /// Configures queues, rings, MTU and RSS. May be called again after [`Port::stop`].
    ///
    /// # Errors
    /// Returns a [`PortError`] that names the value that the driver does not support, or the step
    /// that failed.
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

    /// Returns the MTU in effect, or the configured one if the driver cannot report it.
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
        // SAFETY: reads the state of an open port.
        unsafe { sys::weir_link_up(self.id()) == 1 }
    }

    /// Returns the NUMA socket of the port, or `None` for virtual ports.
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
