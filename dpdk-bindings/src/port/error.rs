//! What can be wrong with a port, in words that say what to do.

use crate::eal::Errno;

/// What went wrong with a port.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// No port of that name.
    #[error(
        "no DPDK port is named {name:?}; there are: {}. DPDK says on stderr what it could not \
         open. A virtual port needs --vdev={name} with its arguments, a NIC must be bound to \
         vfio-pci (`dpdk-devbind.py --status`)",
        list(.present)
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names of the ports that there are.
        present: Vec<String>,
    },
    /// Somebody in this process has it.
    #[error("port {0} is in use: name it for one arm only")]
    Taken(String),
    /// A number that the driver does not take.
    #[error("port {name}: {what} {found}; the driver allows {least} to {most}")]
    OutOfRange {
        /// The port.
        name: String,
        /// Which number.
        what: &'static str,
        /// What was asked for.
        found: u32,
        /// Smallest allowed.
        least: u32,
        /// Largest allowed.
        most: u32,
    },
    /// Frames would not fit a buffer, and the driver cannot scatter them.
    #[error(
        "port {name}: an MTU of {mtu} needs buffers of {need} bytes, they have {room}, and the \
         driver cannot scatter a frame over several: raise the buffers' bytes or lower the MTU"
    )]
    BufferTooSmall {
        /// The port.
        name: String,
        /// The MTU asked for.
        mtu: u16,
        /// Bytes that a buffer needs, headroom included.
        need: usize,
        /// Bytes that it has.
        room: usize,
    },
    /// The kernel's interface under the port has a smaller MTU.
    #[error(
        "port {name}: an MTU of {mtu} is asked for, its interface {interface} has {found}: \
         type `ip link set dev {interface} mtu {mtu}`, or lower the port's MTU"
    )]
    InterfaceMtu {
        /// The port.
        name: String,
        /// The kernel's interface.
        interface: String,
        /// Its MTU.
        found: i32,
        /// The MTU asked for.
        mtu: u16,
    },
    /// Queues are out while the port should be stopped or set up.
    #[error("port {0}: its queues are still held by pollers; stop those first")]
    QueuesHeld(String),
    /// Set up or started in the wrong order.
    #[error("port {name}: {state}")]
    Order {
        /// The port.
        name: String,
        /// What is the matter.
        state: &'static str,
    },
    /// DPDK or the driver refused.
    #[error("port {name}: {step}: {errno}")]
    Refused {
        /// The port.
        name: String,
        /// What was asked.
        step: &'static str,
        /// The reason given.
        errno: Errno,
    },
}

/// Names for a message.
fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}
