//! The NIC drivers that Weir knows: how a device is recognized, how it is attached to DPDK, and
//! what the driver demands and counts.
//!
//! One row per driver of DPDK. Facts were read in the sources and guides of the version that a row
//! names; what could not be verified is [`Answer::Unknown`] or [`Limit::Unknown`]. Limits that the
//! driver queries from its device are [`Answer::Device`] or [`Limit::Device`]:
//! `rte_eth_dev_info_get` returns them when the port exists.

mod cloud;
mod facts;
mod intel;
mod pci_ids;
mod software;
mod table;

pub use facts::{
    Answer, Attachment, Counter, Counters, Descriptors, Driver, Events, FastFree, LargeHeaders,
    Limit, Missed, NoBuffer, PciId, Queues, Recognition, Rss, RxScatter, Since, Support,
    UserDriver, Version,
};
pub use table::{DRIVERS, by_kernel_driver, by_name, by_pci_id, netvsc};

#[cfg(test)]
mod tests;
