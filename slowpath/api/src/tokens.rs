//! The bearer token of `api.token_file`: the one in force, and those that it replaced.
//!
//! A replaced token is accepted for an overlap, so that clients can change to the new one at
//! different times. After that it is still recognized: a client that has not changed yet guesses no
//! token, and does not use up the budget of its source (`auth_failures.rs`). Tokens are compared in
//! constant time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::role::Role;

/// Name of the token of `api.token_file` in the audit log, which no named token may have.
pub(crate) const TOKEN_FILE: &str = "token_file";
/// Name of a caller without a valid token in the audit log, which no named token may have.
pub(crate) const UNKNOWN: &str = "unknown";
/// Name of a caller of a listener that requires no token, which no named token may have.
pub(crate) const ANONYMOUS: &str = "anonymous";
/// Maximum number of replaced tokens that are recognized; the oldest is forgotten first.
const MAX_REPLACED: usize = 16;

/// A token, and whether it is no longer accepted.
struct Token {
    text: Box<[u8]>,
    /// True once the token is no longer accepted, for streams that were opened with it.
    ended: watch::Sender<bool>,
}

impl Token {
    fn new(text: &[u8]) -> Token {
        Token { text: text.into(), ended: watch::Sender::new(false) }
    }
}

const ENDED: Verdict = Verdict::Ended(EndedBy::Replaced);

/// The token of the file, and those that it replaced.
pub(crate) struct Tokens {
    current: Token,
    /// Replaced tokens, each with the end of its overlap, in the order of their replacement.
    replaced: Vec<(Token, Instant)>,
}

/// Result of comparing a presented token.
pub(crate) enum Verdict {
    /// The token is accepted.
    Accepted {
        /// Name of the token.
        name: Arc<str>,
        /// Role of its holder.
        role: Role,
        /// It was replaced, and its overlap has not ended.
        replaced: bool,
        /// Becomes true when the token is no longer accepted.
        ended: watch::Receiver<bool>,
    },
    /// The token is no longer accepted.
    Ended(EndedBy),
    /// The token was never in force, or is forgotten because too many others were replaced or
    /// revoked since; or the request has none.
    Unknown,
}

/// Why a token that was accepted is no longer accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EndedBy {
    /// The token of `api.token_file` was replaced, and its overlap has ended.
    Replaced,
    /// The named token was removed from its file.
    Revoked(Arc<str>),
    /// The named token has expired.
    Expired(Arc<str>),
}

impl Verdict {
    /// Returns whether the token is accepted.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self, Verdict::Accepted { .. })
    }
}

impl EndedBy {
    /// Returns the name of the token.
    pub(crate) fn name(&self) -> &str {
        match self {
            EndedBy::Replaced => TOKEN_FILE,
            EndedBy::Revoked(name) | EndedBy::Expired(name) => name,
        }
    }
}

impl Tokens {
    /// Creates the tokens of a file, of which `token` is in force.
    pub(crate) fn new(token: &[u8]) -> Tokens {
        Tokens { current: Token::new(token), replaced: Vec::new() }
    }

    /// Compares a presented token with all known ones. The duration depends on their number and
    /// lengths, not on their content.
    pub(crate) fn check(&self, presented: &[u8], now: Instant) -> Verdict {
        let is = |token: &Token| bool::from(presented.ct_eq(&token.text));
        let accepted = |token: &Token, replaced| Verdict::Accepted {
            name: TOKEN_FILE.into(),
            role: Role::Admin,
            replaced,
            ended: token.ended.subscribe(),
        };
        let mut verdict = Verdict::Unknown;
        for (token, until) in &self.replaced {
            if is(token) {
                verdict = if now < *until { accepted(token, true) } else { ENDED };
            }
        }
        if is(&self.current) { accepted(&self.current, false) } else { verdict }
    }

    /// Puts a token in force, and accepts the previous one for the time `overlap` from `now` on.
    /// Returns false if the token is already in force.
    pub(crate) fn replace(&mut self, token: &[u8], overlap: Duration, now: Instant) -> bool {
        if *self.current.text == *token {
            return false;
        }
        // A token that returns before its overlap has ended keeps its streams.
        let known = self.replaced.iter().position(|(known, _)| *known.text == *token);
        let returning = known.map(|at| self.replaced.remove(at).0);
        let fresh = returning.filter(|known| !*known.ended.borrow());
        let fresh = fresh.unwrap_or_else(|| Token::new(token));
        let before = std::mem::replace(&mut self.current, fresh);
        if self.replaced.len() == MAX_REPLACED {
            self.replaced.remove(0).0.ended.send_replace(true);
        }
        self.replaced.push((before, now + overlap));
        self.expire(now);
        true
    }

    /// Ends the streams of the tokens whose overlap has ended. Returns whether there were such
    /// tokens that were accepted at the previous call.
    pub(crate) fn expire(&self, now: Instant) -> bool {
        let over = self.replaced.iter().filter(|(_, until)| *until <= now);
        over.filter(|(token, _)| !token.ended.send_replace(true)).count() > 0
    }

    /// Returns for how long a replaced token is still accepted; `None` if there is none.
    pub(crate) fn overlap_left(&self, now: Instant) -> Option<Duration> {
        let left = self.replaced.iter().filter_map(|(_, until)| until.checked_duration_since(now));
        left.filter(|left| !left.is_zero()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAP: Duration = Duration::from_secs(300);

    /// Returns the verdict as a word, and whether the streams of an accepted token have ended.
    fn check(tokens: &Tokens, token: &str, at: Instant) -> (&'static str, Option<bool>) {
        match tokens.check(token.as_bytes(), at) {
            Verdict::Accepted { replaced, ended, .. } => {
                (if replaced { "overlap" } else { "current" }, Some(*ended.borrow()))
            }
            Verdict::Ended(_) => ("ended", None),
            Verdict::Unknown => ("unknown", None),
        }
    }

    #[test]
    fn replaced_token_is_accepted_during_the_overlap_and_recognized_after_it() {
        let start = Instant::now();
        let mut tokens = Tokens::new(b"first");
        assert!(!tokens.replace(b"first", OVERLAP, start), "unchanged");
        let Verdict::Accepted { ended, .. } = tokens.check(b"first", start) else { panic!() };
        assert!(tokens.replace(b"second", OVERLAP, start));
        let before_end = start + OVERLAP - Duration::from_millis(1);
        for at in [start, before_end] {
            assert_eq!(check(&tokens, "first", at), ("overlap", Some(false)));
            assert_eq!(check(&tokens, "second", at), ("current", Some(false)));
        }
        assert!(!tokens.expire(before_end) && !*ended.borrow());
        assert_eq!(tokens.overlap_left(start), Some(OVERLAP));
        // The end of the overlap counts by time, also before `expire` runs.
        let end = start + OVERLAP;
        assert_eq!(check(&tokens, "first", end), ("ended", None));
        assert_eq!(tokens.overlap_left(end), None);
        assert!(tokens.expire(end) && *ended.borrow(), "streams of the token end");
        assert!(!tokens.expire(end), "reported once");
        assert_eq!(check(&tokens, "second", end), ("current", Some(false)));
        for wrong in ["", "firs", "second ", "third"] {
            assert_eq!(check(&tokens, wrong, end), ("unknown", None), "{wrong:?}");
        }
    }

    #[test]
    fn without_overlap_a_replaced_token_ends_at_once() {
        let now = Instant::now();
        let mut tokens = Tokens::new(b"first");
        let Verdict::Accepted { ended, .. } = tokens.check(b"first", now) else { panic!() };
        tokens.replace(b"second", Duration::ZERO, now);
        assert_eq!(check(&tokens, "first", now), ("ended", None));
        assert!(*ended.borrow() && tokens.overlap_left(now).is_none());
    }

    #[test]
    fn token_that_returns_is_in_force_again() {
        let start = Instant::now();
        let mut tokens = Tokens::new(b"first");
        let Verdict::Accepted { ended, .. } = tokens.check(b"first", start) else { panic!() };
        tokens.replace(b"second", OVERLAP, start);
        tokens.replace(b"first", OVERLAP, start);
        let later = start + 2 * OVERLAP;
        tokens.expire(later);
        assert_eq!(check(&tokens, "first", later), ("current", Some(false)));
        assert!(!*ended.borrow(), "its streams go on");
        assert_eq!(check(&tokens, "second", later), ("ended", None));
        // A token that returns after its overlap may have new streams.
        tokens.replace(b"second", OVERLAP, later);
        assert_eq!(check(&tokens, "second", later), ("current", Some(false)));
    }

    #[test]
    fn replaced_tokens_are_bounded() {
        let now = Instant::now();
        let mut tokens = Tokens::new(b"0");
        let Verdict::Accepted { ended, .. } = tokens.check(b"0", now) else { panic!() };
        for number in 1..=MAX_REPLACED + 1 {
            tokens.replace(number.to_string().as_bytes(), OVERLAP, now);
        }
        assert_eq!(check(&tokens, "0", now), ("unknown", None));
        assert!(*ended.borrow(), "its streams end when it is forgotten");
        assert_eq!(check(&tokens, "1", now), ("overlap", Some(false)));
    }
}
