//! Replies that Weir makes from the packet itself and sends back to its sender.
//!
//! An ICMP error replaces the packet that it is about: the packet is truncated to the quote, the
//! outer headers are moved forward by the length of the error's headers, and the frame is sent
//! back. No further buffer is needed, and the gateway's options are returned unchanged.

use crate::burst::{Arrival, PacketState};
use crate::delivery::reports_too_big;
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Reply};
use packet::checksum;
use packet::ethernet;
use packet::icmp::{self, IcmpError};
use packet::ip::Ip;
use packet::reset;
use packet::tunnel::{self, return_in_place};
use packet::window::{Short, Window};
use tables::counters::Counter;
use tables::error_limit::{OutgoingError, network_key};
use tables::reason::DropReason;

/// Turns the packet into the reply, or returns the reason for which it is dropped without one.
pub fn reply<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    kind: Reply,
) -> Result<(), DropReason> {
    let (icmp_error, silent) = match kind {
        Reply::Echo => {
            let window = &mut buffer.window();
            return icmp::echo_reply(window, &pkt.inner)
                .and_then(|()| send_back(window, pkt))
                .map_err(|_| DropReason::TooShort);
        }
        Reply::Reset => return reset(buffer, pkt).map_err(|_| DropReason::TooShort),
        Reply::TooBig(mtu) => (IcmpError::TooBig(mtu), DropReason::TooBig),
        Reply::TimeExceeded => (IcmpError::TimeExceeded, DropReason::TtlExceeded),
    };
    // A packet of the kernel needs no reply: the kernel gets the MTU from its own routes.
    let permitted = pkt.headers.arrival != Arrival::Kernel
        && icmp::may_answer(&pkt.inner)
        && (kind == Reply::TimeExceeded || reports_too_big(pkt, lcore));
    if !permitted || !within_limit(pkt, lcore, icmp_error) {
        return Err(silent);
    }
    // Bytes in other segments are not quoted: all headers are in the first one.
    let quote_end = usize::from(pkt.inner.at) + icmp::quote_len(&pkt.inner);
    let quote_end = quote_end.min(buffer.window().len());
    if !buffer.truncate(quote_end) || !buffer.grow(icmp::error_header(&pkt.inner)) {
        return Err(silent);
    }
    let window = &mut buffer.window();
    error(window, pkt, icmp_error).and_then(|()| send_back(window, pkt)).map_err(|_| silent)
}

/// Returns true if an error to this packet's sender is within the limits; counts it if not.
fn within_limit(pkt: &PacketState, lcore: &Lcore<'_>, icmp_error: IcmpError) -> bool {
    let network = lcore.flows().hash(&network_key(&pkt.inner.src));
    let too_big = matches!(icmp_error, IcmpError::TooBig(_));
    let sending = OutgoingError { arm: pkt.arm, too_big, network };
    let limits = &lcore.snapshot().settings.error_limits;
    let may = lcore.error_limit().may_send(&sending, limits, lcore.now_s());
    if !may {
        lcore.page().count(Counter::IcmpErrorsLimited, 1);
    }
    may
}

/// Replaces a segment by the TCP reset that answers it, which is never longer.
#[cold]
fn reset<B: Buffer>(buffer: &mut B, pkt: &mut PacketState) -> Result<(), Short> {
    if !reset::may_answer(&pkt.inner) {
        return Err(Short);
    }
    reset::write_reset(&mut buffer.window(), &pkt.inner)?;
    let end = usize::from(pkt.inner.at) + reset::reset_len(&pkt.inner);
    if !buffer.truncate(end) {
        return Err(Short);
    }
    let window = &mut buffer.window();
    if pkt.headers.arrival != Arrival::Plain {
        set_outer_lengths(window, &pkt.headers.outer, end)?;
    }
    send_back(window, pkt)
}

/// Moves the outer headers forward, writes the error after them, and corrects their lengths.
fn error(window: &mut Window<'_>, pkt: &PacketState, icmp_error: IcmpError) -> Result<(), Short> {
    let inner = usize::from(pkt.inner.at);
    window.copy_within(icmp::error_header(&pkt.inner), 0, inner)?;
    icmp::write_error(window, inner, &pkt.inner, icmp_error)?;
    if pkt.headers.arrival == Arrival::Plain {
        return Ok(());
    }
    let end = window.len();
    set_outer_lengths(window, &pkt.headers.outer, end)
}

/// Sets the length fields of the outer headers so that the packet ends at `end`.
fn set_outer_lengths(window: &mut Window<'_>, outer: &Ip, end: usize) -> Result<(), Short> {
    let Some(udp) = tunnel::set_length_fields(window, outer, end)? else { return Ok(()) };
    let sum: u16 = window.load(udp + 6)?;
    if sum == 0 {
        return Ok(()); // The packet came without a checksum and is returned without one.
    }
    let shorter = Ip { end: end as u16, ..*outer };
    let sum = checksum::udp_checksum(checksum::l4_full(window, &shorter)?);
    window.store(udp + 6, sum)
}

/// Reverses the direction of the frame and sets its exit.
fn send_back(window: &mut Window<'_>, pkt: &mut PacketState) -> Result<(), Short> {
    match pkt.headers.arrival {
        Arrival::Plain => ethernet::swap(window)?,
        _ => return_in_place(window, &pkt.headers.outer)?,
    }
    if pkt.headers.inner_eth != 0 {
        // The Ethernet header inside VXLAN is reversed too. A swap changes no checksum.
        ethernet::swap_at(window, pkt.headers.inner_eth)?;
    }
    pkt.exit = Exit::Port(pkt.arm);
    Ok(())
}
