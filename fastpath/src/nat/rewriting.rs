//! Address and port rewriting for NAT, including the packet that an ICMP error quotes.

use crate::burst::PacketState;
use crate::delivery::Rejection;
use crate::lcore::Lcore;
use packet::ip::L4;
use packet::rewrite::{self, Rewrite};
use packet::window::Window;
use tables::flow::Ends;
use tables::record::NONE;

/// Rewrites a packet from the client's side to the addresses that the backend expects.
pub fn rewrite_forward(window: &mut Window<'_>, pkt: &PacketState) -> Result<(), Rejection> {
    let (to, quote) = pkt.path.forward_rewrites(&pkt.inner, pkt.quoted.as_ref());
    rewrite(window, pkt, &to, &quote)
}

/// Rewrites a backend's answer to the addresses that the client expects, before the frame is moved.
pub fn from_backend(
    window: &mut Window<'_>,
    pkt: &PacketState,
    ends: &Ends,
) -> Result<(), Rejection> {
    // Packets of the backend itself get the service's address; a router's ICMP error keeps its
    // source.
    let from_backend = pkt.inner.src == pkt.path.backend_addr;
    let router = if from_backend { None } else { Some(pkt.inner.src) };
    let (to, quote) = ends.reply_rewrites(pkt.quoted.is_some(), router);
    rewrite(window, pkt, &to, &quote)
}

#[inline(always)]
fn rewrite(
    window: &mut Window<'_>,
    pkt: &PacketState,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Rejection> {
    match pkt.quoted {
        None => rewrite::nat(window, &pkt.inner, to)?,
        Some(quoted) => rewrite::nat_quoted(window, &pkt.inner, &quoted, to, quote)?,
    }
    Ok(())
}

/// Limits the MSS option of a SYN if the service sets a maximum.
#[inline(always)]
pub fn clamp_mss_option(window: &mut Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    if let L4::Tcp { flags } = pkt.inner.kind
        && flags & rewrite::SYN != 0
        && pkt.service != NONE
    {
        clamp_syn(window, pkt, lcore);
    }
}

#[cold]
fn clamp_syn(window: &mut Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    let max = lcore.set().service(pkt.service).map_or(0, |service| service.mss);
    if max != 0 {
        rewrite::clamp_mss(window, &pkt.inner, max);
    }
}
