//! NAT between families (NAT46, NAT64), for flows whose backend is of the other family. In addition
//! to the addresses and ports that `nat` rewrites, the headers are translated (RFC 7915), which
//! changes their length.

use crate::burst::Work;
use crate::delivery::{Refused, ends_here, take_off, too_big, trim};
use crate::lcore::Lcore;
use crate::nat;
use crate::port::Buffer;
use packet::rewrite::Rewrite;
use packet::translate::{self, Front, Untranslatable};
use packet::window::Window;
use tables::flow::Ends;
use tables::reason::DropReason;

/// Checks that a packet has at most `mtu` bytes after its translation. The error is the MTU to
/// report to its sender, in the sender's family.
pub fn passes(work: &Work, mtu: u16) -> Result<(), u16> {
    match translate::translated_len(&work.inner, work.quoted.as_ref()) <= u32::from(mtu) {
        true => Ok(()),
        false => Err(translate::sender_mtu(&work.inner, mtu)),
    }
}

/// Translates a packet to the backend's family, in which it may have at most `mtu` bytes.
/// Afterwards the frame begins with the IP header.
#[inline(never)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    mtu: u16,
) -> Result<(), Refused> {
    passes(work, mtu).map_err(|mtu| too_big(work, lcore, mtu))?;
    ends_here(work)?;
    take_off(buffer, work)?;
    let (to, quote) = work.path.outward(&work.inner, work.quoted.as_ref());
    translate(buffer, work, lcore, &to, &quote)
}

/// Translates a backend's answer to the client's family. Afterwards the frame begins with the IP
/// header. The source of a router's ICMP error becomes the service's address, since the router has
/// no address in this family.
#[inline(never)]
pub fn from_backend<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    ends: &Ends,
) -> Result<(), Refused> {
    let (to, quote) = ends.homeward(work.quoted.is_some(), None);
    translate(buffer, work, lcore, &to, &quote)
}

/// Translates a packet whose TTL was decremented in the frame but not in `work`.
fn translate<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Refused> {
    work.inner.ttl -= 1;
    let window = &mut buffer.window();
    // Before the translation, since new headers in front may move TCP out of the first segment.
    nat::clamp(window, work, lcore);
    let front = front(window, work, to, quote)?;
    trim(buffer, work);
    if !(buffer.strip(usize::from(front.keeps)) && buffer.grow(usize::from(front.len()))) {
        return Err(Refused::Drop(DropReason::NoHeadroom));
    }
    front.write(&mut buffer.window(), 0)?;
    front.place(0, &mut work.inner);
    Ok(())
}

/// Changes the kept part of a packet, and returns the headers to write in front of it.
fn front(
    window: &mut Window<'_>,
    work: &Work,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<Front, Untranslatable> {
    if let Some(quoted) = &work.quoted {
        return translate::error(window, &work.inner, quoted, to, quote);
    }
    match translate::packet(window, &work.inner, to) {
        Err(Untranslatable::Unsummed) => {
            // If all of it is accessible, the missing checksum is computed.
            translate::complete(window, &work.inner).or(Err(Untranslatable::Unsummed))?;
            translate::packet(window, &work.inner, to)
        }
        done => done,
    }
}
