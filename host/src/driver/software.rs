//! Rows of the driver table for drivers without hardware. The facts were read in DPDK 22.11.11
//! (Debian's source package).

use super::facts::{
    Answer, Attachment, Counter, Counters, Descriptors, Driver, Events, FastFree, Limit, Missed,
    NoBuffer, Queues, Recognition, Rss, RxScatter, Since, Version,
};

const FIRST: Version = Version(22, 11);

const ANY: Descriptors = Descriptors {
    min: Limit::Unknown,
    max: Limit::Unknown,
    align: 1,
    power_of_two: Answer::Unknown,
};

const NO_RSS: Rss = Rss {
    reta: Since(&[(FIRST, Limit::Fixed(0))]),
    udp_ports_v4: Answer::No,
    udp_ports_v6: Answer::No,
    other_ip: Answer::No,
    inner: Answer::No,
};

/// The columns that most rows of this file share; each row replaces the others.
const COMMON: Driver = Driver {
    name: "",
    title: "",
    recognition: Recognition { pci: &[], kernel_only: &[], kernel_drivers: &[], vmbus: false },
    attachment: Attachment::Virtual,
    min_dpdk: FIRST,
    min_kernel: None,
    // As many as the device arguments name.
    queues: Queues {
        rx: Limit::Device,
        tx: Limit::Device,
        equal: Answer::No,
        power_of_two: Answer::No,
    },
    rx_descriptors: ANY,
    tx_descriptors: ANY,
    rss: NO_RSS,
    // The driver sets no limit below the largest value of the field, 16 bits.
    max_mtu: Since(&[(FIRST, Limit::Fixed(65_535))]),
    rx_scatter: RxScatter::Always,
    tx_multi_segment: Answer::Yes,
    tx_prepare: Answer::No,
    fast_free: FastFree::NotOffered,
    events: Events { link: Answer::No, removal: Answer::No, reset: Answer::No, timer: false },
    large_headers: Since(&[]),
    counters: Counters {
        frames: &[Counter::Received],
        complete: Answer::Yes,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::NotCounted,
    },
    sources: &[],
};

pub(super) const AF_PACKET: Driver = Driver {
    name: "net_af_packet",
    title: "Interface of the kernel through an AF_PACKET socket",
    attachment: Attachment::Interface,
    // Frames of 1518 bytes; the interface may have a larger MTU.
    max_mtu: Since(&[(FIRST, Limit::Fixed(1500))]),
    rx_scatter: RxScatter::Never,
    // A frame without a buffer stays in the ring. What the kernel dropped because the ring was full
    // (PACKET_STATISTICS) is not read.
    counters: Counters { complete: Answer::No, ..COMMON.counters },
    sources: &[
        "DPDK 22.11.11 drivers/net/af_packet/rte_eth_af_packet.c: eth_dev_info, eth_af_packet_rx, \
         eth_stats_get",
    ],
    ..COMMON
};

pub(super) const AF_XDP: Driver = Driver {
    name: "net_af_xdp",
    title: "Interface of the kernel through AF_XDP sockets",
    attachment: Attachment::Interface,
    min_kernel: Some(Version(4, 18)),
    // A page without headrooms: about 3.3 kB.
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Never,
    tx_multi_segment: Answer::No,
    // imissed is rx_dropped of XDP_STATISTICS; full rings and empty fill rings are not in it.
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed],
        complete: Answer::No,
        missed: Missed::Kernel,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/af_xdp/rte_eth_af_xdp.c: eth_dev_info, af_xdp_rx_zc, \
         eth_stats_get; doc/guides/nics/af_xdp.rst: kernel 4.18",
        "measured: one queue on veth, which has no combined channels",
    ],
    ..COMMON
};

pub(super) const TAP: Driver = Driver {
    name: "net_tap",
    title: "TAP interface of the kernel",
    attachment: Attachment::Interface,
    queues: Queues { rx: Limit::Fixed(16), tx: Limit::Fixed(16), ..COMMON.queues },
    // The driver sets no max_mtu, so that ethdev derives it from the maximum frame: 1522 bytes, 18
    // of which are Ethernet's header and CRC.
    max_mtu: Since(&[(FIRST, Limit::Fixed(1504))]),
    rx_scatter: RxScatter::Offload,
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Fixed(0))]),
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Device,
        inner: Answer::No,
    },
    events: Events { link: Answer::Yes, ..COMMON.events },
    // The frame is read before its replacement is allocated. What the interface's queue did not
    // hold is in its `tx_dropped` only.
    counters: Counters {
        frames: &[Counter::Received, Counter::Errors, Counter::NoBuffer],
        complete: Answer::No,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::Lost,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/tap/rte_eth_tap.c: tap_dev_info, pmd_rx_burst, tap_stats_get; \
         tap_rss.h TAP_MAX_QUEUES",
        "measured: a frame without a buffer is in rx_nombuf, one longer than a buffer in ierrors",
    ],
    ..COMMON
};

pub(super) const NULL: Driver = Driver {
    name: "net_null",
    title: "Produces empty frames, and discards",
    queues: Queues { rx: Limit::Fixed(1024), tx: Limit::Fixed(1024), ..COMMON.queues },
    rx_scatter: RxScatter::Never,
    rss: Rss { reta: Since(&[(FIRST, Limit::Fixed(128))]), ..NO_RSS },
    sources: &["DPDK 22.11.11 drivers/net/null/rte_eth_null.c: eth_dev_info, eth_null_rx"],
    ..COMMON
};

pub(super) const RING: Driver = Driver {
    name: "net_ring",
    title: "Rings within the process",
    sources: &[
        "DPDK 22.11.11 drivers/net/ring/rte_eth_ring.c: eth_dev_info",
        "measured: the MTU cannot be set",
    ],
    ..COMMON
};

pub(super) const MEMIF: Driver = Driver {
    name: "net_memif",
    title: "Shared memory between processes",
    queues: Queues { rx: Limit::Fixed(255), tx: Limit::Fixed(255), ..COMMON.queues },
    rx_descriptors: Descriptors { max: Limit::Fixed(1 << 14), power_of_two: Answer::Yes, ..ANY },
    tx_descriptors: Descriptors { max: Limit::Fixed(1 << 14), power_of_two: Answer::Yes, ..ANY },
    max_mtu: Since(&[(FIRST, Limit::Fixed(1500))]),
    sources: &[
        "DPDK 22.11.11 drivers/net/memif: rte_eth_memif.c memif_dev_info, eth_memif_rx; \
         rte_eth_memif.h",
        "measured: the MTU cannot be set",
    ],
    ..COMMON
};

pub(super) const PCAP: Driver = Driver {
    name: "net_pcap",
    title: "Capture files, or an interface of the kernel through libpcap",
    attachment: Attachment::Interface,
    queues: Queues { rx: Limit::Fixed(16), tx: Limit::Fixed(16), ..COMMON.queues },
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed, Counter::Errors, Counter::NoBuffer],
        complete: Answer::Unknown,
        missed: Missed::Kernel,
        no_buffer: NoBuffer::Lost,
    },
    sources: &[
        "DPDK 22.11.11 drivers/net/pcap/pcap_ethdev.c: eth_dev_info, eth_pcap_rx, eth_stats_get",
    ],
    ..COMMON
};

pub(super) const VIRTIO_USER: Driver = Driver {
    name: "net_virtio_user",
    title: "virtio-net over a vhost-user socket or vhost-net",
    queues: Queues { rx: Limit::Fixed(8), tx: Limit::Fixed(8), ..COMMON.queues },
    rx_descriptors: Descriptors { power_of_two: Answer::Device, max: Limit::Device, ..ANY },
    tx_descriptors: Descriptors { power_of_two: Answer::Device, max: Limit::Device, ..ANY },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Device,
    tx_prepare: Answer::Yes,
    events: Events { link: Answer::Device, ..COMMON.events },
    counters: Counters {
        frames: &[Counter::Received, Counter::Errors],
        complete: Answer::No,
        missed: Missed::NotCounted,
        no_buffer: NoBuffer::Delayed,
    },
    sources: &["DPDK 22.11.11 drivers/net/virtio: virtio_ethdev.c virtio_dev_info_get, \
         virtio_update_stats; virtio.h VIRTIO_MAX_VIRTQUEUE_PAIRS"],
    ..COMMON
};

pub(super) const VHOST: Driver = Driver {
    name: "net_vhost",
    title: "vhost-user socket",
    queues: Queues { rx: Limit::Fixed(128), tx: Limit::Fixed(128), ..COMMON.queues },
    events: Events { link: Answer::Yes, ..COMMON.events },
    sources: &["DPDK 22.11.11 drivers/net/vhost/rte_eth_vhost.c: eth_dev_info, eth_vhost_rx; \
         lib/vhost/vhost.h VHOST_MAX_QUEUE_PAIRS"],
    ..COMMON
};

/// The columns of drivers that combine other devices. Most depend on these devices.
const COMBINED: Driver = Driver {
    rx_descriptors: Descriptors { min: Limit::Device, max: Limit::Device, ..ANY },
    tx_descriptors: Descriptors { min: Limit::Device, max: Limit::Device, ..ANY },
    rss: Rss {
        reta: Since(&[(FIRST, Limit::Device)]),
        udp_ports_v4: Answer::Device,
        udp_ports_v6: Answer::Device,
        other_ip: Answer::Device,
        inner: Answer::Device,
    },
    max_mtu: Since(&[(FIRST, Limit::Device)]),
    rx_scatter: RxScatter::Device,
    tx_multi_segment: Answer::Device,
    // The driver does not pass the call on to the combined devices, which may need it for
    // checksums.
    tx_prepare: Answer::No,
    fast_free: FastFree::Device,
    // Removal of a combined device is handled by the driver, which polls for its return.
    events: Events { link: Answer::Yes, removal: Answer::No, reset: Answer::No, timer: false },
    counters: Counters {
        frames: &[Counter::Received, Counter::Missed, Counter::Errors, Counter::NoBuffer],
        complete: Answer::Unknown,
        missed: Missed::Device,
        no_buffer: NoBuffer::Device,
    },
    ..COMMON
};

pub(super) const FAILSAFE: Driver = Driver {
    name: "net_failsafe",
    title: "One port of a preferred device and its replacements",
    sources: &["DPDK 22.11.11 drivers/net/failsafe: failsafe_ops.c fs_dev_infos_get, \
         failsafe_ether.c failsafe_stats_increment; failsafe.c"],
    ..COMBINED
};

pub(super) const VDEV_NETVSC: Driver = Driver {
    name: "net_vdev_netvsc",
    title: "Creates net_failsafe over a Hyper-V NIC (through net_tap) and its VF",
    attachment: Attachment::Interface,
    // The port is one of net_failsafe, over net_tap.
    max_mtu: Since(&[(FIRST, Limit::Fixed(1504))]),
    sources: &["DPDK 22.11.11 doc/guides/nics/vdev_netvsc.rst; drivers/net/vdev_netvsc"],
    ..COMBINED
};
