//! Data types for Azure responses, independent of their JSON form.

use std::net::IpAddr;

pub use clouds::failure::{CallError, Failure};
use serde::{Deserialize, Serialize};

/// One of the two tunnels of a pool, by its port and VNI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// Outer UDP destination port, in both directions.
    pub port: u16,
    /// VXLAN network identifier (24 bits).
    pub vni: u32,
}

/// The two tunnels of a backend pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tunnels {
    /// Tunnel from and to the internet.
    pub external: TunnelEnd,
    /// Tunnel from and to the application.
    pub internal: TunnelEnd,
}

/// Address family of a pool. A machine has at most one configured pool of each family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Identity of this machine, as reported by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Unique id of the VM, a UUID.
    pub vm_id: String,
    /// Name of the VM, `ss_0` for instance in a scale set.
    pub name: String,
    /// Id of the subscription.
    pub subscription: String,
    /// Name of the resource group.
    pub resource_group: String,
    /// Region, `westeurope` for instance.
    pub location: String,
    /// Availability zone, `1` for instance; empty without zones.
    pub zone: String,
    /// Azure environment, as IMDS spells it: `AzurePublicCloud`, `AzureUSGovernmentCloud` or
    /// `AzureChinaCloud`.
    pub environment: String,
    /// Full Resource Manager id of the VM.
    pub resource_id: String,
    /// Name of the scale set, uniform or flexible, if the VM belongs to one.
    pub scale_set: Option<String>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
}

/// A network interface of this machine, as reported by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// MAC address.
    pub mac: [u8; 6],
    /// Private addresses of both families.
    pub addresses: Vec<IpAddr>,
}

/// A scheduled event that affects this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledEvent {
    /// Id of the event, for the acknowledgment.
    pub id: String,
    /// Type of the event.
    pub kind: EventKind,
    /// True if the event has started; it then needs no acknowledgment.
    pub started: bool,
    /// Earliest start as Unix time in seconds; `None` if the event may start at once.
    pub not_before: Option<u64>,
    /// Origin of the event and Azure's description.
    pub description: String,
}

/// Type of a scheduled event, by its effect on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// Paused for some seconds; memory and connections are kept.
    Freeze,
    /// Restarted.
    Reboot,
    /// Moved to another host; temporary disks are lost.
    Redeploy,
    /// Spot machine evicted.
    Preempt,
    /// Deleted, by its scale set for instance.
    Terminate,
    /// An unknown event type.
    Other,
}
