//! Setting a port up: what was asked for against what its driver can do.
#![expect(unsafe_code, reason = "calls DPDK")]

use super::error::PortError;
use super::open::Open;
use crate::dpdk_sys as sys;
use crate::mempool::Mempool;
use std::ffi::CStr;

/// Ethernet header and frame check sequence, which DPDK counts.
const ETHERNET: usize = 14 + 4;
/// The same with a VLAN tag.
const FRAME_OVERHEAD: usize = ETHERNET + 4;

/// How the port was set up last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) rx_queues: u16,
    pub(super) tx_queues: u16,
    pub(super) chains: bool,
    /// The MTU, where the driver itself does not know the one in force.
    pub(super) interface_mtu: Option<u16>,
}

/// How to set up a port.
#[derive(Clone, Debug)]
pub struct PortOptions<'a> {
    /// Receive queues, 1 or more.
    pub rx_queues: u16,
    /// Transmit queues, 1 or more.
    pub tx_queues: u16,
    /// Descriptors of a receive queue; the driver may round.
    pub rx_ring: u16,
    /// Descriptors of a transmit queue; the driver may round.
    pub tx_ring: u16,
    /// Bytes of an IP packet that the port takes in one frame (Ethernet header not counted), or
    /// none to leave it to the driver.
    pub mtu: Option<u16>,
    /// Spread flows over the receive queues by their hash, where the NIC can.
    pub rss: bool,
    /// Where received packets are put.
    pub pool: &'a Mempool,
}

/// Checks the options against the driver's limits, then configures the device and its queues.
pub(super) fn configure(port: &Open, options: &PortOptions<'_>) -> Result<Setup, PortError> {
    let limits = limits(port)?;
    let range = |what, found: u32, least: u32, most: u32| {
        if (least..=most).contains(&found) {
            return Ok(());
        }
        Err(PortError::OutOfRange { name: port.name().to_string(), what, found, least, most })
    };
    range("receive queues", options.rx_queues.into(), 1, limits.max_rx_queues.into())?;
    range("transmit queues", options.tx_queues.into(), 1, limits.max_tx_queues.into())?;
    if let Some(mtu) = options.mtu {
        range("MTU", mtu.into(), limits.min_mtu.into(), limits.max_mtu.into())?;
    }

    let mut conf = sys::rte_eth_conf::default();
    if options.rss && options.rx_queues > 1 && limits.flow_type_rss_offloads != 0 {
        conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode::RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = sys::WEIR_RSS_FLOWS & limits.flow_type_rss_offloads;
        conf.rxmode.offloads |= sys::WEIR_RX_OFFLOAD_RSS_HASH & limits.rx_offload_capa;
    }
    if scatters(port, options, &limits)? {
        conf.rxmode.offloads |= sys::WEIR_RX_OFFLOAD_SCATTER;
    }
    conf.txmode.offloads |= sys::WEIR_TX_OFFLOAD_MULTI_SEGS & limits.tx_offload_capa;
    conf.rxmode.mtu = options.mtu.filter(|&mtu| fits(mtu, &limits)).unwrap_or(0).into();

    // SAFETY: a stopped port that we own; DPDK copies the configuration.
    let status = unsafe {
        sys::rte_eth_dev_configure(port.id(), options.rx_queues, options.tx_queues, &raw const conf)
    };
    port.check("configure", status)?;
    queues(port, options, &conf, &limits)?;
    Ok(Setup {
        interface_mtu: set_mtu(port, options.mtu, &limits)?,
        rx_queues: options.rx_queues,
        tx_queues: options.tx_queues,
        chains: limits.tx_offload_capa & sys::WEIR_TX_OFFLOAD_MULTI_SEGS != 0,
    })
}

fn limits(port: &Open) -> Result<sys::rte_eth_dev_info, PortError> {
    let mut limits = sys::rte_eth_dev_info::default();
    // SAFETY: a place for the answer.
    let status = unsafe { sys::rte_eth_dev_info_get(port.id(), &raw mut limits) };
    port.check("read the driver's limits", status)?;
    Ok(limits)
}

/// Whether frames of the MTU have to be scattered over several buffers.
fn scatters(
    port: &Open,
    options: &PortOptions<'_>,
    limits: &sys::rte_eth_dev_info,
) -> Result<bool, PortError> {
    let Some(mtu) = options.mtu else {
        return Ok(false);
    };
    let need = usize::from(mtu) + FRAME_OVERHEAD + Mempool::HEADROOM;
    let room = options.pool.room();
    if need <= room {
        return Ok(false);
    }
    if limits.rx_offload_capa & sys::WEIR_RX_OFFLOAD_SCATTER != 0 {
        return Ok(true);
    }
    Err(PortError::BufferTooSmall { name: port.name().to_string(), mtu, need, room })
}

fn queues(
    port: &Open,
    options: &PortOptions<'_>,
    conf: &sys::rte_eth_conf,
    limits: &sys::rte_eth_dev_info,
) -> Result<(), PortError> {
    let (mut rx_ring, mut tx_ring) = (options.rx_ring, options.tx_ring);
    // SAFETY: two places that are read and written.
    let status = unsafe {
        sys::rte_eth_dev_adjust_nb_rx_tx_desc(port.id(), &raw mut rx_ring, &raw mut tx_ring)
    };
    port.check("ring sizes", status)?;
    let socket = port.socket().unwrap_or(-1) as u32;
    let mut rx = limits.default_rxconf;
    rx.offloads = conf.rxmode.offloads;
    for queue in 0..options.rx_queues {
        // SAFETY: a configured port, a queue of it, a pool that lives as long as DPDK runs.
        let status = unsafe {
            let pool = options.pool.as_ptr();
            sys::rte_eth_rx_queue_setup(port.id(), queue, rx_ring, socket, &raw const rx, pool)
        };
        port.check("set up a receive queue", status)?;
    }
    let mut tx = limits.default_txconf;
    tx.offloads = conf.txmode.offloads;
    for queue in 0..options.tx_queues {
        // SAFETY: as above.
        let status = unsafe {
            sys::rte_eth_tx_queue_setup(port.id(), queue, tx_ring, socket, &raw const tx)
        };
        port.check("set up a transmit queue", status)?;
    }
    Ok(())
}

/// Sets the MTU and gives the one in force where the driver itself cannot tell it.
///
/// A driver without a call for it has nothing that an MTU would limit. One that drives a kernel's
/// interface and claims to know only short frames (af_packet: 1,518 bytes) moves whatever the
/// interface does, so there the interface's own MTU is what counts.
fn set_mtu(
    port: &Open,
    mtu: Option<u16>,
    limits: &sys::rte_eth_dev_info,
) -> Result<Option<u16>, PortError> {
    const NOT_SUPPORTED: i32 = 95;
    let Some(mtu) = mtu else {
        return Ok(None);
    };
    if !fits(mtu, limits) && limits.if_index != 0 {
        let mut interface = [0; 16];
        // SAFETY: room for a name of the length that the kernel allows.
        let found = unsafe { sys::weir_interface_mtu(limits.if_index, interface.as_mut_ptr()) };
        port.check("read the MTU of its kernel interface", found)?;
        if found >= mtu.into() {
            return Ok(Some(mtu));
        }
        // SAFETY: terminated by the kernel, whose names are shorter than the array.
        let interface = unsafe { CStr::from_ptr(interface.as_ptr()) };
        return Err(PortError::InterfaceMtu {
            name: port.name().to_string(),
            interface: interface.to_string_lossy().into_owned(),
            found,
            mtu,
        });
    }
    // SAFETY: a port that we own.
    match unsafe { sys::rte_eth_dev_set_mtu(port.id(), mtu) } {
        status if status == -NOT_SUPPORTED => Ok(None),
        status => port.check("set the MTU", status).map(|()| None),
    }
}

/// Whether the driver says that it takes frames of this MTU.
fn fits(mtu: u16, limits: &sys::rte_eth_dev_info) -> bool {
    usize::from(mtu) + ETHERNET <= limits.max_rx_pktlen as usize
}
