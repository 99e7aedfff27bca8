//! Port configuration within the limits of the driver.
#![expect(unsafe_code, reason = "calls DPDK")]

use super::error::PortError;
use super::guard::PortGuard;
use crate::dpdk_sys as sys;
use crate::eal::Errno;
use crate::mempool::Mempool;
use std::ffi::CStr;

/// The length of the Ethernet header and the frame check sequence in bytes. DPDK's maximum frame
/// lengths include both.
const ETHERNET: usize = 14 + 4;
/// [`ETHERNET`] and a VLAN tag, in bytes.
const FRAME_OVERHEAD: usize = ETHERNET + 4;

/// The result of the last configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) rx_queues: u16,
    pub(super) tx_queues: u16,
    pub(super) chains: bool,
    /// The configured MTU, if the driver cannot report the one in effect.
    pub(super) interface_mtu: Option<u16>,
}

/// The configuration of a port.
#[derive(Clone, Debug)]
pub struct PortOptions<'a> {
    /// Number of receive queues, 1 or more.
    pub rx_queues: u16,
    /// Number of transmit queues, 1 or more.
    pub tx_queues: u16,
    /// Descriptors of a receive queue; the driver may round.
    pub rx_ring: u16,
    /// Descriptors of a transmit queue; the driver may round.
    pub tx_ring: u16,
    /// MTU in bytes (maximum size of an IP packet), or `None` to leave it to the driver.
    pub mtu: Option<u16>,
    /// Whether to distribute flows over the receive queues by RSS, if the NIC supports it.
    pub rss: bool,
    /// Whether the driver may free sent packets without checks, if it supports that. All packets
    /// sent must be from one pool, with one owner each.
    pub fast_free: bool,
    /// The pool for received packets.
    pub pool: &'a Mempool,
}

impl PortOptions<'_> {
    /// Returns the size of a buffer, headroom included, that holds one frame of an MTU.
    pub const fn frame_buffer_bytes(mtu: u16) -> usize {
        mtu as usize + FRAME_OVERHEAD + Mempool::HEADROOM
    }
}

/// Checks the options against the driver's limits, then configures the device and its queues.
pub(super) fn configure(port: &PortGuard, options: &PortOptions<'_>) -> Result<Setup, PortError> {
    let limits = limits(port)?;
    let range = |what, found: u32, min: u32, max: u32| {
        if (min..=max).contains(&found) {
            return Ok(());
        }
        Err(PortError::OutOfRange { name: port.name().to_string(), what, found, min, max })
    };
    range("receive queues", options.rx_queues.into(), 1, limits.max_rx_queues.into())?;
    range("transmit queues", options.tx_queues.into(), 1, limits.max_tx_queues.into())?;
    if let Some(mtu) = options.mtu.filter(|mtu| !(limits.min_mtu..=limits.max_mtu).contains(mtu)) {
        return Err(mtu_error(port, mtu, &limits, limits.max_mtu));
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
    if options.fast_free {
        conf.txmode.offloads |= sys::WEIR_TX_OFFLOAD_FAST_FREE & limits.tx_offload_capa;
    }
    conf.rxmode.mtu = options.mtu.filter(|&mtu| fits(mtu, &limits)).unwrap_or(0).into();

    // The removal interrupt is requested only from drivers that have it: others reject the request.
    // SAFETY: flags of the device, which the driver sets when it creates the port.
    let flags = unsafe { limits.dev_flags.as_ref() }.copied().unwrap_or_default();
    conf.intr_conf.set_rmv(u32::from(flags & sys::WEIR_DEV_INTR_RMV != 0));
    // SAFETY: an owned, stopped port; DPDK copies the configuration.
    let status = unsafe {
        sys::rte_eth_dev_configure(port.id(), options.rx_queues, options.tx_queues, &raw const conf)
    };
    port.check("configure", status)?;
    set_up_queues(port, options, &conf, &limits)?;
    Ok(Setup {
        interface_mtu: set_mtu(port, options.mtu, &limits)?,
        rx_queues: options.rx_queues,
        tx_queues: options.tx_queues,
        chains: limits.tx_offload_capa & sys::WEIR_TX_OFFLOAD_MULTI_SEGS != 0,
    })
}

pub(super) fn limits(port: &PortGuard) -> Result<sys::rte_eth_dev_info, PortError> {
    info(port.id()).map_err(|errno| port.failed("read the driver's limits", errno))
}

/// Returns what the driver of the port with this number reports about it.
pub(super) fn info(port: u16) -> Result<sys::rte_eth_dev_info, Errno> {
    let mut info = sys::rte_eth_dev_info::default();
    // SAFETY: a valid pointer for the result; DPDK rejects an invalid number.
    Errno::check(unsafe { sys::rte_eth_dev_info_get(port, &raw mut info) })?;
    Ok(info)
}

/// Returns DPDK's name of the device of the port with this number.
pub(super) fn device_name_of(port: u16) -> Option<String> {
    // SAFETY: looks the number up. Querying an invalid port logs an error.
    if unsafe { sys::rte_eth_dev_is_valid_port(port) } == 0 {
        return None;
    }
    let device = info(port).ok()?.device;
    if device.is_null() {
        return None;
    }
    // SAFETY: DPDK's record of the device of a valid port.
    let name = unsafe { sys::rte_dev_name(device) };
    // SAFETY: a terminated string that lives as long as the device.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Returns true if frames of the MTU must be scattered over several buffers.
fn scatters(
    port: &PortGuard,
    options: &PortOptions<'_>,
    limits: &sys::rte_eth_dev_info,
) -> Result<bool, PortError> {
    let Some(mtu) = options.mtu else {
        return Ok(false);
    };
    let need = PortOptions::frame_buffer_bytes(mtu);
    let available = options.pool.buffer_bytes();
    if need <= available {
        return Ok(false);
    }
    if limits.rx_offload_capa & sys::WEIR_RX_OFFLOAD_SCATTER != 0 {
        return Ok(true);
    }
    Err(PortError::BufferTooSmall { name: port.name().to_string(), mtu, need, available })
}

fn set_up_queues(
    port: &PortGuard,
    options: &PortOptions<'_>,
    conf: &sys::rte_eth_conf,
    limits: &sys::rte_eth_dev_info,
) -> Result<(), PortError> {
    let (mut rx_ring, mut tx_ring) = (options.rx_ring, options.tx_ring);
    // SAFETY: two valid pointers that are read and written.
    let status = unsafe {
        sys::rte_eth_dev_adjust_nb_rx_tx_desc(port.id(), &raw mut rx_ring, &raw mut tx_ring)
    };
    port.check("adjust the ring sizes", status)?;
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

/// Sets the MTU. Returns `mtu` if the driver cannot report the MTU in effect.
///
/// A driver without the call (net_ring) does not limit the MTU. A driver of a
/// kernel interface that reports a small maximum frame length (af_packet: 1,518 bytes) transfers
/// whatever the interface does, so the interface's own MTU is checked instead.
fn set_mtu(
    port: &PortGuard,
    mtu: Option<u16>,
    limits: &sys::rte_eth_dev_info,
) -> Result<Option<u16>, PortError> {
    const NOT_SUPPORTED: i32 = 95;
    const INVALID: i32 = 22;
    let Some(mtu) = mtu else {
        return Ok(None);
    };
    if !fits(mtu, limits) && limits.if_index != 0 {
        let mut interface = [0; 16];
        // SAFETY: space for a name of the kernel's maximum length.
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
    // SAFETY: an owned, configured and stopped port.
    let set = |mtu| unsafe { sys::rte_eth_dev_set_mtu(port.id(), mtu) };
    match set(mtu) {
        status if status == -NOT_SUPPORTED => Ok(None),
        status if status == -INVALID => {
            match smaller_mtus(mtu, limits).find(|max| set(*max) == 0) {
                Some(max) => Err(mtu_error(port, mtu, limits, max)),
                None => port.check("set the MTU", status).map(|()| None),
            }
        }
        status => port.check("set the MTU", status).map(|()| None),
    }
}

/// Returns the MTUs below `mtu` that may be the driver's maximum, the largest first: its longest
/// frame without an Ethernet header and check sequence, and, as some drivers compute it, without
/// one or two VLAN tags.
fn smaller_mtus(mtu: u16, limits: &sys::rte_eth_dev_info) -> impl Iterator<Item = u16> {
    const VLAN_TAG: usize = 4;
    let (frame, max) = (limits.max_rx_pktlen as usize, limits.max_mtu);
    let without = move |tags: usize| {
        let longest = frame.checked_sub(ETHERNET + tags * VLAN_TAG)?;
        Some(u16::try_from(longest).unwrap_or(max).min(max))
    };
    (0..=2).filter_map(without).filter(move |smaller| *smaller < mtu)
}

fn mtu_error(port: &PortGuard, mtu: u16, limits: &sys::rte_eth_dev_info, max: u16) -> PortError {
    PortError::Mtu { name: port.name().to_string(), mtu, min: limits.min_mtu, max }
}

/// Returns true if the driver reports that it accepts frames of this MTU.
fn fits(mtu: u16, limits: &sys::rte_eth_dev_info) -> bool {
    usize::from(mtu) + ETHERNET <= limits.max_rx_pktlen as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_mtus_to_try_are_the_longest_frame_without_headers_and_tags() {
        let smaller = |mtu, max_rx_pktlen, max_mtu| {
            let limits = sys::rte_eth_dev_info { max_rx_pktlen, max_mtu, ..Default::default() };
            smaller_mtus(mtu, &limits).collect::<Vec<u16>>()
        };
        // 82574L, whose driver reports no maximum MTU and subtracts a VLAN tag.
        assert_eq!(smaller(9500, 9234, u16::MAX), [9216, 9212, 9208]);
        assert_eq!(smaller(9216, 9234, u16::MAX), [9212, 9208]);
        assert_eq!(smaller(9500, 9728, 9702), Vec::<u16>::new());
        assert_eq!(smaller(1500, u32::MAX, u16::MAX), Vec::<u16>::new());
        assert_eq!(smaller(1500, 10, u16::MAX), Vec::<u16>::new());
    }
}
