//! Port errors, with a remedy in each message.

use crate::eal::Errno;

/// The reason for which an operation on a port failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// There is no port with this name.
    #[error(
        "no DPDK port is named {name:?}; existing ports: {}. DPDK names on stderr the devices \
         that failed to open. A virtual port needs --vdev={name} with its arguments, a NIC must be \
         bound for DPDK (`weir nic list`, `weir nic bind`)",
        list(.present)
    )]
    Unknown {
        /// Requested name.
        name: String,
        /// Names of the existing ports.
        present: Vec<String>,
    },
    /// The device has several ports.
    #[error("device {device} has several ports: {}; select one: {device},mac=MAC", list(.ports))]
    Ambiguous {
        /// Name of the device.
        device: String,
        /// Names of its ports with their MAC addresses.
        ports: Vec<String>,
    },
    /// DPDK could not open or remove a device.
    #[error("device {device:?}: cannot {step} it: {errno}; DPDK names the cause on stderr")]
    Device {
        /// The device with its arguments.
        device: String,
        /// The step that failed, as a verb phrase.
        step: &'static str,
        /// The error from DPDK.
        errno: Errno,
    },
    /// The port is already open in this process.
    #[error("port {0} is already in use: set it for one arm only")]
    Taken(String),
    /// The driver does not support a value.
    #[error("port {name}: {what} {found}; the driver supports {min} to {max}")]
    OutOfRange {
        /// Name of the port.
        name: String,
        /// Name of the value.
        what: &'static str,
        /// Requested value.
        found: u32,
        /// Minimum value.
        min: u32,
        /// Maximum value.
        max: u32,
    },
    /// The driver does not support the MTU.
    #[error("port {name}: MTU {mtu}; the driver supports {min} to {max}: change the port's MTU")]
    Mtu {
        /// Name of the port.
        name: String,
        /// Requested MTU in bytes.
        mtu: u16,
        /// Minimum MTU in bytes.
        min: u16,
        /// Maximum MTU in bytes.
        max: u16,
    },
    /// Frames do not fit in a buffer, and the driver cannot scatter them.
    #[error(
        "port {name}: MTU {mtu} needs buffers of {need} bytes, they have {available}, and the \
         driver cannot scatter a frame over several: raise the buffer size or lower the MTU"
    )]
    BufferTooSmall {
        /// Name of the port.
        name: String,
        /// Requested MTU in bytes.
        mtu: u16,
        /// Required buffer size in bytes, headroom included.
        need: usize,
        /// Actual buffer size in bytes.
        available: usize,
    },
    /// The kernel interface of the port has a smaller MTU.
    #[error(
        "port {name}: MTU {mtu} is configured, its interface {interface} has {found}: \
         type `ip link set dev {interface} mtu {mtu}`, or lower the port's MTU"
    )]
    InterfaceMtu {
        /// Name of the port.
        name: String,
        /// Name of the kernel interface.
        interface: String,
        /// MTU of the kernel interface in bytes.
        found: i32,
        /// Requested MTU in bytes.
        mtu: u16,
    },
    /// Queues are still in use while the port is to be started or stopped.
    #[error("port {0}: its queues are still in use by poll loops; stop those first")]
    QueuesHeld(String),
    /// The operation is invalid in the port's current state.
    #[error("port {name}: {state}")]
    InvalidState {
        /// Name of the port.
        name: String,
        /// State of the port, and the remedy.
        state: &'static str,
    },
    /// DPDK or the driver failed.
    #[error("port {name}: cannot {step}: {errno}")]
    Failed {
        /// Name of the port.
        name: String,
        /// The step that failed, as a verb phrase.
        step: &'static str,
        /// The error from DPDK.
        errno: Errno,
    },
}

/// Joins names for an error message.
fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}
