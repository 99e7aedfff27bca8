//! Stage 1, parse: parses Ethernet and the outermost IP header, and rejects malformed packets.

use crate::burst::{Arrival, OuterHeaders, PacketState};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Verdict;
use packet::ethernet::{self, Ethernet};
use packet::ip::Ip;
use packet::parsed::Malformed;
use packet::tunnel::LONGEST_HEADERS;
use packet::window::Window;
use tables::reason::DropReason;

/// Parses the outer headers of a packet. Frames that need no IP header get their verdict here.
#[inline(always)]
pub fn parse<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    pkt.headers = OuterHeaders { arrival: pkt.headers.arrival, ..OuterHeaders::default() };
    let own = &lcore.macs()[usize::from(pkt.arm & 1)];
    if let Err(reason) = parse_outer(&buffer.window(), pkt, own) {
        reject(buffer, pkt, reason);
    }
}

#[cold]
fn reject<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, reason: DropReason) {
    pkt.inner = Ip::default();
    pkt.drop(match pkt.headers.arrival {
        Arrival::Kernel => DropReason::ExceptionMalformed,
        _ => reason_if_split(buffer, reason),
    });
}

/// Returns `reason`, or [`DropReason::HeadersSplit`] if the headers only appear truncated because
/// they continue in the frame's next segment.
pub fn reason_if_split<B: Buffer>(buffer: &mut B, reason: DropReason) -> DropReason {
    use DropReason::{BadIpHeader, InnerMalformed, TooShort};
    let cut = matches!(reason, TooShort | BadIpHeader | InnerMalformed);
    if cut && buffer.is_chained() && buffer.window().len() < LONGEST_HEADERS {
        return DropReason::HeadersSplit;
    }
    reason
}

#[inline(always)]
fn parse_outer(
    window: &Window<'_>,
    pkt: &mut PacketState,
    own: &[u8; 6],
) -> Result<(), DropReason> {
    let eth = Ethernet::parse(window).map_err(|_| DropReason::TooShort)?;
    pkt.headers.eth = eth;
    if pkt.headers.arrival == Arrival::Plain {
        let to = window.load::<[u8; 6]>(0).map_err(|_| DropReason::TooShort)?;
        if to != *own {
            return decide_foreign_mac(pkt, to[0]);
        }
    }
    if eth.ethertype != ethernet::IPV4 && eth.ethertype != ethernet::IPV6 {
        let from_kernel = pkt.headers.arrival == Arrival::Kernel;
        let verdict = if from_kernel { Verdict::Forward } else { Verdict::Punt };
        return decide_without_ip(pkt, verdict);
    }
    pkt.headers.outer.read(window, eth.l3, eth.ethertype).map_err(bad_outer)?;
    if !pkt.headers.outer.v6 && !packet::checksum::ipv4_header_ok(window, &pkt.headers.outer) {
        return Err(DropReason::BadIpChecksum);
    }
    if pkt.headers.arrival == Arrival::Plain && pkt.headers.outer.src.is_martian() {
        return Err(DropReason::MartianSource);
    }
    Ok(())
}

/// Decides on a frame whose destination MAC address is not the port's. Broadcast and multicast
/// frames are punted to the kernel (ARP, ND, DHCP, routing protocols); others are dropped.
#[cold]
fn decide_foreign_mac(pkt: &mut PacketState, first_of_mac: u8) -> Result<(), DropReason> {
    if first_of_mac & 1 == 0 {
        return Err(DropReason::ForeignDstMac);
    }
    decide_without_ip(pkt, Verdict::Punt)
}

/// Decides on a frame whose IP header is not needed.
#[cold]
fn decide_without_ip(pkt: &mut PacketState, verdict: Verdict) -> Result<(), DropReason> {
    pkt.inner = Ip::default();
    pkt.verdict = verdict;
    Ok(())
}

fn bad_outer(cause: Malformed) -> DropReason {
    match cause {
        Malformed::Short => DropReason::TooShort,
        _ => DropReason::BadIpHeader,
    }
}
