//! Kernel state that slowpath reads and sets (next hops, addresses for probes, routing rules), and
//! the capabilities that it needs for that.

pub mod neighbors;
pub(crate) mod privileges;
pub mod probe_addresses;
pub mod proxy_rules;
