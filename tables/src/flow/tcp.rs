//! State of a flow, as far as timeouts and eviction need it: for TCP from the flags of segments and
//! their direction, for other protocols from the direction of packets alone. A flow is confirmed
//! once its initiator sends after a reply. If replies bypass this appliance (one-way flow), the
//! initiator's second packet confirms the flow.

use super::entry::ESTABLISHED;
use super::path::PATH_ONE_WAY;
use super::step::step;
use super::{Flows, Hit};
use crate::atomic::Ordering::*;
use crate::record::NONE;
use crate::rows::Numbered;

// TCP flags (RFC 9293 §3.1).
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// State bit: the responder replied; of a one-way flow, the initiator sent a packet.
const RESPONDED: u32 = 1;
/// State bit: the flow is confirmed: the initiator sent a packet after `RESPONDED` was set.
const OPEN: u32 = 2;
/// State bit: the initiator sent FIN.
const FIN_INITIATOR: u32 = 4;
/// State bit: the responder sent FIN.
const FIN_RESPONDER: u32 = 8;
/// State bit: a reset with the initiator as source.
const RESET_INITIATOR: u32 = 16;
/// State bit: a reset with the responder as source.
const RESET_RESPONDER: u32 = 32;
const RESET: u32 = RESET_INITIATOR | RESET_RESPONDER;
const BITS: u32 = 0xff;
/// Number of attempts to update a contended word. After these, the BPF program gives up and omits
/// the change.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 16 } else { u32::MAX };

/// State of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// Not confirmed yet.
    Embryonic,
    /// Confirmed: by packets of both sides, or by two packets of the initiator if replies bypass
    /// this appliance.
    Established,
    /// One side sent FIN.
    Closing,
    /// Both sides sent FIN (the initiator alone if replies bypass this appliance), or the
    /// connection was reset before it was established.
    Closed,
    /// An RST arrived, which may be spoofed: handled as established, but evicted if space is short:
    /// from the flow table only if no unconfirmed flow is found, from a NAT port like an
    /// unconfirmed one. The next segment of the RST's apparent sender reverts it.
    Reset,
    /// A SYN of the initiator reopened a closing or closed connection, which is embryonic again.
    /// Only [`Flows::note`] returns this state, for the SYN.
    Reopened,
}

impl TcpState {
    /// Returns the state for a path's state word.
    pub(super) fn of(word: u32, one_way: bool) -> TcpState {
        let fins = FIN_INITIATOR | FIN_RESPONDER;
        let needed = if one_way { FIN_INITIATOR } else { fins };
        let refused = is_reset(word) && is_unconfirmed(word);
        if word & needed == needed || refused {
            TcpState::Closed
        } else if word & fins != 0 {
            TcpState::Closing
        } else if is_reset(word) {
            TcpState::Reset
        } else if word & OPEN != 0 {
            TcpState::Established
        } else {
            TcpState::Embryonic
        }
    }
}

/// Returns the state word after a segment with these flags, or after a packet of another protocol
/// (flags 0).
fn next(word: u32, flags: u8, from_initiator: bool, one_way: bool) -> u32 {
    let mut word = word;
    let reset = if from_initiator { RESET_INITIATOR } else { RESET_RESPONDER };
    if flags & RST != 0 {
        // A reset confirms nothing: its sender need not have seen a reply.
        return word | reset;
    }
    if from_initiator && flags & SYN != 0 {
        let refused = is_reset(word) && is_unconfirmed(word);
        if word & (FIN_INITIATOR | FIN_RESPONDER) != 0 || refused {
            return word & !BITS;
        }
        // An earlier reset may be spoofed, and so may this SYN: an established connection stays
        // established.
        let first = if one_way { RESPONDED } else { 0 };
        return word & !reset | first;
    }
    word &= !reset;
    if !from_initiator {
        word |= RESPONDED;
    } else if word & RESPONDED != 0 {
        word |= OPEN;
    } else if one_way {
        // The initiator's next packet counts as one that follows a reply.
        word |= RESPONDED;
    }
    if flags & FIN != 0 {
        word |= if from_initiator { FIN_INITIATOR } else { FIN_RESPONDER };
    }
    word
}

/// Returns whether a segment with these flags leaves the state word unchanged and does not reopen
/// the connection.
#[inline(always)]
pub(super) fn keeps_state(word: u32, flags: u8, from_initiator: bool, one_way: bool) -> bool {
    flags & (SYN | FIN | RST) == 0 && next(word, flags, from_initiator, one_way) == word
}

/// Returns whether a flow with this word is unconfirmed, so that it may be evicted.
#[inline(always)]
pub(super) const fn is_unconfirmed(word: u32) -> bool {
    word & OPEN == 0
}

/// Returns whether a flow with this word was reset by either side.
#[inline(always)]
pub(super) const fn is_reset(word: u32) -> bool {
    word & RESET != 0
}

/// Returns the number of flows that the record has had, which is stored above the state bits.
#[inline(always)]
pub(super) const fn count(word: u32) -> u32 {
    word & !BITS
}

impl Flows<'_> {
    /// Records the flags of a TCP segment (the flags byte of RFC 9293 §3.1), or a packet of another
    /// protocol (flags 0), and returns the state afterwards. Without SYN, FIN and RST, a segment of
    /// a confirmed connection changes nothing: `note` then returns `Established` after one branch,
    /// also for a closing connection.
    #[inline(always)]
    pub fn note(&self, hit: &Hit, flags: u8, from_initiator: bool) -> TcpState {
        if hit.is_established() && flags & (SYN | FIN | RST) == 0 {
            return TcpState::Established;
        }
        self.note_change(hit, flags, from_initiator)
    }

    fn note_change(&self, hit: &Hit, flags: u8, from_initiator: bool) -> TcpState {
        let path = self.paths.row(hit.path);
        let entry = self.index.entry(hit.entry);
        let (Some(path), Some(entry)) = (path, entry) else { return TcpState::Closed };
        let Ok(forward) = self.forward(hit) else { return TcpState::Closed };
        let one_way = forward.flags & PATH_ONE_WAY != 0;
        let mut word = path.tcp.load(Acquire);
        for _ in 0..TRIES {
            // The word contains the number of the record's flows, so the exchange below fails if
            // another flow began in the record after this check.
            if !entry.is_unchanged(hit.stamp) {
                return TcpState::Closed;
            }
            step!();
            let updated = next(word, flags, from_initiator, one_way);
            if updated == word {
                break;
            }
            match path.tcp.compare_exchange_weak(word, updated, AcqRel, Acquire) {
                Ok(_) if flags & SYN != 0 && updated & BITS == 0 => {
                    self.recheck(hit, forward.front);
                    return TcpState::Reopened;
                }
                Ok(_) => {
                    if is_reset(updated) && !is_reset(word) {
                        self.recheck(hit, forward.front);
                    }
                    word = updated;
                    break;
                }
                Err(now) => word = now,
            }
        }
        if word & OPEN != 0 && !is_reset(word) && !hit.is_established() {
            entry.set_flag(hit, ESTABLISHED);
        }
        TcpState::of(word, one_way)
    }

    /// Clears the established flag of both entries, so that `note` reads the path's state for the
    /// next packets.
    fn recheck(&self, hit: &Hit, front: u32) {
        let back = self.paths.row(hit.path).map_or(NONE, |path| path.back.load(Relaxed));
        for entry in [front, back].into_iter().filter_map(|i| self.index.entry(i)) {
            if entry.path.load(Relaxed) == hit.path {
                entry.clear_flag(ESTABLISHED);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after each segment; `>` is sent by the initiator, `<` by the responder.
    fn run(one_way: bool, segments: &[(char, u8)]) -> Vec<TcpState> {
        let mut word = 0;
        let note = |(side, flags): &(char, u8)| {
            word = next(word, *flags, *side == '>', one_way);
            TcpState::of(word, one_way)
        };
        segments.iter().map(note).collect()
    }

    const ACK: u8 = 16;
    use TcpState::*;

    #[test]
    fn connection_opens_with_three_segments_closes_with_two_fins_and_reopens() {
        let segments = [
            ('>', SYN),
            ('<', SYN | ACK),
            ('>', ACK),
            ('>', FIN | ACK),
            ('<', ACK),
            ('<', FIN | ACK),
            ('>', ACK),
            ('>', SYN),
        ];
        let states =
            [Embryonic, Embryonic, Established, Closing, Closing, Closed, Closed, Embryonic];
        assert_eq!(run(false, &segments), states);
    }

    #[test]
    fn unconfirmed_syn_stays_embryonic() {
        let segments = [('>', SYN), ('<', SYN | ACK), ('<', SYN | ACK), ('>', SYN)];
        assert_eq!(run(false, &segments), [Embryonic; 4]);
        assert_eq!(run(false, &[('>', ACK), ('<', ACK)]), [Embryonic; 2]);
    }

    #[test]
    fn reset_from_either_side_closes_an_unconfirmed_connection() {
        assert_eq!(run(false, &[('>', SYN), ('<', RST | ACK)]), [Embryonic, Closed]);
        assert_eq!(run(false, &[('>', RST), ('>', ACK)]), [Closed, Embryonic]);
    }

    #[test]
    fn reset_is_revoked_by_next_segment_of_same_side() {
        let open = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];
        for (side, other) in [('>', '<'), ('<', '>')] {
            let more = [(side, RST), (other, ACK), (other, RST), (side, ACK), (other, ACK)];
            let states = run(false, &[&open[..], &more].concat());
            assert_eq!(states[3..], [Reset, Reset, Reset, Reset, Established]);
        }
    }

    #[test]
    fn reset_does_not_confirm_flow() {
        let mut word = 0;
        for (flags, from_initiator) in [(SYN, true), (SYN | ACK, false), (RST, true)] {
            word = next(word, flags, from_initiator, false);
        }
        assert!(is_unconfirmed(word));
    }

    #[test]
    fn non_tcp_flow_is_confirmed_by_packet_after_reply() {
        let confirmed = |one_way, senders: &str| {
            let word = senders.chars().fold(0, |word, from| next(word, 0, from == '>', one_way));
            !is_unconfirmed(word)
        };
        assert!(!confirmed(false, ">") && !confirmed(false, ">>><") && confirmed(false, "<>"));
        assert!(!confirmed(true, ">") && confirmed(true, ">>"));
    }

    #[test]
    fn one_way_flow_state_follows_initiator() {
        let segments = [('>', SYN), ('>', ACK), ('>', FIN | ACK), ('>', SYN)];
        assert_eq!(run(true, &segments), [Embryonic, Established, Closed, Embryonic]);
    }
}
