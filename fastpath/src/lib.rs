//! The fast path: one poll loop per lcore and the packet pipeline that it runs.
//!
//! ```text
//!  NIC --rx--> burst --> pipeline.rs: parse > decap > classify > track > select > encap
//!                 |                                                              |
//!                 |                                                          dispatch --tx--> NIC
//!  slowpath --ring--> control.rs: switch, trace                                  |
//!                                        exception.rs <--rings--> TAP <--> kernel
//! ```
//!
//! Modules, in reading order:
//!
//! - [`pipeline`] is the list of stages. [`burst`] and [`verdict`] are the data that stages work
//!   on, [`snapshot`] and [`lcore`] the state that they read.
//! - The stages: [`parse`] (with [`header_cache`], the cache of outer headers), [`decap`],
//!   [`classify`], [`track`] (with [`leg`]), [`select`] (with [`insert`]), and [`encap`] with the
//!   actions [`nat`], [`tunnel`] (with [`template_cache`]), [`reply`] and [`punt`], which share
//!   [`delivery`].
//! - [`dispatch`] counts packets and sends them.
//! - Special cases: [`nat64`] (NAT between families), [`proxy`] (redirection to a local proxy),
//!   [`origin`] (the stateless return path), [`pmtu`] (path MTUs reported by routers).
//! - Around them: [`poll`] (the loop over the NIC's queues), [`port`] (packet buffers), [`nic`]
//!   (resets, removals and counters of NICs, with [`exchange`]), [`control`] (commands from
//!   slowpath), [`exception`] and [`tap`] (packets from and to the kernel),
//!   [`punt_limit`], [`trace`], [`capture`], [`clock`], [`launch`], which starts everything, and
//!   [`memory`], one lcore without a NIC for tests and benchmarks.
//!
//! Invariants: an lcore never blocks, allocates, logs or makes a system call per packet. Every
//! packet is counted once on arrival and once by its verdict. A packet that is lost after its
//! verdict (full queue, full ring) is counted as dropped as well. The fast path communicates with
//! slowpath only through the region. No `unsafe` here.

#![forbid(unsafe_code)]

pub mod burst;
pub mod capture;
pub mod classify;
pub mod clock;
pub mod control;
pub mod decap;
pub mod delivery;
pub mod dispatch;
pub mod encap;
pub mod exception;
pub mod exchange;
pub mod header_cache;
pub mod insert;
pub mod launch;
pub mod lcore;
pub mod leg;
pub mod memory;
pub mod nat;
pub mod nat64;
pub mod nic;
pub mod origin;
pub mod parse;
pub mod pipeline;
pub mod pmtu;
pub mod poll;
pub mod port;
pub mod proxy;
pub mod punt;
pub mod punt_limit;
pub mod reply;
pub mod select;
pub mod snapshot;
pub mod tap;
pub mod template_cache;
pub mod trace;
pub mod track;
pub mod tunnel;
pub mod verdict;
