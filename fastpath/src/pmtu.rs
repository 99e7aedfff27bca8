//! Path MTU discovery: an ICMP too-big error about an outer packet that Weir sent lowers the MTU of
//! its next hop.
//!
//! A router quotes too little of an outer packet to identify the inner sender. Therefore the MTU is
//! kept as soft state (RFC 2003 §5.1), and the next packet that exceeds it is answered with an ICMP
//! error from Weir. This costs one more packet, but works for any length of quote. The router's
//! error is also passed to the kernel if it is addressed to one of the kernel's addresses, which
//! the source addresses of IPIP tunnels are not. Packets before the error in its burst are sent
//! with the previous MTU.

use crate::burst::PacketState;
use crate::lcore::Lcore;
use packet::icmp;
use packet::ip::Ip;
use packet::window::Window;
use std::sync::atomic::Ordering;
use tables::command::Event;
use tables::counters::Counter;

/// Adopts the MTU that `pkt` reports, an ICMP error about a packet that Weir sent. Counts reports
/// that are invalid or exceed the limit.
#[cold]
pub fn learn(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    let Some(quoted) = &pkt.quoted else { return };
    let settings = &lcore.snapshot().settings;
    let own_source = settings.is_local(&quoted.src) || settings.is_ipip_source(&quoted.src);
    let reported = icmp::reported_mtu(window, &pkt.inner).unwrap_or(0);
    if !own_source || reported == 0 {
        return;
    }
    if !lcore.error_limit().may_learn(&settings.error_limits, lcore.now_s())
        || apply_report(window, pkt, lcore, quoted).is_none()
    {
        lcore.page().count(Counter::IcmpErrorsRejected, 1);
    }
}

/// Validates the report, and stores the MTU if it is lower than the one in effect. Returns `None`
/// if the report is invalid, or Weir does not send packets like the quoted one.
fn apply_report(
    window: &Window<'_>,
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    quoted: &Ip,
) -> Option<()> {
    let mtu = icmp::path_mtu(window, &pkt.inner, quoted).ok().filter(|mtu| *mtu != 0)?;
    let next_hop = lcore.set().next_hop_at(&quoted.dst, pkt.arm)?;
    let (record, learned) = (lcore.set().next_hop(next_hop)?, lcore.learned_mtu(next_hop)?);
    let before = learned.load(Ordering::Relaxed);
    if u32::from(mtu) < before || before == 0 && mtu < record.mtu {
        learned.store(u32::from(mtu), Ordering::Relaxed);
        lcore.control().send_event(Event::PathMtu { next_hop, mtu });
    }
    Some(())
}
