//! NAT between families (NAT46, NAT64): a flow whose backend is of the other one. What `nat` does
//! to a packet's ends is done here with its headers as well (RFC 7915), which get longer or
//! shorter.

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

/// Whether a packet has at most `mtu` bytes once it is translated; else the MTU to report to its
/// sender, in the sender's own family.
pub fn passes(work: &Work, mtu: u16) -> Result<(), u16> {
    match translate::translated_len(&work.inner, work.quoted.as_ref()) <= u32::from(mtu) {
        true => Ok(()),
        false => Err(translate::sender_mtu(&work.inner, mtu)),
    }
}

/// Makes of a packet on its way to the backend one of the backend's family, of at most `mtu` bytes.
/// It begins the frame then.
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

/// Makes of what a backend answers a packet of the client's family. It begins the frame then. An
/// error of a router's seems to come from the service: in this family the router has no address.
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

/// Translates a packet that has lost its hop.
fn translate<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    to: &Rewrite,
    quote: &Rewrite,
) -> Result<(), Refused> {
    work.inner.ttl -= 1;
    let window = &mut buffer.window();
    // As long as its headers are in sight: with new ones in front they may not be.
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

/// Changes what stays of a packet; what is to stand in front of it.
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
            // Where all of it is at hand, it is given the checksum that its sender spared.
            translate::complete(window, &work.inner).or(Err(Untranslatable::Unsummed))?;
            translate::packet(window, &work.inner, to)
        }
        done => done,
    }
}
