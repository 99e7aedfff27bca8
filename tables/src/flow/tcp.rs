//! How far a flow is, as much as timeouts and room need: of TCP by its flags alone, of all others
//! by who has sent. A flow is confirmed once its initiator went on after an answer; where answers
//! go past us, with the initiator's second packet.

use super::entry::ESTABLISHED;
use super::path::PATH_ONE_WAY;
use super::step::step;
use super::{Flows, Hit};
use crate::atomic::Ordering::*;
use crate::record::NONE;
use crate::rows::Numbered;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// State bit: the other side answered; where answers go past us, the initiator sent a packet.
const RESPONDED: u32 = 1;
/// State bit: and the initiator went on.
const OPEN: u32 = 2;
/// State bit: the initiator has no more to say.
const FIN_INITIATOR: u32 = 4;
/// State bit: the other side has no more to say.
const FIN_RESPONDER: u32 = 8;
/// State bit: a reset in the initiator's name.
const RESET_INITIATOR: u32 = 16;
/// State bit: a reset in the other side's name.
const RESET_RESPONDER: u32 = 32;
const RESET: u32 = RESET_INITIATOR | RESET_RESPONDER;
const BITS: u32 = 0xff;
/// How often a word that others change is tried. The kernel's program leaves it to them then.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 16 } else { u32::MAX };

/// How far a TCP connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// Not yet seen to be answered and gone on with.
    Embryonic,
    /// Both sides were seen.
    Established,
    /// One side sent FIN.
    Closing,
    /// Both sides sent FIN, or a connection was reset before it was established.
    Closed,
    /// A segment that may be anybody's said RST: as established, but the first to end where there
    /// is no room. The next segment of the side in whose name it was takes it back.
    Reset,
    /// This SYN of the initiator reopened a closing or closed connection: embryonic again.
    Reopened,
}

impl TcpState {
    /// The state of a path's word.
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

/// The word after a segment with these flags; none for a packet of another protocol.
fn next(word: u32, flags: u8, from_initiator: bool, one_way: bool) -> u32 {
    let mut word = word;
    let reset = if from_initiator { RESET_INITIATOR } else { RESET_RESPONDER };
    if flags & RST != 0 {
        // It confirms nothing: whoever sent it need not have seen an answer.
        return word | reset;
    }
    if from_initiator && flags & SYN != 0 {
        let refused = is_reset(word) && is_unconfirmed(word);
        if word & (FIN_INITIATOR | FIN_RESPONDER) != 0 || refused {
            return word & !BITS;
        }
        // Anybody may have sent the reset before it, and it as well: what was established stays so.
        let first = if one_way { RESPONDED } else { 0 };
        return word & !reset | first;
    }
    word &= !reset;
    if !from_initiator {
        word |= RESPONDED;
    } else if word & RESPONDED != 0 {
        word |= OPEN;
    } else if one_way {
        // Of the initiator's packets the second is taken for what follows an answer.
        word |= RESPONDED;
    }
    if flags & FIN != 0 {
        word |= if from_initiator { FIN_INITIATOR } else { FIN_RESPONDER };
    }
    word
}

/// Whether a segment with these flags leaves the word as it is, and does not reopen the connection.
#[inline(always)]
pub(super) fn stays(word: u32, flags: u8, from_initiator: bool, one_way: bool) -> bool {
    flags & (SYN | FIN | RST) == 0 && next(word, flags, from_initiator, one_way) == word
}

/// Whether a flow of this word may end to make room for others: nobody has confirmed it.
#[inline(always)]
pub(super) const fn is_unconfirmed(word: u32) -> bool {
    word & OPEN == 0
}

/// Whether a flow of this word was reset, by whomever.
#[inline(always)]
pub(super) const fn is_reset(word: u32) -> bool {
    word & RESET != 0
}

/// The count of a record's flows, above the bits of one.
#[inline(always)]
pub(super) const fn count(word: u32) -> u32 {
    word & !BITS
}

impl Flows<'_> {
    /// Notes a TCP segment's flags (the byte of RFC 9293 3.1), or that a packet of another protocol
    /// came, which has none. For an established connection's
    /// segment without SYN, FIN and RST that is one branch, and the answer is `Established`.
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
            // The word counts the record's flows, so that the exchange below fails if this flow
            // ended after we looked.
            if !entry.still(hit.stamp) {
                return TcpState::Closed;
            }
            step!();
            let wanted = next(word, flags, from_initiator, one_way);
            if wanted == word {
                break;
            }
            match path.tcp.compare_exchange_weak(word, wanted, AcqRel, Acquire) {
                Ok(_) if flags & SYN != 0 && wanted & BITS == 0 => {
                    self.look_again(hit, forward.front);
                    return TcpState::Reopened;
                }
                Ok(_) => {
                    if is_reset(wanted) && !is_reset(word) {
                        self.look_again(hit, forward.front);
                    }
                    word = wanted;
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

    /// Both entries have to look at the path again.
    fn look_again(&self, hit: &Hit, front: u32) {
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

    /// The states after each of these segments, `>` from the initiator, `<` to it.
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
    fn a_connection_opens_with_three_segments_and_closes_with_a_fin_of_each() {
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
    fn a_syn_that_nobody_confirms_stays_embryonic() {
        let segments = [('>', SYN), ('<', SYN | ACK), ('<', SYN | ACK), ('>', SYN)];
        assert_eq!(run(false, &segments), [Embryonic; 4]);
        assert_eq!(run(false, &[('>', ACK), ('<', ACK)]), [Embryonic; 2]);
    }

    #[test]
    fn a_reset_closes_what_was_not_established_from_either_side() {
        assert_eq!(run(false, &[('>', SYN), ('<', RST | ACK)]), [Embryonic, Closed]);
        assert_eq!(run(false, &[('>', RST), ('>', ACK)]), [Closed, Embryonic]);
    }

    #[test]
    fn a_reset_is_taken_back_by_the_next_segment_of_its_side() {
        let open = [('>', SYN), ('<', SYN | ACK), ('>', ACK)];
        for (side, other) in [('>', '<'), ('<', '>')] {
            let more = [(side, RST), (other, ACK), (other, RST), (side, ACK), (other, ACK)];
            let states = run(false, &[&open[..], &more].concat());
            assert_eq!(states[3..], [Reset, Reset, Reset, Reset, Established]);
        }
    }

    #[test]
    fn a_reset_confirms_nothing() {
        let mut word = 0;
        for (flags, from_initiator) in [(SYN, true), (SYN | ACK, false), (RST, true)] {
            word = next(word, flags, from_initiator, false);
        }
        assert!(is_unconfirmed(word));
    }

    #[test]
    fn what_is_no_tcp_is_confirmed_by_a_packet_after_an_answer() {
        let confirmed = |one_way, senders: &str| {
            let word = senders.chars().fold(0, |word, from| next(word, 0, from == '>', one_way));
            !is_unconfirmed(word)
        };
        assert!(!confirmed(false, ">") && !confirmed(false, ">>><") && confirmed(false, "<>"));
        assert!(!confirmed(true, ">") && confirmed(true, ">>"));
    }

    #[test]
    fn where_answers_are_never_seen_the_initiator_decides() {
        let segments = [('>', SYN), ('>', ACK), ('>', FIN | ACK), ('>', SYN)];
        assert_eq!(run(true, &segments), [Embryonic, Established, Closed, Embryonic]);
    }
}
