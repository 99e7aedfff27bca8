//! Ports: network interfaces that DPDK drives, by NIC or in software.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::dpdk_sys as sys;
use crate::eal::Eal;
use crate::queue::{RxQueue, TxQueue};
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub mod counters;
mod error;
pub(crate) mod open;
mod setup;

pub use counters::PortCounters;
pub use error::PortError;
pub use setup::PortOptions;

use open::{Open, PORTS};
use setup::Setup;

/// One port, owned. Stopped and closed when it and its queues are dropped.
#[derive(Debug)]
pub struct Port {
    open: Arc<Open>,
    setup: Setup,
}

/// The queues of a started port, each of them once.
#[derive(Debug)]
pub struct Queues {
    /// Receive queues, by number.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, by number.
    pub tx: Vec<TxQueue>,
}

impl Port {
    /// The port of that name: a virtual device's (`net_af_packet0`) or a PCI address
    /// (`0000:00:06.0`).
    ///
    /// # Errors
    /// [`PortError::Unknown`], [`PortError::Taken`].
    pub fn by_name(eal: &Eal, name: &str) -> Result<Port, PortError> {
        let unknown = || PortError::Unknown { name: name.to_string(), present: Port::names(eal) };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        let mut id = 0;
        // SAFETY: a terminated string and a place for the answer.
        let status = unsafe { sys::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) };
        if status != 0 {
            return Err(unknown());
        }
        let open = Open::claim(eal, id, name)?;
        Ok(Port { open: Arc::new(open), setup: Setup::default() })
    }

    /// How many ports there are, owned or not.
    pub fn count(_: &Eal) -> usize {
        // SAFETY: counts; the EAL runs.
        unsafe { sys::rte_eth_dev_count_avail() }.into()
    }

    /// The names of all ports, owned or not.
    pub fn names(_: &Eal) -> Vec<String> {
        let name = |id: u16| {
            // SAFETY: looks the number up; the EAL runs. Asking the name of none logs an error.
            if unsafe { sys::rte_eth_dev_is_valid_port(id) } == 0 {
                return None;
            }
            let mut text = [0 as c_char; sys::RTE_ETH_NAME_MAX_LEN as usize];
            // SAFETY: the buffer has the length that the function writes at most.
            let status = unsafe { sys::rte_eth_dev_get_name_by_port(id, text.as_mut_ptr()) };
            // SAFETY: terminated by the function where it succeeds, all zeros otherwise.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            (status == 0).then(|| text.to_string_lossy().into_owned())
        };
        (0..PORTS as u16).filter_map(name).collect()
    }

    /// Sets the port up: queues, rings, MTU, RSS. May be called again after [`Port::stop`].
    ///
    /// # Errors
    /// [`PortError`] names the number that the driver does not take, or the step that it refused.
    pub fn configure(&mut self, options: &PortOptions<'_>) -> Result<(), PortError> {
        if self.is_started() {
            return Err(self.order("started: stop it before it is set up anew"));
        }
        self.setup = setup::configure(&self.open, options)?;
        Ok(())
    }

    /// Starts the port and gives its queues.
    ///
    /// # Errors
    /// [`PortError::Order`] when it was not configured or is started, [`PortError::Refused`].
    pub fn start(&mut self) -> Result<Queues, PortError> {
        if self.is_started() {
            return Err(self.order("started already"));
        }
        if self.setup.rx_queues == 0 {
            return Err(self.order("not set up: configure it before it is started"));
        }
        self.quiet()?;
        // SAFETY: a configured, stopped port that we own.
        self.check("start", unsafe { sys::rte_eth_dev_start(self.id()) })?;
        self.open.started.store(true, Ordering::Release);
        let open = || Arc::clone(&self.open);
        Ok(Queues {
            // SAFETY: the queues were set up, and no handles exist (`quiet`).
            rx: (0..self.setup.rx_queues).map(|q| unsafe { RxQueue::new(open(), q) }).collect(),
            // SAFETY: as above.
            tx: (0..self.setup.tx_queues).map(|q| unsafe { TxQueue::new(open(), q) }).collect(),
        })
    }

    /// Stops the port. Its queues must be dropped before.
    ///
    /// # Errors
    /// [`PortError::QueuesHeld`], [`PortError::Refused`].
    pub fn stop(&mut self) -> Result<(), PortError> {
        if !self.is_started() {
            return Ok(());
        }
        self.quiet()?;
        // SAFETY: a port that we own, with no queue in use.
        self.check("stop", unsafe { sys::rte_eth_dev_stop(self.id()) })?;
        self.open.started.store(false, Ordering::Release);
        Ok(())
    }

    /// Stops and closes the port for good, as dropping it does, but says what went wrong.
    ///
    /// # Errors
    /// As [`Port::stop`].
    pub fn close(mut self) -> Result<(), PortError> {
        self.stop()
    }

    /// DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.open.id()
    }

    /// The name that it was found by.
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// Its MAC address.
    ///
    /// # Errors
    /// [`PortError::Refused`].
    pub fn mac(&self) -> Result<[u8; 6], PortError> {
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: a place for the answer.
        let status = unsafe { sys::rte_eth_macaddr_get(self.id(), &raw mut mac) };
        self.check("read the MAC address", status)?;
        Ok(mac.addr_bytes)
    }

    /// The MTU in force.
    ///
    /// # Errors
    /// [`PortError::Refused`].
    pub fn mtu(&self) -> Result<u16, PortError> {
        if let Some(mtu) = self.setup.interface_mtu {
            return Ok(mtu);
        }
        let mut mtu = 0;
        // SAFETY: a place for the answer.
        self.check("read the MTU", unsafe { sys::rte_eth_dev_get_mtu(self.id(), &raw mut mtu) })?;
        Ok(mtu)
    }

    /// Takes all multicast frames (neighbour discovery needs some), or stops doing so.
    ///
    /// # Errors
    /// [`PortError::Refused`].
    pub fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let id = self.id();
        // SAFETY: a port that we own.
        let status = unsafe {
            if on {
                sys::rte_eth_allmulticast_enable(id)
            } else {
                sys::rte_eth_allmulticast_disable(id)
            }
        };
        self.check("all-multicast mode", status)
    }

    /// True while the link is up, as the driver knows without waiting.
    pub fn link_up(&self) -> bool {
        // SAFETY: reads the state of an open port.
        unsafe { sys::weir_link_up(self.id()) == 1 }
    }

    /// The NUMA socket that the port is attached to; none for virtual ones.
    pub fn socket(&self) -> Option<i32> {
        self.open.socket()
    }

    /// True when packets of several segments may be sent (as set up last). Where it is false, they
    /// must be made one segment first ([`crate::Mbuf::linearize`]).
    pub fn sends_chains(&self) -> bool {
        self.setup.chains
    }

    fn is_started(&self) -> bool {
        self.open.started.load(Ordering::Acquire)
    }

    /// Only we hold the port, no queue does.
    fn quiet(&self) -> Result<(), PortError> {
        if Arc::strong_count(&self.open) == 1 {
            Ok(())
        } else {
            Err(PortError::QueuesHeld(self.name().to_string()))
        }
    }

    fn order(&self, state: &'static str) -> PortError {
        PortError::Order { name: self.name().to_string(), state }
    }

    fn check(&self, step: &'static str, status: i32) -> Result<(), PortError> {
        self.open.check(step, status)
    }
}
