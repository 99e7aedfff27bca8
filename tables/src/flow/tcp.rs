//! The TCP state of a flow: as much as timeouts need, from flags alone.

use super::path::PATH_ONE_WAY;
use super::{ESTABLISHED, Flows, Hit, step};
use crate::atomic::Ordering::*;
use crate::record::NONE;
use crate::rows::Numbered;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// State bit: the other side answered.
const RESPONDED: u32 = 1;
/// State bit: and the initiator went on.
const OPEN: u32 = 2;
/// State bit: the initiator has no more to say.
const FIN_INITIATOR: u32 = 4;
/// State bit: the other side has no more to say.
const FIN_RESPONDER: u32 = 8;
/// State bit: reset by either.
const RESET: u32 = 16;
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
    /// Both sides sent FIN, or one RST.
    Closed,
    /// This SYN of the initiator reopened a closing or closed connection: embryonic again.
    Reopened,
}

impl TcpState {
    /// The state of a path's word.
    pub(super) fn of(word: u32, one_way: bool) -> TcpState {
        let fins = FIN_INITIATOR | FIN_RESPONDER;
        let needed = if one_way { FIN_INITIATOR } else { fins };
        if word & RESET != 0 || word & needed == needed {
            TcpState::Closed
        } else if word & fins != 0 {
            TcpState::Closing
        } else if word & OPEN != 0 {
            TcpState::Established
        } else {
            TcpState::Embryonic
        }
    }
}

/// The word after a segment with these flags.
fn next(word: u32, flags: u8, from_initiator: bool, one_way: bool) -> u32 {
    let mut word = word;
    if from_initiator && flags & (SYN | RST) == SYN {
        let closing = word & (FIN_INITIATOR | FIN_RESPONDER | RESET) != 0;
        return if closing { word & !BITS } else { word };
    }
    if !from_initiator {
        word |= RESPONDED;
    } else if word & RESPONDED != 0 || one_way {
        word |= OPEN;
    }
    if flags & RST != 0 {
        word |= RESET;
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

impl Flows<'_> {
    /// Notes a TCP segment's flags (the byte of RFC 9293 3.1). For an established connection's
    /// segment without SYN, FIN and RST that is one branch, and the answer is `Established`.
    #[inline(always)]
    pub fn note_tcp(&self, hit: &Hit, flags: u8, from_initiator: bool) -> TcpState {
        if hit.is_established() && flags & (SYN | FIN | RST) == 0 {
            return TcpState::Established;
        }
        self.note_tcp_change(hit, flags, from_initiator)
    }

    fn note_tcp_change(&self, hit: &Hit, flags: u8, from_initiator: bool) -> TcpState {
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
                Ok(_) if wanted & BITS == 0 => return self.reopen(hit, forward.front),
                Ok(_) => {
                    word = wanted;
                    break;
                }
                Err(now) => word = now,
            }
        }
        if word & OPEN != 0 && !hit.is_established() {
            entry.set_flag(hit, ESTABLISHED);
        }
        TcpState::of(word, one_way)
    }

    /// Both entries have to look at the path again.
    fn reopen(&self, hit: &Hit, front: u32) -> TcpState {
        let back = self.paths.row(hit.path).map_or(NONE, |path| path.back.load(Relaxed));
        for entry in [front, back].into_iter().filter_map(|i| self.index.entry(i)) {
            if entry.path.load(Relaxed) == hit.path {
                entry.clear_flag(ESTABLISHED);
            }
        }
        TcpState::Reopened
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
    fn a_reset_closes_from_either_side() {
        assert_eq!(run(false, &[('>', SYN), ('<', RST | ACK)]), [Embryonic, Closed]);
        assert_eq!(run(false, &[('>', RST), ('>', ACK)]), [Closed; 2]);
    }

    #[test]
    fn where_answers_are_never_seen_the_initiator_decides() {
        let segments = [('>', SYN), ('>', ACK), ('>', FIN | ACK), ('>', SYN)];
        assert_eq!(run(true, &segments), [Embryonic, Established, Closed, Embryonic]);
    }
}
