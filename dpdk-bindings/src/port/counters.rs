//! Counters of a port's driver.
#![expect(unsafe_code, reason = "calls DPDK")]

use super::{Port, PortError};
use crate::dpdk_sys as sys;
use std::ffi::CStr;

/// The counters that every driver has. They count from the creation of the port or from
/// [`Port::reset_counters`]; some drivers also reset them when the port starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortCounters {
    /// Packets received.
    pub ipackets: u64,
    /// Packets sent.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes sent.
    pub obytes: u64,
    /// Packets that the NIC dropped because the receive rings were full.
    pub imissed: u64,
    /// Packets received with errors.
    pub ierrors: u64,
    /// Packets that could not be sent.
    pub oerrors: u64,
    /// Packets dropped because the pool had no free mbuf.
    pub rx_nombuf: u64,
}

impl Port {
    /// Returns the counters that every driver has.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn stats(&self) -> Result<PortCounters, PortError> {
        let mut read = sys::rte_eth_stats::default();
        // SAFETY: a valid pointer for the result.
        let status = unsafe { sys::rte_eth_stats_get(self.id(), &raw mut read) };
        self.check("read its counters", status)?;
        Ok(PortCounters {
            ipackets: read.ipackets,
            opackets: read.opackets,
            ibytes: read.ibytes,
            obytes: read.obytes,
            imissed: read.imissed,
            ierrors: read.ierrors,
            oerrors: read.oerrors,
            rx_nombuf: read.rx_nombuf,
        })
    }

    /// Sets all counters of the port to zero. Returns false if the driver cannot reset them.
    pub fn reset_counters(&mut self) -> bool {
        // SAFETY: an owned port.
        unsafe {
            sys::rte_eth_stats_reset(self.id()) == 0 && sys::rte_eth_xstats_reset(self.id()) == 0
        }
    }

    /// Returns all counters of the driver, by name.
    ///
    /// # Errors
    /// Returns [`PortError::Failed`] if the driver fails.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, PortError> {
        let step = "read its extended counters";
        // SAFETY: requests the number only.
        let count = unsafe { sys::rte_eth_xstats_get_names(self.id(), std::ptr::null_mut(), 0) };
        self.check(step, count)?;
        let mut names = vec![sys::rte_eth_xstat_name::default(); count as usize];
        let mut values = vec![sys::rte_eth_xstat::default(); count as usize];
        // SAFETY: space for `count` names.
        let named =
            unsafe { sys::rte_eth_xstats_get_names(self.id(), names.as_mut_ptr(), count as u32) };
        self.check(step, named)?;
        // SAFETY: space for `count` values.
        let valued =
            unsafe { sys::rte_eth_xstats_get(self.id(), values.as_mut_ptr(), count as u32) };
        self.check(step, valued)?;
        // If the number of counters grew meanwhile, the driver returns the larger number.
        values.truncate(valued.min(count) as usize);
        let pair = |value: &sys::rte_eth_xstat| {
            let name = names.get(usize::try_from(value.id).ok()?)?;
            // SAFETY: DPDK terminates the names within their arrays.
            let name = unsafe { CStr::from_ptr(name.name.as_ptr()) };
            Some((name.to_string_lossy().into_owned(), value.value))
        };
        Ok(values.iter().filter_map(pair).collect())
    }
}
