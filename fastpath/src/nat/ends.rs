//! What NAT makes of the ends of a packet, and of the one that it quotes.

use crate::burst::Work;
use crate::delivery::Refused;
use crate::lcore::Lcore;
use packet::addr::Addr;
use packet::ip::{Ip, L4};
use packet::rewrite::{self, Rewrite};
use packet::window::Window;
use tables::flow::{Ends, Forward};
use tables::record::NONE;

/// Rewrites what the client's side sends to what the flow's backend expects.
pub fn forwards(window: &mut Window<'_>, work: &Work) -> Result<(), Refused> {
    let (to, quote) = outward(work);
    rewrite(window, work, &to, &quote)
}

/// Rewrites what a backend answers to what the client expects. The frame is still where it was.
pub fn from_backend(window: &mut Window<'_>, work: &Work, ends: &Ends) -> Result<(), Refused> {
    // From the backend itself it must seem to come from the service; a router stays itself.
    let from_backend = work.inner.src == work.path.backend_addr;
    let router = if from_backend { None } else { Some(work.inner.src) };
    let (to, quote) = homeward(work, ends, router);
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

/// What a packet from the client's side becomes, and what it quotes.
#[inline(always)]
pub fn outward(work: &Work) -> (Rewrite, Rewrite) {
    let path = &work.path;
    let Some(quoted) = &work.quoted else { return (forward(path, &work.inner), Rewrite::none()) };
    // It tells of trouble with an answer: for the backend it is an answer to us.
    let to = Rewrite { src: *path.nat_addr(), dst: path.backend_addr, ..Rewrite::none() };
    (to, backward(path, quoted))
}

/// What a packet from the backend's side becomes, and what it quotes. An error of a `router`'s
/// seems to come from there.
#[inline(always)]
pub fn homeward(work: &Work, ends: &Ends, router: Option<Addr>) -> (Rewrite, Rewrite) {
    let (client, service) = (ends.initiator, ends.target);
    let answer = Rewrite { src: service.0, sport: service.1, dst: client.0, dport: client.1 };
    if work.quoted.is_none() {
        return (answer, Rewrite::none());
    }
    let to = Rewrite { src: router.unwrap_or(service.0), dst: client.0, ..Rewrite::none() };
    let request = Rewrite { src: client.0, sport: client.1, dst: service.0, dport: service.1 };
    (to, request)
}

/// What a packet from the client becomes.
fn forward(path: &Forward, ip: &Ip) -> Rewrite {
    let dport = if is_echo(ip) { path.nat_port } else { path.backend_port };
    Rewrite { src: *path.nat_addr(), sport: path.nat_port, dst: path.backend_addr, dport }
}

/// What the quote of an answer becomes: the packet as the backend sent it.
fn backward(path: &Forward, quoted: &Ip) -> Rewrite {
    let sport = if is_echo(quoted) { path.nat_port } else { path.backend_port };
    Rewrite { src: path.backend_addr, sport, dst: *path.nat_addr(), dport: path.nat_port }
}

fn is_echo(ip: &Ip) -> bool {
    matches!(ip.kind, L4::IcmpEcho { .. })
}

/// Bounds the MSS that a SYN offers, where the service asks for it.
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
