//! Reply: answers that Weir makes of the packet itself, sent back the way it came.
//!
//! An ICMP error takes the place of the packet it is about: the packet is cut down to what the
//! error quotes, the outer headers move forward by the error's own, and the whole goes back. So
//! even this needs no buffer, and what was in the gateway's header is answered with.

use crate::burst::{Arrival, Work};
use crate::delivery::tells_too_big;
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Reply};
use packet::checksum;
use packet::ethernet;
use packet::icmp::{self, Trouble};
use packet::ip::Ip;
use packet::reset;
use packet::tunnel::{self, return_in_place};
use packet::window::{Short, Window};
use tables::counters::Counter;
use tables::error_limit::{Sending, network_key};
use tables::reason::DropReason;

/// Makes the answer, or says why the packet is dropped without one.
pub fn reply<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    what: Reply,
) -> Result<(), DropReason> {
    let (trouble, silent) = match what {
        Reply::Echo => {
            let window = &mut buffer.window();
            return icmp::echo_reply(window, &work.inner)
                .and_then(|()| send_back(window, work))
                .map_err(|_| DropReason::TooShort);
        }
        Reply::Reset => return reset(buffer, work).map_err(|_| DropReason::TooShort),
        Reply::TooBig(mtu) => (Trouble::TooBig(mtu), DropReason::TooBig),
        Reply::TimeExceeded => (Trouble::TimeExceeded, DropReason::TtlExceeded),
    };
    // A packet from the kernel is the kernel's own: it learns of too-big from its own routes.
    let wanted = work.front.arrival != Arrival::Kernel
        && icmp::may_answer(&work.inner)
        && (what == Reply::TimeExceeded || tells_too_big(work, lcore));
    if !wanted || !within_limit(work, lcore, trouble) {
        return Err(silent);
    }
    // What lies in other segments is not quoted: all headers are in the first one.
    let quote_end = usize::from(work.inner.at) + icmp::quote_len(&work.inner);
    let quote_end = quote_end.min(buffer.window().len());
    if !buffer.truncate(quote_end) || !buffer.grow(icmp::error_header(&work.inner)) {
        return Err(silent);
    }
    let window = &mut buffer.window();
    error(window, work, trouble).and_then(|()| send_back(window, work)).map_err(|_| silent)
}

/// Whether an error to this packet's sender is within the limits; counts one that is not.
fn within_limit(work: &Work, lcore: &Lcore<'_>, trouble: Trouble) -> bool {
    let network = lcore.flows().hash(&network_key(&work.inner.src));
    let too_big = matches!(trouble, Trouble::TooBig(_));
    let sending = Sending { arm: work.arm, too_big, network };
    let limits = &lcore.snapshot().settings.error_limits;
    let may = lcore.error_limit().may_send(&sending, limits, lcore.now_s());
    if !may {
        lcore.page().count(Counter::IcmpErrorsLimited, 1);
    }
    may
}

/// A TCP reset takes the place of the segment that it answers, which is never shorter.
#[cold]
fn reset<B: Buffer>(buffer: &mut B, work: &mut Work) -> Result<(), Short> {
    if !reset::may_answer(&work.inner) {
        return Err(Short);
    }
    reset::write_reset(&mut buffer.window(), &work.inner)?;
    let end = usize::from(work.inner.at) + reset::reset_len(&work.inner);
    if !buffer.truncate(end) {
        return Err(Short);
    }
    let window = &mut buffer.window();
    if work.front.arrival != Arrival::Plain {
        relength(window, &work.front.outer, end)?;
    }
    send_back(window, work)
}

/// Moves the outer headers to the front, writes the error behind them, and mends their lengths.
fn error(window: &mut Window<'_>, work: &Work, trouble: Trouble) -> Result<(), Short> {
    let inner = usize::from(work.inner.at);
    window.copy_within(icmp::error_header(&work.inner), 0, inner)?;
    icmp::write_error(window, inner, &work.inner, trouble)?;
    if work.front.arrival == Arrival::Plain {
        return Ok(());
    }
    let end = window.len();
    relength(window, &work.front.outer, end)
}

/// Makes the outer headers say that the packet ends at `end`.
fn relength(window: &mut Window<'_>, outer: &Ip, end: usize) -> Result<(), Short> {
    let Some(udp) = tunnel::relength(window, outer, end)? else { return Ok(()) };
    let sum: u16 = window.load(udp + 6)?;
    if sum == 0 {
        return Ok(()); // None came in, none goes out.
    }
    let shorter = Ip { end: end as u16, ..*outer };
    let sum = checksum::udp(checksum::l4_full(window, &shorter)?);
    window.store(udp + 6, sum)
}

/// Turns the frame around, whatever it is in.
fn send_back(window: &mut Window<'_>, work: &mut Work) -> Result<(), Short> {
    match work.front.arrival {
        Arrival::Plain => ethernet::swap(window)?,
        _ => return_in_place(window, &work.front.outer)?,
    }
    if work.front.inner_eth != 0 {
        // From us to the sender: the frame inside VXLAN turns around too. A swap changes no sum.
        ethernet::swap_at(window, work.front.inner_eth)?;
    }
    work.exit = Exit::Port(work.arm);
    Ok(())
}
