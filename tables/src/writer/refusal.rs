//! Why a change of the tables was refused, and which setting to raise.

use std::net::IpAddr;

use crate::maglev;
use crate::record::NAME_BYTES;

/// A change that did not happen; nothing of it was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A table is full.
    #[error(
        "no room for one more of {what}: {used} of {room} are in use{}; raise {setting} (the \
         region has to be made anew) or remove some", waiting(*retired)
    )]
    Full {
        /// Which table.
        what: &'static str,
        /// The setting that gives it room.
        setting: &'static str,
        /// In use.
        used: u32,
        /// Room.
        room: u32,
        /// Removed, and waiting for flows or lcores.
        retired: u32,
    },
    /// No run of free slots is long enough.
    #[error(
        "no {wanted} slots in a row are free ({free} of {room} are free in all); raise \
         region.slots, or give services a smaller table_size"
    )]
    Slots {
        /// Slots of the new table.
        wanted: u32,
        /// Free slots.
        free: u32,
        /// All slots.
        room: u32,
    },
    /// The hash chain of a frontend is as long as it may be.
    #[error("too many frontends share a hash chain; raise region.max_frontends")]
    Crowded,
    /// A live lcore still reads the generation before the committed one.
    #[error(
        "lcore {lcore} still reads generation {at}, {committed} is committed; send it the switch \
         command and try again when it has acknowledged"
    )]
    Unacknowledged {
        /// Which lcore.
        lcore: usize,
        /// What it reads.
        at: u32,
        /// What is committed.
        committed: u32,
    },
    /// The kernel doesn't say when XDP programs have let go of the generation before.
    #[error("the kernel can't be waited for (BPF_MAP_UPDATE_ELEM: {0}); try again")]
    Kernel(String),
    /// All generation numbers are used up.
    #[error("4 thousand million generations are used up; the region has to be made anew")]
    Generations,
    /// No such service, backend, tunnel or next hop.
    #[error("{what}: there is no {id}; ids in use are below {count}")]
    NoSuchId {
        /// Which table.
        what: &'static str,
        /// The id.
        id: u32,
        /// Room of the table.
        count: u32,
    },
    /// It is referred to.
    #[error("{what} {id} still has {uses} {users}; remove them first")]
    InUse {
        /// Which table.
        what: &'static str,
        /// The id.
        id: u32,
        /// How many refer to it.
        uses: u32,
        /// What they are.
        users: &'static str,
    },
    /// A name that can't be stored.
    #[error("the service name {name:?} has {} bytes; allowed are 1 to {NAME_BYTES}", name.len())]
    Name {
        /// The name.
        name: String,
    },
    /// A frontend key that no packet can have.
    #[error("frontend {addr}/{prefix_len}: {why}")]
    Key {
        /// Its address.
        addr: IpAddr,
        /// Its prefix length in the 128-bit form.
        prefix_len: u8,
        /// What is wrong.
        why: &'static str,
    },
    /// A probe source that another backend has.
    #[error("probe source {addr} belongs to backend {id} already; give each backend its own")]
    Probe {
        /// The address.
        addr: IpAddr,
        /// Whose it is.
        id: u32,
    },
    /// A size that is none of Maglev's.
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
        /// Backends that serve.
        backends: usize,
        /// The size.
        size: u32,
    },
    /// More NAT addresses than port maps.
    #[error(
        "{addresses} NAT addresses of one family need {addresses} port maps for each backend; \
         region.nat_maps is {maps}: raise it to {addresses} times region.max_backends"
    )]
    NatMaps {
        /// NAT addresses of the family with more of them.
        addresses: u32,
        /// All maps.
        maps: u32,
    },
}

fn waiting(retired: u32) -> String {
    if retired == 0 { String::new() } else { format!(", {retired} wait for their last flows") }
}
