//! Shared state of Weir's processes: the memory region, its layout, and the lookups and updates on
//! it.
//!
//! fastpath and slowpath (and the loader of the XDP programs) map the same file or kernel maps.
//! Each section has one writer, except the header, of which each process writes its own part, and
//! the path MTUs, which fastpath learns and slowpath clears. Readers validate everything that
//! another process wrote. This crate does not depend on NICs. No code on a packet's path blocks,
//! allocates or makes a system call.
//!
//! Elements have the given sizes in bytes; those of pages and rings depend on the configuration. An
//! empty field of the column "writer" repeats the one above. "Control" is the thread of fastpath
//! that manages NICs. With the XDP plane, the kernel's programs and their loader write what is
//! fastpath's here, and a CPU is an lcore.
//!
//! ```text
//!  section           element   writer     contents
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | header          |  4,096  | both     | format, sizes, offsets | committed generation, epochs |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | tunnels         |    512  | slowpath | the table set: two versions of each record, visible   |
//! | settings        |  2,816  |          | by generation (`versioned`); read by `set`,           |
//! | services        |    128  |          | written by `writer`, committed by one store           |
//! | service notes   |    256  |          | names, and data that only dumps read (`note`)         |
//! | frontend kinds  |    128  |          | summary of the frontends that exist, for lookups      |
//! | frontend heads  |      4  |          | a chained hash (`lookup`)                             |
//! | frontend bits   |      8  |          | bitmap of its non-empty chains                        |
//! | frontend filter |      8  |          | addresses that may have frontends (`address_filter`)  |
//! | frontends       |     64  |          | frontends and marks, linked to chains (`lookup`)      |
//! | backends        |    128  |          | addresses, states and next hops of backends           |
//! | next hops       |     64  |          | updated in place (`next_hop`)                         |
//! | path MTUs       |      4  | fastpath | learned from ICMP, one per next hop                   |
//! | slots           |      4  | slowpath | Maglev arrays (`maglev`) and sorted runs (`run`)      |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | lcores          |     64  | its lcore| liveness and acknowledged generation (`lcore`)        |
//! | counters        |   page  | its lcore| packets, drops by `reason` (`counters`)               |
//! | NICs            | 28,672  | control  | state and counters of each arm's NIC (`nic`)          |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | command rings   |   ring  | slowpath | table switch, packet trace (`ring`, `command`)        |
//! | event rings     |   ring  | its lcore| switched, next hop needed, path MTU, trace            |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | flow index      |     64  | fastpath | both directions of each flow, buckets of four entries |
//! | flow locks      |      8  |          | one per bucket, with the owner's epoch                |
//! | flow filter     |      8  |          | addresses that may have flows (`address_filter`)      |
//! | flow state      |     64  |          | free records, counts, ring positions, by lcore        |
//! | paths           |    192  |          | how a flow is forwarded and answered (`flow`)         |
//! | path fronts     |     64  |          | copy of each flow's front entry, by path              |
//! | path links      |      4  |          | next free path, by path                               |
//! | unconfirmed     |      8  |          | rings of unconfirmed flows, which are evicted first   |
//! | option slabs    |    320  |          | gateway options over 48 bytes, second gateway legs    |
//! | slab links      |      4  |          | next free slab, by slab                               |
//! | leg copies      |    704  |          | previous contents of gateway legs during updates      |
//! | fragments       |     64  |          | fragmented datagrams (`fragment`)                     |
//! | fragment locks  |      8  |          | one per bucket of four entries                        |
//! | affinities      |     64  |          | session affinity of clients (`affinity`)              |
//! | affinity locks  |      8  |          | one per bucket of four entries                        |
//! | NAT port maps   |  8,192  |          | a bit per port, backend and NAT address (`nat_port`)  |
//! | scopes          |     32  |          | gateway endpoints by number (`scope`)                 |
//! | return legs     |    128  |          | routes back to gateway endpoints (`return_leg`)       |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! ```
//!
//! **A change**: [`writer::Writer`] of slowpath writes versions that no reader sees and commits
//! them by one store of the generation. A command notifies the lcores; each takes the new
//! [`set::TableSet`] between two bursts and acknowledges it. Until all have, memory that the old
//! set reads is not overwritten.
//!
//! **A packet**: [`set::TableSet::frontend`] finds the service, the flow table the flow,
//! [`set::TableSet::pick`] the backend of a new flow, and [`set::TableSet::next_hop`] the next hop.
//!
//! **A restart**: [`region::Region::create_or_open`] verifies the header, [`region::Region::claim`]
//! ensures that no other process has the role, and [`writer::Writer::attach`] verifies the table
//! set and rolls back what a killed writer left unfinished.
//!
//! **In the kernel**: all code on a packet's path is also compiled for BPF, from the same source,
//! with few exceptions. Operations on the words of [`atomic`] are inline assembly there. In `rows`,
//! a section is a BPF map instead of a slice, and `kernel` replaces [`region`]. Lookups of the flow
//! index have
//! another form (`flow/index/seek.rs`), and searches are functions of their own (`parts`).
//!
//! Start reading at [`layout`], then [`versioned`], [`set`], [`writer`].
#![cfg_attr(target_arch = "bpf", no_std)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
#![cfg_attr(target_arch = "bpf", allow(dead_code, reason = "the BPF program writes no tables"))]

pub mod address_filter;
pub mod atomic;
pub mod bpf_config;
pub mod capture;
pub mod counters;
pub mod error_limit;
pub mod layout;
pub mod lookup;
pub mod new_flow_limit;
pub mod next_hop;
pub mod punt;
pub mod reason;
pub mod record;
mod region_writer;
mod rows;
pub mod run;
pub mod set;
pub mod token_bucket;
pub mod versioned;

pub mod affinity;
pub mod flow;
pub mod fragment;
pub mod nat_port;
#[cfg(not(target_arch = "bpf"))]
pub mod nic;
pub mod outer;
pub mod return_leg;
pub mod scope;

#[cfg(target_arch = "bpf")]
pub mod parts;
#[cfg(target_arch = "bpf")]
#[path = "kernel.rs"]
pub mod region;

#[cfg(not(target_arch = "bpf"))]
pub mod capture_file;
#[cfg(not(target_arch = "bpf"))]
pub mod checksum;
#[cfg(not(target_arch = "bpf"))]
pub mod command;
#[cfg(not(target_arch = "bpf"))]
pub mod lcore;
#[cfg(not(target_arch = "bpf"))]
pub mod maglev;
#[cfg(not(target_arch = "bpf"))]
pub mod note;
#[cfg(not(target_arch = "bpf"))]
pub mod region;
#[cfg(not(target_arch = "bpf"))]
pub mod ring;
#[cfg(not(target_arch = "bpf"))]
pub mod writer;
