//! NAT between families (NAT46, NAT64), for flows whose backend is of the other family. In addition
//! to the addresses and ports that `nat` rewrites, the headers are translated (RFC 7915), which
//! changes their length.

use crate::burst::PacketState;
use crate::delivery::{Rejection, check_ttl, too_big, trim, update_ecn_and_ttl};
use crate::lcore::Lcore;
use crate::nat;
use crate::port::Buffer;
use packet::rewrite::Rewrite;
use packet::translate::{self, NewHeaders, Untranslatable};
use packet::window::Window;
use tables::flow::Ends;
use tables::reason::DropReason;

/// Checks that a packet has at most `mtu` bytes after its translation. The error is the MTU to
/// report to its sender, in the sender's family.
pub fn check_mtu(pkt: &PacketState, mtu: u16) -> Result<(), u16> {
    match translate::translated_len(&pkt.inner, pkt.quoted.as_ref()) <= u32::from(mtu) {
        true => Ok(()),
        false => Err(translate::sender_mtu(&pkt.inner, mtu)),
    }
}

/// Translates a packet to the backend's family, in which it may have at most `mtu` bytes.
/// Afterwards the frame begins with the IP header.
#[inline(never)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    mtu: u16,
) -> Result<(), Rejection> {
    check_mtu(pkt, mtu).map_err(|mtu| too_big(pkt, lcore, mtu))?;
    check_ttl(pkt)?;
    update_ecn_and_ttl(buffer, pkt)?;
    let (to, quote) = pkt.path.forward_rewrites(&pkt.inner, pkt.quoted.as_ref());
    translate(buffer, pkt, lcore, &to, &quote)
}

/// Translates a backend's answer to the client's family. Afterwards the frame begins with the IP
/// header. The source of a router's ICMP error becomes the service's address, since the router has
/// no address in this family.
#[inline(never)]
pub fn from_backend<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    ends: &Ends,
) -> Result<(), Rejection> {
    let (to, quote) = ends.reply_rewrites(pkt.quoted.is_some(), None);
    translate(buffer, pkt, lcore, &to, &quote)
}

/// Translates a packet whose TTL was decremented in the frame but not in `pkt`.
fn translate<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Rejection> {
    pkt.inner.ttl -= 1;
    let window = &mut buffer.window();
    // Before the translation, since new headers in front may move TCP out of the first segment.
    nat::clamp_mss_option(window, pkt, lcore);
    let headers = new_headers(window, pkt, to, quote)?;
    trim(buffer, pkt);
    if !(buffer.strip(usize::from(headers.kept_from)) && buffer.grow(usize::from(headers.len()))) {
        return Err(Rejection::Drop(DropReason::NoHeadroom));
    }
    headers.write(&mut buffer.window(), 0)?;
    headers.update_parsed(0, &mut pkt.inner);
    Ok(())
}

/// Changes the kept part of a packet, and returns the headers to write in front of it.
fn new_headers(
    window: &mut Window<'_>,
    pkt: &PacketState,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<NewHeaders, Untranslatable> {
    if let Some(quoted) = &pkt.quoted {
        return translate::error(window, &pkt.inner, quoted, to, quote);
    }
    match translate::packet(window, &pkt.inner, to) {
        Err(Untranslatable::ZeroUdpChecksum) => {
            // The missing checksum is computed if the whole datagram is in the window.
            translate::add_udp_checksum(window, &pkt.inner)
                .or(Err(Untranslatable::ZeroUdpChecksum))?;
            translate::packet(window, &pkt.inner, to)
        }
        done => done,
    }
}
