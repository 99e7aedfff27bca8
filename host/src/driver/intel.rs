//! Rows of the driver table for Intel's NICs. The facts were read in DPDK 22.11.11 (Debian's source
//! package).

use super::facts::{
    Answer, Attachment, Counter, Counters, Descriptors, Driver, Events, FastFree, Limit, Missed,
    NoBuffer, PciId, Queues, Recognition, Rss, RxScatter, Since, Support, UserDriver, Version,
};
use super::pci_ids;

const FIRST: Version = Version(22, 11);

const fn support(driver: UserDriver) -> Support {
    Support { driver, since: FIRST, demand: "" }
}

const PHYSICAL: Attachment = Attachment::UserDriver(&[
    support(UserDriver::VfioPci),
    support(UserDriver::IgbUio),
    support(UserDriver::UioPciGeneric),
]);

/// Virtual functions have no legacy interrupt, which uio_pci_generic needs.
const VIRTUAL: Attachment =
    Attachment::UserDriver(&[support(UserDriver::VfioPci), support(UserDriver::IgbUio)]);

const fn descriptors(min: u32, align: u16) -> Descriptors {
    Descriptors { min: Limit::Fixed(min), max: Limit::Fixed(4096), align, power_of_two: Answer::No }
}

const fn recognition(
    pci: &'static [PciId],
    kernel_drivers: &'static [&'static str],
) -> Recognition {
    Recognition { pci, kernel_only: &[], kernel_drivers, vmbus: false }
}

/// The columns that most rows of this file share; each row replaces the others.
const COMMON: Driver = Driver {
    name: "",
    title: "",
    recognition: recognition(&[], &[]),
    attachment: PHYSICAL,
    min_dpdk: FIRST,
    min_kernel: None,
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    rx_descriptors: descriptors(64, 8),
    tx_descriptors: descriptors(64, 8),
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Device)]),
        udp_ports_v4: Answer::Yes,
        udp_ports_v6: Answer::Yes,
        other_ip: Answer::Yes,
        inner: Answer::Unknown,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Offload,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::Yes,
    fast_free: FastFree::NotOffered,
    events: Events { link: Answer::Yes, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed, Counter::Errors],
        complete: Answer::Unknown,
        missed: Missed::Hardware,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[],
};

pub(super) const IXGBE: Driver = Driver {
    name: "net_ixgbe",
    title: "Intel 82598, 82599, X540, X550",
    recognition: recognition(pci_ids::IXGBE, &["ixgbe"]),
    // 15872 bytes without Ethernet's header and CRC.
    max_mtu: Since(&[(FIRST, Limit::Fixed(15_854))]),
    // The redirection table has 128 entries, or 512 on X550.
    // imissed is the sum of the registers MPC. With rx_drop_en, drops of one full queue are counted
    // in that queue's q_errors (QPRDC), and not in imissed.
    counters: Counters { complete: Answer::No, ..COMMON.counters },
    sources: &[
        "DPDK 22.11.11 drivers/net/ixgbe: ixgbe_ethdev.c ixgbe_dev_info_get, ixgbe_dev_stats_get, \
         ixgbe_reta_size_get; ixgbe_rxtx.c (rx_mbuf_alloc_failed); ixgbe_rxtx.h",
    ],
    ..COMMON
};

pub(super) const IXGBE_VF: Driver = Driver {
    name: "net_ixgbe_vf",
    title: "Virtual functions of Intel 82599, X540, X550",
    recognition: recognition(pci_ids::IXGBE_VF, &["ixgbevf"]),
    attachment: VIRTUAL,
    max_mtu: Since(&[(FIRST, Limit::Fixed(9710))]),
    // X550 has a redirection table of 64 entries, 82599 and X540 have none: there the physical
    // function decides.
    rss: Rss {
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Device,
        ..COMMON.rss
    },
    events: Events { reset: Answer::Yes, ..COMMON.events },
    counters: Counters {
        frames: &[Counter::Received],
        complete: Answer::No,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &["DPDK 22.11.11 drivers/net/ixgbe/ixgbe_ethdev.c: ixgbevf_dev_info_get, \
         ixgbevf_dev_stats_get, ixgbevf_mbx_process (INTR_RESET)"],
    ..COMMON
};

pub(super) const I40E: Driver = Driver {
    name: "net_i40e",
    title: "Intel X710, XL710, XXV710, X722",
    recognition: recognition(pci_ids::I40E, &["i40e"]),
    rx_descriptors: descriptors(64, 32),
    tx_descriptors: descriptors(64, 32),
    // 9728 bytes without Ethernet's header, CRC and two VLAN tags.
    max_mtu: Since(&[(FIRST, Limit::Fixed(9702))]),
    fast_free: FastFree::Offered,
    sources: &[
        "DPDK 22.11.11 drivers/net/i40e: i40e_ethdev.c i40e_dev_info_get, i40e_dev_stats_get; \
         i40e_ethdev.h I40E_FRAME_SIZE_MAX; i40e_rxtx.h; i40e_rxtx.c (rx_mbuf_alloc_failed)",
    ],
    ..COMMON
};

pub(super) const IAVF: Driver = Driver {
    name: "net_iavf",
    title: "Virtual functions of Intel 700 and 800 series",
    recognition: recognition(pci_ids::IAVF, &["iavf", "i40evf"]),
    attachment: VIRTUAL,
    queues: Queues { rx: Limit::Fixed(256), tx: Limit::Fixed(256), ..COMMON.queues },
    rx_descriptors: descriptors(64, 32),
    tx_descriptors: descriptors(64, 32),
    max_mtu: Since(&[(FIRST, Limit::Fixed(9702))]),
    fast_free: FastFree::Offered,
    events: Events { reset: Answer::Yes, ..COMMON.events },
    counters: Counters { frames: &[Counter::Received, Counter::Missed], ..COMMON.counters },
    sources: &[
        "DPDK 22.11.11 drivers/net/iavf: iavf_ethdev.c iavf_dev_info_get, iavf_dev_stats_get; \
         iavf_vchnl.c (INTR_LSC, INTR_RESET); iavf.h; iavf_rxtx.c (rx_mbuf_alloc_failed)",
    ],
    ..COMMON
};

pub(super) const ICE: Driver = Driver {
    name: "net_ice",
    title: "Intel E810, E822, E823",
    recognition: recognition(pci_ids::ICE, &["ice"]),
    rx_descriptors: descriptors(64, 32),
    tx_descriptors: descriptors(64, 32),
    max_mtu: Since(&[(FIRST, Limit::Fixed(9702))]),
    // Without the DDP package, the driver works in safe mode: no RSS and no checksums.
    rss: Rss {
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Device,
        ..COMMON.rss
    },
    fast_free: FastFree::Offered,
    sources: &["DPDK 22.11.11 drivers/net/ice: ice_ethdev.c ice_dev_info_get, ice_stats_get; \
         ice_ethdev.h ICE_FRAME_SIZE_MAX; ice_rxtx.h; ice_rxtx.c (rx_mbuf_alloc_failed)"],
    ..COMMON
};

pub(super) const E1000_EM: Driver = Driver {
    name: "net_e1000_em",
    title: "Intel 82540 to I219 (e1000, e1000e)",
    recognition: recognition(pci_ids::E1000_EM, &["e1000", "e1000e"]),
    // The driver reports two queues and has no RSS, so that only the first one receives.
    queues: Queues { rx: Limit::Fixed(2), tx: Limit::Fixed(2), ..COMMON.queues },
    rx_descriptors: descriptors(32, 8),
    tx_descriptors: descriptors(32, 8),
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Fixed(0))]),
        udp_ports_v4: Answer::No,
        udp_ports_v6: Answer::No,
        other_ip: Answer::No,
        inner: Answer::No,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/e1000: em_ethdev.c eth_em_infos_get, eth_em_stats_get; \
         em_rxtx.c (rx_mbuf_alloc_failed); e1000_ethdev.h",
        "measured in qemu (82540EM, 82574L): binds to vfio-pci and uio_pci_generic, passes traffic",
    ],
    ..COMMON
};

pub(super) const E1000_IGB: Driver = Driver {
    name: "net_e1000_igb",
    title: "Intel 82575, 82576, 82580, I210, I350, I354",
    recognition: recognition(pci_ids::E1000_IGB, &["igb"]),
    rx_descriptors: descriptors(32, 8),
    tx_descriptors: descriptors(32, 8),
    rss: Rss { reta: Since(&[(FIRST, Limit::Fixed(128))]), ..COMMON.rss },
    // 16383 bytes without Ethernet's header, CRC and a VLAN tag.
    max_mtu: Since(&[(FIRST, Limit::Fixed(16_361))]),
    sources: &[
        "DPDK 22.11.11 drivers/net/e1000: igb_ethdev.c eth_igb_infos_get, eth_igb_stats_get; \
         igb_rxtx.c (rx_mbuf_alloc_failed); e1000_ethdev.h",
        "measured in qemu (82576): binds to vfio-pci and uio_pci_generic, passes traffic",
    ],
    ..COMMON
};
