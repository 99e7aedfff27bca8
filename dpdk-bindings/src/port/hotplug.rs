//! Devices that fail, disappear and come back: DPDK's events, reset, removal and probing.
//!
//! DPDK reports these events on its interrupt thread, which must not change a port. The callbacks
//! only record them; the owner of the port takes them ([`Port::take_events`]) and acts.
#![expect(unsafe_code, reason = "calls DPDK")]

use super::guard::PORTS;
use super::{Port, PortError};
use crate::dpdk_sys as sys;
use crate::eal::{Eal, Errno};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bit of a port's recorded events: the driver requests a reset (`RTE_ETH_EVENT_INTR_RESET`).
const RESET: u32 = 1;
/// Bit of a port's recorded events: the device is gone (`RTE_ETH_EVENT_INTR_RMV`).
const REMOVED: u32 = 2;

/// The error of opening a device that is open already.
const EEXIST: i32 = 17;
/// The error of a device's name that cannot be passed to C.
const EINVAL: i32 = 22;

/// The events recorded for each port.
static EVENTS: [AtomicU32; PORTS] = [const { AtomicU32::new(0) }; PORTS];

/// Names of removed devices (`RTE_DEV_EVENT_REMOVE`) whose ports have not taken the event.
static REMOVED_DEVICES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Events of a port since the last call of [`Port::take_events`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortEvents {
    /// The driver requests [`Port::reset`]: the device no longer works as it is.
    pub reset: bool,
    /// The device is being removed: the port must be removed as well ([`Port::remove`]).
    pub removed: bool,
}

impl Eal {
    /// Starts to record events of ports and devices. With `monitor`, DPDK also reads the kernel's
    /// uevents about removed devices, for drivers that do not report a removal themselves, and
    /// handles the SIGBUS of an access to a device that is already gone.
    ///
    /// # Errors
    /// Returns the error of the first step that failed.
    pub fn record_port_events(&self, monitor: bool) -> Result<(), Errno> {
        use sys::rte_eth_event_type::{RTE_ETH_EVENT_INTR_RESET, RTE_ETH_EVENT_INTR_RMV};
        let none = std::ptr::null_mut();
        for event in [RTE_ETH_EVENT_INTR_RESET, RTE_ETH_EVENT_INTR_RMV] {
            // SAFETY: the callback has static lifetime and accesses static data only.
            Errno::check(unsafe {
                sys::rte_eth_dev_callback_register(sys::WEIR_ETH_ALL, event, Some(on_port), none)
            })?;
        }
        // SAFETY: as above; no name selects all devices.
        Errno::check(unsafe {
            sys::rte_dev_event_callback_register(std::ptr::null(), Some(on_device), none)
        })?;
        if monitor {
            // SAFETY: changes the handling of SIGBUS and opens a socket; the EAL runs.
            unsafe {
                Errno::check(sys::rte_dev_hotplug_handle_enable())?;
                Errno::check(sys::rte_dev_event_monitor_start())?;
            }
        }
        Ok(())
    }

    /// Opens a device, unless it is open already. The device is given by its name and arguments as
    /// for the EAL's `-a` or `--vdev`, for example `0000:00:06.0,large_llq_hdr=1`.
    ///
    /// # Errors
    /// Returns [`PortError::Device`].
    pub fn probe(&self, device: &str) -> Result<(), PortError> {
        let failed = |errno| PortError::Device { device: device.to_string(), step: "open", errno };
        let text = CString::new(device).map_err(|_| failed(Errno(EINVAL)))?;
        // SAFETY: a terminated string, which DPDK copies.
        match Errno::check(unsafe { sys::rte_dev_probe(text.as_ptr()) }) {
            Err(Errno(EEXIST)) => Ok(()),
            outcome => outcome.map_err(failed),
        }
    }

    /// Runs the timers of drivers that are due. Must be called on the thread that starts the ports,
    /// because drivers bind their timers to it. ENA detects a stalled device by a timer; drivers
    /// without timers do not need this call.
    pub fn manage_timers(&self) {
        // SAFETY: runs callbacks of drivers; fails without effect if no driver uses timers.
        let _ = unsafe { sys::rte_timer_manage() };
    }
}

/// Returns an error if DPDK cannot parse a device with its arguments, or has no bus for it. Needs
/// no started EAL.
///
/// # Errors
/// Returns the error from DPDK.
pub fn check_device_syntax(device: &str) -> Result<(), Errno> {
    let text = CString::new(device).map_err(|_| Errno(EINVAL))?;
    let mut parsed = sys::rte_devargs::default();
    // SAFETY: a terminated string and space for the result, which is then freed.
    unsafe {
        let status = sys::rte_devargs_parse(&raw mut parsed, text.as_ptr());
        sys::rte_devargs_reset(&raw mut parsed);
        Errno::check(status)
    }
}

/// Returns the network drivers that are linked into this program, for example `net_ena`.
pub fn linked_drivers() -> impl Iterator<Item = &'static str> {
    env!("WEIR_DPDK_DRIVERS").split(',').filter(|name| !name.is_empty())
}

/// Records an event of a port.
unsafe extern "C" fn on_port(
    port: u16,
    event: sys::rte_eth_event_type::Type,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    let bit = match event {
        sys::rte_eth_event_type::RTE_ETH_EVENT_INTR_RESET => RESET,
        sys::rte_eth_event_type::RTE_ETH_EVENT_INTR_RMV => REMOVED,
        _ => 0,
    };
    if let Some(events) = EVENTS.get(usize::from(port)) {
        events.fetch_or(bit, Ordering::AcqRel);
    }
    0
}

/// Records the removal of a device.
unsafe extern "C" fn on_device(
    name: *const c_char,
    event: sys::rte_dev_event_type::Type,
    _: *mut c_void,
) {
    if event != sys::rte_dev_event_type::RTE_DEV_EVENT_REMOVE || name.is_null() {
        return;
    }
    // SAFETY: DPDK passes the terminated name of the device.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if let Ok(mut removed) = REMOVED_DEVICES.lock()
        && !removed.contains(&name)
    {
        removed.push(name);
    }
}

impl Port {
    /// Raises an event as the port's driver would, to test how it is handled.
    pub fn raise(&self, event: PortEvents) {
        // SAFETY: an open port; the callbacks registered here only record the event.
        unsafe { sys::weir_raise(self.id(), event.reset, event.removed) };
    }

    /// Returns the events recorded since the last call.
    pub fn take_events(&mut self) -> PortEvents {
        let bits = EVENTS[usize::from(self.id())].swap(0, Ordering::AcqRel);
        let mut events = PortEvents { reset: bits & RESET != 0, removed: bits & REMOVED != 0 };
        if let Ok(mut removed) = REMOVED_DEVICES.lock()
            && !removed.is_empty()
            && let Some(device) = self.device_name()
        {
            let before = removed.len();
            removed.retain(|name| *name != device);
            events.removed |= removed.len() < before;
        }
        events
    }

    /// Resets a stopped port as its driver requested. It must be configured again before it is
    /// started.
    ///
    /// # Errors
    /// Returns [`PortError::InvalidState`] if the port is started, or [`PortError::Failed`].
    pub fn reset(&mut self) -> Result<(), PortError> {
        if self.is_started() {
            return Err(self.state_error("started: stop it before resetting it"));
        }
        // SAFETY: an owned, stopped port without a queue in use.
        self.check("reset", unsafe { sys::rte_eth_dev_reset(self.id()) })?;
        self.setup = super::Setup::default();
        Ok(())
    }

    /// Stops and closes the port and removes its device from DPDK, so that the kernel can release
    /// it and [`Eal::probe`] can open it again. The queues must have been dropped.
    ///
    /// # Errors
    /// Returns [`PortError::QueuesHeld`], [`PortError::Failed`] if the driver fails, or
    /// [`PortError::Device`] if the device could not be removed. The port is closed in the last two
    /// cases.
    pub fn remove(mut self) -> Result<(), PortError> {
        self.check_queues_dropped()?;
        let device = super::setup::limits(&self.open)?.device;
        let name = self.device_name().unwrap_or_else(|| self.name().to_string());
        // The device may be gone, in which case stopping it fails; closing releases it anyway.
        let _ = self.stop();
        drop(self);
        if device.is_null() {
            return Ok(());
        }
        // SAFETY: DPDK's record of the device, which outlives its ports until it is removed here.
        let status = unsafe { sys::rte_dev_remove(device) };
        let failed = |errno| PortError::Device { device: name, step: "remove", errno };
        Errno::check(status).map_err(failed)
    }

    /// Returns DPDK's name of the port's device, for example `0000:00:06.0`.
    pub fn device_name(&self) -> Option<String> {
        super::setup::device_name_of(self.id())
    }
}
