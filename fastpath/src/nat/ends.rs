//! Address and port rewriting for NAT, including the packet that an ICMP error quotes.

use crate::burst::Work;
use crate::delivery::Refused;
use crate::lcore::Lcore;
use packet::ip::L4;
use packet::rewrite::{self, Rewrite};
use packet::window::Window;
use tables::flow::Ends;
use tables::record::NONE;

/// Rewrites a packet from the client's side to the addresses that the backend expects.
pub fn forwards(window: &mut Window<'_>, work: &Work) -> Result<(), Refused> {
    let (to, quote) = work.path.outward(&work.inner, work.quoted.as_ref());
    rewrite(window, work, &to, &quote)
}

/// Rewrites a backend's answer to the addresses that the client expects, before the frame is moved.
pub fn from_backend(window: &mut Window<'_>, work: &Work, ends: &Ends) -> Result<(), Refused> {
    // Packets of the backend itself get the service's address; a router's ICMP error keeps its
    // source.
    let from_backend = work.inner.src == work.path.backend_addr;
    let router = if from_backend { None } else { Some(work.inner.src) };
    let (to, quote) = ends.homeward(work.quoted.is_some(), router);
    rewrite(window, work, &to, &quote)
}

#[inline(always)]
fn rewrite(
    window: &mut Window<'_>,
    work: &Work,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Refused> {
    match work.quoted {
        None => rewrite::nat(window, &work.inner, to)?,
        Some(quoted) => rewrite::nat_quoted(window, &work.inner, &quoted, to, quote)?,
    }
    Ok(())
}

/// Limits the MSS option of a SYN if the service sets a maximum.
#[inline(always)]
pub fn clamp(window: &mut Window<'_>, work: &Work, lcore: &Lcore<'_>) {
    if let L4::Tcp { flags } = work.inner.kind
        && flags & rewrite::SYN != 0
        && work.service != NONE
    {
        clamp_syn(window, work, lcore);
    }
}

#[cold]
fn clamp_syn(window: &mut Window<'_>, work: &Work, lcore: &Lcore<'_>) {
    let most = lcore.set().service(work.service).map_or(0, |service| service.mss);
    if most != 0 {
        rewrite::clamp_mss(window, &work.inner, most);
    }
}
