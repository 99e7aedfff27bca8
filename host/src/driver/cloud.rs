//! Rows of the driver table for NICs of clouds and virtual machines.
//!
//! The facts were read in DPDK 22.11.11 (Debian's source package) unless a row names another
//! version.

use super::facts::{
    Answer, Attachment, Counter, Counters, Descriptors, Driver, Events, FastFree, LargeHeaders,
    Limit, Missed, NoBuffer, Queues, Recognition, Rss, RxScatter, Since, Support, UserDriver,
    Version,
};
use super::pci_ids;

/// The oldest supported version of DPDK.
const FIRST: Version = Version(22, 11);

const fn since_first(driver: UserDriver) -> Support {
    Support { driver, since: FIRST, demand: "" }
}

pub(super) const ENA: Driver = Driver {
    name: "net_ena",
    title: "Amazon Elastic Network Adapter",
    recognition: Recognition {
        pci: pci_ids::ENA,
        kernel_only: pci_ids::ENA_KERNEL,
        kernel_drivers: &["ena"],
        vmbus: false,
    },
    // LLQ (low latency queue) writes descriptors and headers into the device's memory, which is
    // fast only with write combining. EAL maps the `resourceN_wc` file for UIO drivers
    // (`pci_uio_map_resource_by_index`, since net_ena sets RTE_PCI_DRV_WC_ACTIVATE), so that both
    // UIO drivers allow write combining. vfio-pci maps without, unless the module is patched.
    attachment: Attachment::UserDriver(&[
        Support {
            driver: UserDriver::IgbUio,
            since: FIRST,
            demand: "load it with `modprobe igb_uio wc_activate=1`: without write combining, LLQ \
                     is slow (throughput and CPU)",
        },
        Support {
            driver: UserDriver::UioPciGeneric,
            since: Version(24, 3),
            demand: "add the device argument control_poll_interval=1000: this driver has no MSI-X",
        },
        Support {
            driver: UserDriver::VfioPci,
            since: FIRST,
            demand: "expect low throughput from sixth-generation instances on: the module maps the \
                     LLQ memory without write combining, unless it has Amazon's patch",
        },
    ]),
    min_dpdk: FIRST,
    min_kernel: None,
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    rx_descriptors: Descriptors {
        min: Limit::Fixed(128),
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Yes,
    },
    // Large LLQ headers halve the maximum number of descriptors, except on devices with a larger
    // memory BAR (24.03).
    tx_descriptors: Descriptors {
        min: Limit::Fixed(128),
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Yes,
    },
    // "Packets for which the hash function is not used are always received on the queue 0", and
    // no hardware lets the hashed fields be changed.
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Fixed(128)), (Version(25, 3), Limit::Device)]),
        udp_ports_v4: Answer::Yes,
        udp_ports_v6: Answer::Yes,
        other_ip: Answer::No,
        inner: Answer::No,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Always,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::Yes,
    fast_free: FastFree::Offered,
    events: Events { link: Answer::Yes, removal: Answer::No, reset: Answer::Yes, timer: true },
    // llq_policy: 1 is the device's recommendation, 3 is large. Without the argument, 24.11.0
    // disables LLQ altogether (amzn-drivers issue 331), so it must always be given.
    large_headers: Since(&[
        (FIRST, LargeHeaders { argument: "large_llq_hdr=1", normal_bytes: 96, large_bytes: 224 }),
        (
            Version(24, 11),
            LargeHeaders { argument: "llq_policy=3", normal_bytes: 96, large_bytes: 224 },
        ),
    ]),
    // ierrors counts delivered packets with a bad checksum (`eth_ena_recv_pkts`). Packets beyond
    // the allowances of the instance (`bw_in_allowance_exceeded`, ...) are lost before the NIC.
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed],
        complete: Answer::Unknown,
        missed: Missed::Hardware,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/ena/ena_ethdev.c: ena_infos_get, ena_stats_get, \
         eth_ena_recv_pkts, eth_ena_prep_pkts, ena_rx_queue_setup",
        "DPDK 22.11.11 doc/guides/nics/ena.rst",
        "amzn-drivers userspace/dpdk/README.md: 6 (write combining), 9 (timer, reset), 11 (RSS)",
        "amzn-drivers userspace/dpdk/RELEASENOTES.md: v24.03 (uio_pci_generic, imissed includes \
         rx_overruns), v24.11 (llq_policy), v25.03 (RETA)",
        "DPDK 24.11 doc/guides/rel_notes/release_24_11.rst; amzn-drivers issue 331",
    ],
};

pub(super) const MANA: Driver = Driver {
    name: "net_mana",
    title: "Microsoft Azure Network Adapter",
    recognition: Recognition {
        pci: pci_ids::MANA,
        kernel_only: &[],
        kernel_drivers: &["mana"],
        vmbus: false,
    },
    attachment: Attachment::Bifurcated(&["mana", "mana_ib", "ib_uverbs"]),
    // 22.11 has the driver, with an MTU of at most 1500.
    min_dpdk: Version(23, 11),
    min_kernel: Some(Version(6, 2)),
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::Yes,
        power_of_two: Answer::Yes,
    },
    rx_descriptors: Descriptors {
        min: Limit::Fixed(64),
        max: Limit::Device,
        align: 64,
        power_of_two: Answer::No,
    },
    tx_descriptors: Descriptors {
        min: Limit::Fixed(64),
        max: Limit::Device,
        align: 64,
        power_of_two: Answer::No,
    },
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Fixed(64))]),
        udp_ports_v4: Answer::Yes,
        udp_ports_v6: Answer::Yes,
        other_ip: Answer::Yes,
        inner: Answer::Unknown,
    },
    max_mtu: Since(&[(FIRST, Limit::Fixed(1500)), (Version(23, 11), Limit::Fixed(9000))]),
    rx_scatter: RxScatter::Never,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::No,
    fast_free: FastFree::NotOffered,
    events: Events { link: Answer::No, removal: Answer::Yes, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    counters: Counters {
        frames: &[Counter::Received, Counter::Errors],
        complete: Answer::No,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/mana/mana.c: mana_dev_configure, mana_dev_info_get, \
         mana_dev_stats_get (\"no good way to get stats->imissed\"); rx.c: mana_rx_burst",
        "DPDK 26.03 drivers/net/mana/mana.h: MANA_MAX_MTU; \"net/mana: add support to update MTU\" \
         (July 2023, after 23.07)",
        "DPDK doc/guides/nics/mana.rst: kernel 6.2, rdma-core 44, modules stay bound",
    ],
};

pub(super) const MLX5: Driver = Driver {
    name: "mlx5_pci",
    title: "NVIDIA ConnectX and BlueField",
    recognition: Recognition {
        pci: pci_ids::MLX5,
        kernel_only: &[],
        kernel_drivers: &["mlx5_core"],
        vmbus: false,
    },
    attachment: Attachment::Bifurcated(&["mlx5_core", "mlx5_ib", "ib_uverbs"]),
    min_dpdk: FIRST,
    min_kernel: Some(Version(4, 14)),
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    rx_descriptors: Descriptors {
        min: Limit::Unknown,
        max: Limit::Device,
        // Other numbers are rounded up.
        align: 1,
        power_of_two: Answer::No,
    },
    tx_descriptors: Descriptors {
        min: Limit::Unknown,
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::No,
    },
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Device)]),
        udp_ports_v4: Answer::Yes,
        udp_ports_v6: Answer::Yes,
        other_ip: Answer::Yes,
        inner: Answer::Device,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Offload,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::No,
    fast_free: FastFree::SingleSegment,
    events: Events { link: Answer::Yes, removal: Answer::Yes, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    // imissed is the counter out_of_buffer; discards of the port (rx_discards_phy) are xstats only.
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed, Counter::Errors],
        complete: Answer::No,
        missed: Missed::Hardware,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/mlx5: mlx5_ethdev.c mlx5_dev_infos_get; mlx5_stats.c \
         mlx5_stats_get; mlx5_rx.c and mlx5_rxtx_vec.c (rx_nombuf); mlx5_txq.c txq_set_params \
         (fast free); linux/mlx5_os.c (INTR_LSC, INTR_RMV)",
        "DPDK 22.11.11 doc/guides/platform/mlx5.rst: kernel 4.14, rdma-core 16; \
         doc/guides/nics/mlx5.rst: inner RSS",
    ],
};

pub(super) const NETVSC: Driver = Driver {
    name: "net_netvsc",
    title: "Hyper-V synthetic NIC",
    recognition: Recognition {
        pci: &[],
        kernel_only: &[],
        kernel_drivers: &["hv_netvsc"],
        vmbus: true,
    },
    // The VF of the pair stays with its kernel driver; the driver of DPDK uses it by itself.
    attachment: Attachment::UserDriver(&[since_first(UserDriver::UioHvGeneric)]),
    min_dpdk: FIRST,
    // 4.17 for several queues, 4.18 for driver_override on VMBUS.
    min_kernel: Some(Version(4, 18)),
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::Unknown,
        power_of_two: Answer::No,
    },
    rx_descriptors: Descriptors {
        min: Limit::Unknown,
        max: Limit::Unknown,
        // The ring is rounded up to a power of two.
        align: 1,
        power_of_two: Answer::No,
    },
    tx_descriptors: Descriptors {
        min: Limit::Fixed(1),
        max: Limit::Fixed(4096),
        align: 1,
        power_of_two: Answer::No,
    },
    // Depends on the host's capabilities. Ports of UDP over IPv6 are never offered.
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Fixed(128))]),
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::No,
        other_ip: Answer::Device,
        inner: Answer::Unknown,
    },
    // The driver sets no max_mtu, so that ethdev derives it from the maximum frame: 2048 bytes, 18
    // of which are Ethernet's header and CRC.
    max_mtu: Since(&[(FIRST, Limit::Fixed(2030))]),
    rx_scatter: RxScatter::Never,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::No,
    fast_free: FastFree::NotOffered,
    // Removal of the VF is handled by the driver: traffic moves to the synthetic path.
    events: Events { link: Answer::Yes, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    // imissed counts frames that did not fit in the driver's ring and are in ipackets already.
    counters: Counters {
        frames: &[Counter::Received, Counter::Errors, Counter::NoBuffer],
        complete: Answer::No,
        missed: Missed::Driver,
        no_buffer: NoBuffer::Lost,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/netvsc: hn_ethdev.c hn_dev_info_get, hn_dev_stats_get; \
         hn_rxtx.c hn_rxpkt; hn_rndis.c hn_rndis_query_rsscaps; hn_var.h HN_MAX_XFER_LEN",
        "DPDK 22.11.11 lib/ethdev/rte_ethdev.c: eth_dev_validate_mtu",
        "DPDK doc/guides/nics/netvsc.rst: uio_hv_generic, kernel 4.17 and 4.18, VF handled inside",
    ],
};

pub(super) const VIRTIO: Driver = Driver {
    name: "net_virtio",
    title: "virtio-net",
    recognition: Recognition {
        pci: pci_ids::VIRTIO,
        kernel_only: &[],
        kernel_drivers: &["virtio-pci", "virtio_net"],
        vmbus: false,
    },
    attachment: Attachment::UserDriver(&[
        since_first(UserDriver::VfioPci),
        since_first(UserDriver::IgbUio),
        since_first(UserDriver::UioPciGeneric),
    ]),
    min_dpdk: FIRST,
    min_kernel: None,
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    // The host decides the size of a split ring, a power of two of at most 32768.
    rx_descriptors: Descriptors {
        min: Limit::Unknown,
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Device,
    },
    tx_descriptors: Descriptors {
        min: Limit::Unknown,
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Device,
    },
    // Without VIRTIO_NET_F_RSS, the host chooses the receive queue of each packet.
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Device)]),
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Device,
        inner: Answer::No,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    // With VIRTIO_NET_F_MRG_RXBUF.
    rx_scatter: RxScatter::Device,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::Yes,
    fast_free: FastFree::NotOffered,
    // With VIRTIO_NET_F_STATUS and MSI-X.
    events: Events { link: Answer::Device, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    // A frame for which the receive queue has no descriptor is dropped by the host, which counts it
    // there (`tx_dropped` of a TAP); no counter of the guest includes it.
    counters: Counters {
        frames: &[Counter::Received, Counter::Errors],
        complete: Answer::No,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/virtio: virtio_ethdev.c virtio_dev_info_get, \
         virtio_update_stats, virtio_init_device, virtio_init_queue; virtio_rxtx.c \
         (rx_mbuf_alloc_failed)",
        "measured in qemu: binds to vfio-pci and uio_pci_generic, passes traffic; of 12,000 frames \
         for a stopped poll loop, those beyond the queues are in no counter of the guest; a frame \
         shorter than an Ethernet header is in ierrors",
    ],
};

pub(super) const VMXNET3: Driver = Driver {
    name: "net_vmxnet3",
    title: "VMware vmxnet3",
    recognition: Recognition {
        pci: pci_ids::VMXNET3,
        kernel_only: &[],
        kernel_drivers: &["vmxnet3"],
        vmbus: false,
    },
    attachment: Attachment::UserDriver(&[
        since_first(UserDriver::VfioPci),
        since_first(UserDriver::IgbUio),
        since_first(UserDriver::UioPciGeneric),
    ]),
    min_dpdk: FIRST,
    min_kernel: None,
    // 16 receive and 8 transmit queues, or up to 32 of each from device version 6 on.
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        // Before device version 6.
        power_of_two: Answer::Device,
    },
    rx_descriptors: Descriptors {
        min: Limit::Fixed(128),
        max: Limit::Fixed(4096),
        align: 1,
        power_of_two: Answer::No,
    },
    tx_descriptors: Descriptors {
        min: Limit::Fixed(512),
        max: Limit::Fixed(4096),
        align: 1,
        power_of_two: Answer::No,
    },
    // UDP from device version 4 on.
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Device)]),
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Yes,
        inner: Answer::Unknown,
    },
    // 9000, or 9190 from device version 6 on.
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Offload,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::Yes,
    fast_free: FastFree::NotOffered,
    events: Events { link: Answer::Yes, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed, Counter::Errors],
        complete: Answer::Yes,
        missed: Missed::Hardware,
        // Failures are in the xstat rx_buf_alloc_failure only.
        no_buffer: NoBuffer::NotCounted,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/vmxnet3: vmxnet3_ethdev.c vmxnet3_dev_configure, \
         vmxnet3_dev_info_get, vmxnet3_dev_stats_get; vmxnet3_rxtx.c vmxnet3_recv_pkts; \
         base/vmxnet3_defs.h",
        "measured in qemu: binds to vfio-pci; of 12,000 frames for a stopped poll loop, and of \
         frames longer than a buffer, every one is counted; TCP segments of virtio NICs are \
         discarded as frames with a bad FCS, which qemu's device does not mark as good",
    ],
};

pub(super) const GVE: Driver = Driver {
    name: "net_gve",
    title: "Google Virtual Ethernet",
    recognition: Recognition {
        pci: pci_ids::GVE,
        kernel_only: &[],
        kernel_drivers: &["gve"],
        vmbus: false,
    },
    attachment: Attachment::UserDriver(&[
        since_first(UserDriver::VfioPci),
        since_first(UserDriver::IgbUio),
    ]),
    min_dpdk: FIRST,
    min_kernel: None,
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    // The device gives the number, and the driver accepts no other.
    rx_descriptors: Descriptors {
        min: Limit::Device,
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Unknown,
    },
    tx_descriptors: Descriptors {
        min: Limit::Device,
        max: Limit::Device,
        align: 1,
        power_of_two: Answer::Unknown,
    },
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Unknown)]),
        udp_ports_v4: Answer::Unknown,
        udp_ports_v6: Answer::Unknown,
        other_ip: Answer::Unknown,
        inner: Answer::Unknown,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Never,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::Unknown,
    fast_free: FastFree::NotOffered,
    events: Events { link: Answer::No, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    // 22.11 has no statistics of this driver.
    counters: Counters {
        frames: &[],
        complete: Answer::Unknown,
        missed: Missed::Unknown,
        no_buffer: NoBuffer::NotCounted,
    },
    sources: &["DPDK 22.11.11 drivers/net/gve/gve_ethdev.c: gve_dev_info_get, dev_ops"],
};
