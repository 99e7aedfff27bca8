//! Formats on the wire, in place: what all of Weir's programs agree on.
//!
//! ```text
//!   a frame from a gateway, as the modules see it
//!
//!   | ethernet | ip | UDP | geneve + options     | ip (inner) | TCP ... payload
//!   | ethernet | ip | UDP | vxlan | ethernet     | ip (inner) | TCP ... payload
//!   | ethernet | ip | UDP | gue                  | ip (inner) | TCP ... payload
//!   | ethernet | ip |                            | ip (inner) | TCP ... payload   (IP in IP)
//!   ^          ^                                 ^
//!   window     outer: Ip                         inner: Ip     offsets into the window
//! ```
//!
//! In the order a packet meets them: [`window`] gives bounded access to the bytes, [`ethernet`] and
//! [`ip`] find the layers, [`geneve`], [`vxlan`] and [`gue`] the tunnels, [`flow`] makes the key by
//! which tables are asked, [`rewrite`], [`tunnel`] and [`icmp`] change the packet where it lies,
//! [`translate`] its family, with [`checksum`] keeping the sums. What is wrong with a packet is a
//! [`parsed::Malformed`].
//!
//! The contract: parsing never panics and never reads outside the window; what a parser has found
//! lies in the window. Nothing is allocated and no payload is copied. The same code runs on a NIC's
//! buffers and in the kernel, so it has bounded loops and no slices on the packet's path.
//!
//! Invariant: this crate has never heard of a service or a backend. `unsafe` only in [`window`].
#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch, core_intrinsics))]
#![cfg_attr(target_arch = "bpf", expect(internal_features, reason = "to spare constants a mask"))]

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
