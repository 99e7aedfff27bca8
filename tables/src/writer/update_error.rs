//! `UpdateError`: errors of table updates, with the configuration key to raise.

use std::net::IpAddr;

use crate::maglev;
use crate::record::NAME_BYTES;

/// Error of an update that was not performed; nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateError {
    /// A table is full.
    #[error(
        "no room for one more of {what}: {used} of {capacity} are in use{}; raise {setting} (the \
         region has to be made anew) or remove some", waiting(*retired)
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
    /// No run of free slots is long enough.
    #[error(
        "no {wanted} slots in a row are free ({free} of {capacity} are free in all); raise \
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
         command and try again when it has acknowledged"
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
    #[error("the kernel can't be waited for (BPF_MAP_UPDATE_ELEM: {0}); try again")]
    Kernel(String),
    /// All generation numbers are used up.
    #[error("4 thousand million generations are used up; the region has to be made anew")]
    Generations,
    /// The service, backend, tunnel or next hop does not exist.
    #[error("{what}: there is no {id}; ids in use are below {count}")]
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
    #[error("the service name {name:?} has {} bytes; allowed are 1 to {NAME_BYTES}", name.len())]
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
    #[error("probe source {addr} belongs to backend {id} already; give each backend its own")]
    Probe {
        /// The address.
        addr: IpAddr,
        /// Id of the backend that has it.
        id: u32,
    },
    /// The size is not one of [`maglev::SIZES`].
    #[error("table_size is {found}; allowed are {:?}", maglev::SIZES)]
    TableSize {
        /// The size.
        found: u32,
    },
    /// More backends than slots.
    #[error(
        "{backends} backends don't fit into {size} slots; raise table_size (100 slots for each)"
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
    if retired == 0 { String::new() } else { format!(", {retired} wait for their last flows") }
}
