//! What Weir's processes share: one region of memory, laid out here and nowhere else.
//!
//! fastpath and slowpath (and the loader of the XDP program) map the same file, or maps. Each
//! section has one writer; whoever reads takes nothing for granted that the other wrote. Nothing in
//! here knows of a NIC, and no packet path in here blocks, allocates or makes a system call.
//!
//! ```text
//!  section           element   writer     what
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | header          |  4,096  | both     | format, sizes, offsets | committed generation, epochs |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | tunnels         |    512  | slowpath | the table set: everything twice, in two versions that |
//! | settings        |  2,816  |          | are born and die with generations (`versioned`);      |
//! | services        |    256  |          | `set` reads, `writer` writes, one store commits it   |
//! | service notes   |    256  |          | names, and what only dumps ask (`note`)               |
//! | frontend kinds  |    128  |          |                                                       |
//! | frontend heads  |      4  |          | a chained hash (`lookup`)                             |
//! | frontend bits   |      8  |          | which of its chains are not empty                     |
//! | frontend filter |      8  |          | which addresses may have frontends (`addresses`)      |
//! | frontends       |     64  |          |                                                       |
//! | backends        |    128  |          |                                                       |
//! | next hops       |     64  |          | changed in place (`next_hop`)                         |
//! | path MTUs       |      4  | fastpath | learned from ICMP, one per next hop                   |
//! | slots           |      4  | slowpath | Maglev arrays (`maglev`), immutable while referred to |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | lcores          |     64  | its lcore| polls? which generation? (`lcore`)                    |
//! | counters        |   page  | its lcore| packets, drops by `reason` (`counters`)               |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | command rings   |   ring  | slowpath | switch, trace (`ring`, `command`)                     |
//! | event rings     |   ring  | its lcore| switched, neighbour wanted, trace (`ring`, `command`) |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! | flow index      |     64  | fastpath | both directions of each flow, buckets of four entries |
//! | flow locks      |      8  |          | one per bucket, with the owner's epoch                |
//! | flow filter     |      8  |          | which addresses may have flows (`addresses`)          |
//! | flow state      |     64  |          | free records, counts, ring positions, by lcore        |
//! | paths           |    192  |          | how a flow is delivered and answered (`flow`)         |
//! | path fronts     |     64  |          | what a flow is recognised by, beside its path         |
//! | path links      |      4  |          |                                                       |
//! | unconfirmed     |      8  |          | which flows end first where room is short             |
//! | option slabs    |    320  |          | gateway options over 48 bytes, second gateway legs    |
//! | slab links      |      4  |          |                                                       |
//! | leg copies      |    704  |          | gateway legs that are being changed, as they were     |
//! | fragments       |     64  |          | datagrams in pieces (`fragment`)                      |
//! | fragment locks  |      8  |          |                                                       |
//! | affinities      |     64  |          | which backend clients stay with (`affinity`)          |
//! | affinity locks  |      8  |          |                                                       |
//! | NAT port maps   |  8,192  |          | a bit per port, backend and NAT address (`nat_port`)  |
//! | scopes          |     32  |          | gateway endpoints by number (`scope`)                 |
//! | return legs     |    128  |          | how an endpoint's answers go back (`return_leg`)      |
//! +-----------------+---------+----------+-------------------------------------------------------+
//! ```
//!
//! **A change**: slowpath's [`writer::Writer`] writes into room that no reader sees, and commits by
//! one store of the generation. A command tells the lcores; each takes the new
//! [`set::TableSet`] between two bursts and acknowledges. Until all have, nothing that the old one
//! reads is written over.
//!
//! **A packet**: [`set::TableSet::frontend`] finds the service, the flow table the flow,
//! [`set::TableSet::pick`] the backend of a new one, [`set::TableSet::next_hop`] the way.
//!
//! **A restart**: [`region::Region::create_or_open`] verifies the header, [`region::Region::claim`]
//! makes sure that nobody else has the role, [`writer::Writer::attach`] verifies the table set and
//! takes back what a killed writer left unfinished.
//!
//! **In the kernel**: all that a packet asks is compiled for BPF as well, from the same lines. Two
//! files make the difference: [`atomic`], whose words are inline assembly there, and `rows`, where
//! a section is a map of the kernel's in place of a slice. `kernel` stands in for [`region`].
//!
//! Start reading at [`layout`], then [`versioned`], [`set`], [`writer`].
#![cfg_attr(target_arch = "bpf", no_std)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
#![cfg_attr(
    target_arch = "bpf",
    allow(dead_code, reason = "the kernel's program writes no tables")
)]

pub mod addresses;
pub mod atomic;
pub mod counters;
pub mod error_limit;
pub mod layout;
pub mod lookup;
pub mod new_flow_limit;
pub mod next_hop;
mod pen;
pub mod punt;
pub mod reason;
pub mod record;
mod rows;
pub mod run;
pub mod set;
pub mod token_bucket;
pub mod told;
pub mod versioned;

pub mod affinity;
pub mod flow;
pub mod fragment;
pub mod nat_port;
pub mod outer;
pub mod return_leg;
pub mod scope;

#[cfg(target_arch = "bpf")]
pub mod parts;
#[cfg(target_arch = "bpf")]
#[path = "kernel.rs"]
pub mod region;

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
