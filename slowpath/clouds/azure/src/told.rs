//! What Azure tells, in our words.

use std::net::IpAddr;

pub use clouds::failure::{CallError, Failure};
use serde::{Deserialize, Serialize};

/// One of a pool's two tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// Outer UDP destination port, both ways.
    pub port: u16,
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
}

/// The tunnels of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tunnels {
    /// From and to the internet.
    pub external: End,
    /// From and to the application.
    pub internal: End,
}

/// Of which family a pool's addresses are; a gateway has at most one pool of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Who this machine is, by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Unique for ever, a UUID.
    pub vm_id: String,
    /// Its name, `ss_0` in a scale set.
    pub name: String,
    /// Id of its subscription.
    pub subscription: String,
    /// Its resource group.
    pub resource_group: String,
    /// `westeurope`.
    pub location: String,
    /// `1`, or empty.
    pub zone: String,
    /// `AzurePublicCloud`, `AzureUSGovernmentCloud`, `AzureChinaCloud`, as IMDS spells it.
    pub environment: String,
    /// Its whole id.
    pub resource_id: String,
    /// Its scale set's name, where it is a uniform scale set's instance or a flexible one's.
    pub scale_set: Option<String>,
    /// Its interfaces as IMDS tells them.
    pub interfaces: Vec<Interface>,
}

/// An interface of this machine by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Its link address.
    pub mac: [u8; 6],
    /// Its private addresses of both families.
    pub addresses: Vec<IpAddr>,
}

/// A scheduled event that concerns this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledEvent {
    /// Its id, for the acknowledgement.
    pub id: String,
    /// What is to happen.
    pub kind: EventKind,
    /// It has begun: there is nothing left to acknowledge.
    pub started: bool,
    /// Not before, seconds since 1970; none where it may begin at once.
    pub not_before: Option<u64>,
    /// Who wants it and why, in Azure's words.
    pub description: String,
}

/// What a scheduled event does to a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// Paused for some seconds; memory and connections stay.
    Freeze,
    /// Restarted.
    Reboot,
    /// Moved to another host: its temporary disks are lost.
    Redeploy,
    /// A spot machine is taken back.
    Preempt,
    /// Deleted, by its scale set for instance.
    Terminate,
    /// Something that we don't know.
    Other,
}
