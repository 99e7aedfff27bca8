//! The fastpath: a poll loop per lcore, and the packet's journey through it.
//!
//! ```text
//!  NIC --rx--> burst --> pipeline.rs: parse > decap > classify > track > select > encap
//!                 |         each stage one loop over the burst, one hop away    |
//!                 |                                                          dispatch --tx--> NIC
//!  slowpath --ring--> control.rs: switch, trace                                 |
//!                                        exception.rs <--rings--> TAP <--> kernel
//! ```
//!
//! In reading order: [`pipeline`] is the list of stages. [`burst`] and [`verdict`] are what they
//! work on, [`snapshot`] and [`lcore`] what they read by. The stages: [`parse`] (with
//! [`familiar`]), [`decap`], [`classify`], [`track`] (with [`leg`]), [`select`] (with [`insert`]),
//! [`encap`] with the ways out [`nat`], [`tunnel`] (with [`prepared`]), [`reply`] and [`punt`], and
//! what these share, [`delivery`]. [`dispatch`] counts and hands over. Around them: [`port`] (where
//! frames live), [`control`] (slowpath's commands), [`pmtu`] (what routers tell of our own
//! packets), [`exception`] and [`tap`] (the kernel), [`trace`], [`clock`], and [`launch`], which
//! starts it all.
//!
//! Invariants: an lcore never blocks, allocates, logs or makes a system call per packet; every
//! packet is counted once on its way in and once on its way out; the fastpath knows nothing of
//! slowpath but the region. No `unsafe` here.

#![forbid(unsafe_code)]

pub mod burst;
pub mod classify;
pub mod clock;
pub mod control;
pub mod cross;
pub mod decap;
pub mod delivery;
pub mod dispatch;
pub mod encap;
pub mod exception;
pub mod familiar;
pub mod insert;
pub mod launch;
pub mod lcore;
pub mod leg;
pub mod memory;
pub mod nat;
pub mod origin;
pub mod parse;
pub mod pipeline;
pub mod pmtu;
pub mod poll;
pub mod port;
pub mod prepared;
pub mod punt;
pub mod punt_limit;
pub mod redirect;
pub mod reply;
pub mod select;
pub mod snapshot;
pub mod tap;
pub mod trace;
pub mod track;
pub mod tunnel;
pub mod verdict;
