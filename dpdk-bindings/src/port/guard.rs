//! An open port: its ownership in this process, its lifetime, and the errors of calls on it.
#![expect(unsafe_code, reason = "calls DPDK")]

use super::error::PortError;
use crate::dpdk_sys as sys;
use crate::eal::{Eal, EalGuard, Errno};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const PORTS: usize = sys::RTE_MAX_ETHPORTS as usize;

/// Whether each port has an owner in this process.
static OWNED: [AtomicBool; PORTS] = [const { AtomicBool::new(false) }; PORTS];

/// Keeps a port open; also held by its queues.
#[derive(Debug)]
pub(crate) struct PortGuard {
    id: u16,
    name: String,
    pub(super) started: AtomicBool,
    _eal: Arc<EalGuard>,
}

impl PortGuard {
    /// Claims exclusive ownership of the port with this number.
    pub(super) fn claim(eal: &Eal, id: u16, name: &str) -> Result<PortGuard, PortError> {
        if OWNED[usize::from(id)].swap(true, Ordering::AcqRel) {
            return Err(PortError::Taken(name.to_string()));
        }
        let started = AtomicBool::new(false);
        Ok(PortGuard { id, name: name.to_string(), started, _eal: eal.share() })
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the NUMA socket of the port, or `None` if DPDK does not know it (virtual devices,
    /// machines without NUMA information).
    pub(super) fn socket(&self) -> Option<i32> {
        // SAFETY: reads an integer of an open port.
        let socket = unsafe { sys::rte_eth_dev_socket_id(self.id) };
        (socket >= 0).then_some(socket)
    }

    pub(super) fn check(&self, step: &'static str, status: i32) -> Result<(), PortError> {
        Errno::check(status).map_err(|errno| self.failed(step, errno))
    }

    pub(super) fn failed(&self, step: &'static str, errno: Errno) -> PortError {
        PortError::Failed { name: self.name.clone(), step, errno }
    }
}

impl Drop for PortGuard {
    fn drop(&mut self) {
        // SAFETY: the last reference is gone, so the port is no longer in use; a stopped port may
        // be closed.
        unsafe {
            if *self.started.get_mut() {
                sys::rte_eth_dev_stop(self.id);
            }
            sys::rte_eth_dev_close(self.id);
        }
        OWNED[usize::from(self.id)].store(false, Ordering::Release);
    }
}
