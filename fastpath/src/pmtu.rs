//! Path MTU: an ICMP too-big about our own outer packet lowers the MTU towards that next hop.
//!
//! A router quotes too little of an outer packet to find the inner sender in it. So the MTU is kept
//! as soft state (RFC 2003 §5.1), and the sender's next packet that doesn't fit is answered with an
//! ICMP error of our own: the translation costs one packet, and works whatever the router quoted.
//! The error itself goes on to the kernel, whose address it came to; one that came to a source of
//! IP in IP, which the kernel does not have, ends here.

use crate::burst::Work;
use crate::lcore::Lcore;
use packet::icmp;
use packet::ip::Ip;
use packet::window::Window;
use std::sync::atomic::Ordering;
use tables::command::Event;

/// Takes the MTU over that `work`, an ICMP error about our packet `quoted`, tells of.
#[cold]
pub fn learn(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>, quoted: &Ip) {
    let snapshot = lcore.snapshot();
    let ours = snapshot.is_local(&quoted.src) || snapshot.settings.is_ipip_source(&quoted.src);
    let Ok(told) = icmp::told_mtu(window, &work.inner) else { return };
    if !ours || told == 0 {
        return;
    }
    let mtu = icmp::believed_mtu(told, quoted.v6);
    let mut towards = lcore.set().next_hops().filter(|(_, addr, _)| *addr == quoted.dst);
    let Some((next_hop, _, record)) = towards.next() else { return };
    let Some(learned) = lcore.learned_mtu(next_hop) else { return };
    let before = learned.load(Ordering::Relaxed);
    if u32::from(mtu) < before || before == 0 && mtu < record.mtu {
        learned.store(u32::from(mtu), Ordering::Relaxed);
        lcore.control().tell(Event::PathMtu { next_hop, mtu });
    }
}
