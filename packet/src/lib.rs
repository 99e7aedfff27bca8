//! Wire formats: parsing and in-place rewriting of packets, shared by all of Weir's programs.
//!
//! Layers of a frame from a gateway, and the types that describe them:
//!
//! ```text
//!   | ethernet | ip | UDP | geneve + options     | ip (inner) | TCP ... payload
//!   | ethernet | ip | UDP | vxlan | ethernet     | ip (inner) | TCP ... payload
//!   | ethernet | ip | UDP | gue                  | ip (inner) | TCP ... payload
//!   | ethernet | ip |                            | ip (inner) | TCP ... payload   (IP in IP)
//!   ^          ^                                 ^
//!   window     outer: Ip                         inner: Ip     offsets into the window
//! ```
//!
//! The modules:
//!
//! - [`addr`] is the address type of all modules and of the tables.
//! - [`window`] gives bounds-checked access to the bytes.
//! - [`ethernet`] and [`ip`] parse the layers, [`geneve`], [`vxlan`] and [`gue`] the tunnel
//!   headers.
//! - [`flow`] builds the key of the table lookups; [`digest`] detects changed headers.
//! - [`rewrite`], [`tunnel`], [`icmp`] and [`translate`] (between address families) change the
//!   packet in place; [`checksum`] keeps its checksums correct.
//! - [`template`] writes the most frequent outer headers, and [`reset`] TCP resets. [`origin`]
//!   encodes in GENEVE options which gateway node sent a packet.
//!
//! A parse failure is a [`parsed::Malformed`], or a [`window::Short`] where the length is the only
//! requirement.
//!
//! Contract: parsing never panics and never reads outside the window. Every offset that a parser
//! returns lies in the window, except for the end of a packet, which lies in the frame. Nothing is
//! allocated, and parsing and rewriting copy no payload. The same code runs on a NIC's buffers and
//! in the kernel (BPF). Therefore loops over headers have constant bounds, and packet bytes are
//! accessed through the window, not through slices.
//!
//! Invariants: this crate does not depend on services or backends; `unsafe` is confined to
//! [`window`].
#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch, core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "no bounds mask at constant offsets")
)]

#[cfg(any(test, feature = "fuzz"))]
extern crate std;

pub mod addr;
pub mod checksum;
pub mod digest;
pub mod ethernet;
pub mod flow;
pub mod geneve;
pub mod gue;
pub mod icmp;
pub mod ip;
mod ipv4;
mod ipv6;
pub mod origin;
pub mod parsed;
pub mod reset;
pub mod rewrite;
pub mod template;
pub mod translate;
pub mod tunnel;
pub mod vxlan;
pub mod window;

#[cfg(test)]
mod tests;
