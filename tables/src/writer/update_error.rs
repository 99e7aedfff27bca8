//! `UpdateError`: errors of table updates, with the configuration key to raise.

use std::net::IpAddr;

use crate::maglev;
use crate::record::NAME_BYTES;

/// Error of an update that was not performed. Nothing was written, except possibly by
/// `Writer::set_ranges` without a preceding `Writer::check_slots`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateError {
    /// A table is full.
    #[error(
        "table of {what} is full: {used} of {capacity} are in use{}; raise {setting} (this \
         recreates the region) or remove some", waiting(*retired)
    )]
    Full {
        /// Name of the table.
        what: &'static str,
        /// Configuration key of its capacity.
        setting: &'static str,
        /// Number of entries in use.
        used: u32,
        /// Capacity of the table.
        capacity: u32,
        /// Number of removed entries that wait for flows or lcores.
        retired: u32,
    },
    /// No run of free slots in the slot arena is long enough.
    #[error(
        "no {wanted} contiguous slots are free ({free} of {capacity} are free in total); raise \
         region.slots, or give services a smaller table_size"
    )]
    Slots {
        /// Slots required.
        wanted: u32,
        /// Free slots.
        free: u32,
        /// Capacity of the arena.
        capacity: u32,
    },
    /// The hash chain of a frontend has reached its maximum length.
    #[error("too many frontends share a hash chain; raise region.max_frontends")]
    ChainTooLong,
    /// A live lcore still reads the generation before the committed one.
    #[error(
        "lcore {lcore} still reads generation {at}, {committed} is committed; send it the switch \
         command and try again after its acknowledgment"
    )]
    Unacknowledged {
        /// Index of the lcore.
        lcore: usize,
        /// Generation that it reads.
        at: u32,
        /// Committed generation.
        committed: u32,
    },
    /// The wait for XDP programs that may read the previous generation failed.
    #[error("cannot wait for running XDP programs: BPF_MAP_UPDATE_ELEM: {0}; try again")]
    Kernel(String),
    /// All generation numbers are used up.
    #[error("all 2^32 generation numbers are used; recreate the region")]
    Generations,
    /// The service, backend, tunnel or next hop does not exist.
    #[error("{what}: id {id} does not exist; ids are below {count}")]
    NoSuchId {
        /// Name of the table.
        what: &'static str,
        /// The id.
        id: u32,
        /// Capacity of the table.
        count: u32,
    },
    /// The object is still referenced.
    #[error("{what} {id} still has {uses} {users}; remove them first")]
    InUse {
        /// Kind of the object.
        what: &'static str,
        /// The id.
        id: u32,
        /// Number of references.
        uses: u32,
        /// Kind of the referring objects.
        users: &'static str,
    },
    /// The service name is empty or too long.
    #[error("service name {name:?} has {} bytes; use 1 to {NAME_BYTES}", name.len())]
    Name {
        /// The name.
        name: String,
    },
    /// No packet can match the frontend key.
    #[error("frontend {addr}/{prefix_len}: {why}")]
    Key {
        /// Address of the key.
        addr: IpAddr,
        /// Prefix length in the 128-bit form.
        prefix_len: u8,
        /// What is wrong, and the remedy.
        why: &'static str,
    },
    /// Another backend has the probe source.
    #[error("probe source {addr} already belongs to backend {id}; give each backend its own")]
    Probe {
        /// The address.
        addr: IpAddr,
        /// Id of the backend that has it.
        id: u32,
    },
    /// The size is not one of [`maglev::SIZES`].
    #[error("table_size is {found}; use one of {:?}", maglev::SIZES)]
    TableSize {
        /// The size.
        found: u32,
    },
    /// More backends than slots.
    #[error(
        "{backends} backends do not fit into {size} slots; raise table_size (100 slots for each)"
    )]
    TableFull {
        /// Number of serving backends.
        backends: usize,
        /// The size.
        size: u32,
    },
    /// More NAT addresses than port maps per backend.
    #[error(
        "{addresses} NAT addresses of one family need {addresses} port maps for each backend; \
         region.nat_maps is {maps}: raise it to {addresses} times region.max_backends"
    )]
    NatMaps {
        /// NAT addresses of the family that has more of them.
        addresses: u32,
        /// Number of all port maps.
        maps: u32,
    },
}

fn waiting(retired: u32) -> String {
    match retired {
        0 => String::new(),
        _ => format!(", {retired} removed ones wait for their last flows"),
    }
}
