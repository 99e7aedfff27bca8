//! Sessions of browsers. A session is opened with a token of at least the role `read`. Its requests
//! need no token, and have the role `read`.
//!
//! A session ends when it was not used for [`IDLE`], after [`MAX_AGE`], when it is closed, when its
//! token is no longer accepted, and with the process. Only hashes of IDs are stored, so that the
//! duration of a lookup reveals nothing about an ID.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::hex;

/// Time after its last request at which a session ends.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Time after its login at which a session ends.
const MAX_AGE: Duration = Duration::from_secs(8 * 3600);
/// Maximum number of sessions. A further one ends the one that was not used for the longest time.
const MAX_SESSIONS: usize = 64;
/// Maximum number of sessions of a token. A further one ends the one of this token that was not
/// used for the longest time, so that one token cannot end the sessions of others.
const MAX_PER_TOKEN: usize = 8;
/// Number of random bytes of an id.
const ID_BYTES: usize = 32;

/// SHA-256 of an id.
type IdHash = [u8; 32];

/// The sessions of all addresses of the API.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<IdHash, Session>>);

struct Session {
    /// Name of the token.
    name: Arc<str>,
    /// Time of the login.
    opened: Instant,
    /// Time of the last request.
    used: Instant,
    /// Becomes true, or loses its sender, when the token is no longer accepted.
    ended: watch::Receiver<bool>,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.used + IDLE
            || now >= self.opened + MAX_AGE
            || *self.ended.borrow()
            || self.ended.has_changed().is_err()
    }
}

fn hash(id: &str) -> IdHash {
    Sha256::digest(id.as_bytes()).into()
}

/// Returns the session that was not used for the longest time among those that `selects` accepts.
fn longest_unused(
    sessions: &HashMap<IdHash, Session>,
    selects: impl Fn(&Session) -> bool,
) -> Option<IdHash> {
    let selected = sessions.iter().filter(|(_, session)| selects(session));
    selected.min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash)
}

impl Sessions {
    /// Opens a session for the token `name`, and returns its id: 64 hexadecimal digits.
    ///
    /// # Errors
    /// The kernel returned no random bytes.
    pub(crate) fn open(
        &self,
        name: Arc<str>,
        ended: watch::Receiver<bool>,
        now: Instant,
    ) -> io::Result<String> {
        let mut random = [0; ID_BYTES];
        if getrandom(&mut random, GetRandomFlags::empty())? != ID_BYTES {
            return Err(io::Error::other("too few random bytes"));
        }
        let id = hex::text(&random);
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.is_over(now));
        let of_token = sessions.values().filter(|session| session.name == name).count();
        let longest_unused = if of_token >= MAX_PER_TOKEN {
            longest_unused(&sessions, |session| session.name == name)
        } else if sessions.len() >= MAX_SESSIONS {
            longest_unused(&sessions, |_| true)
        } else {
            None
        };
        if let Some(hash) = longest_unused {
            sessions.remove(&hash);
        }
        sessions.insert(hash(&id), Session { name, opened: now, used: now, ended });
        Ok(id)
    }

    /// Returns the name of the token of a session, and restarts its idle time; `None` if there is
    /// no such session or it is over.
    pub(crate) fn find(&self, id: &str, now: Instant) -> Option<Arc<str>> {
        let (hash, mut sessions) = (hash(id), self.0.lock());
        let session = sessions.get_mut(&hash)?;
        if session.is_over(now) {
            sessions.remove(&hash);
            return None;
        }
        session.used = now;
        Some(Arc::clone(&session.name))
    }

    /// Ends a session, if there is one with this id.
    pub(crate) fn close(&self, id: &str) {
        self.0.lock().remove(&hash(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(sessions: &Sessions, now: Instant) -> (String, watch::Sender<bool>) {
        let ended = watch::Sender::new(false);
        (sessions.open("ann".into(), ended.subscribe(), now).unwrap(), ended)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_old_closed_or_its_token_ends() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let (idle, _idle) = open(&sessions, start);
        assert!(sessions.find(&idle, start + IDLE - SECOND).is_some());
        assert!(sessions.find(&idle, start + 2 * IDLE - 2 * SECOND).is_some(), "use extends it");
        assert!(sessions.find(&idle, start + 3 * IDLE).is_none());
        assert!(sessions.find(&idle, start + SECOND).is_none(), "it does not return");

        let (old, _old) = open(&sessions, start);
        let mut now = start;
        while now + IDLE / 2 < start + MAX_AGE {
            now += IDLE / 2;
            assert_eq!(sessions.find(&old, now).as_deref(), Some("ann"), "{:?}", now - start);
        }
        assert!(sessions.find(&old, start + MAX_AGE).is_none());

        let (closed, _closed) = open(&sessions, start);
        sessions.close(&closed);
        assert!(sessions.find(&closed, start).is_none());

        let (revoked, ended) = open(&sessions, start);
        ended.send_replace(true);
        assert!(sessions.find(&revoked, start).is_none());
        let (forgotten, ended) = open(&sessions, start);
        drop(ended);
        assert!(sessions.find(&forgotten, start).is_none());
        assert_eq!(sessions.0.lock().len(), 0, "nothing is left of them");
    }

    #[test]
    fn ids_are_long_random_and_not_kept() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let ((first, _a), (second, _b)) = (open(&sessions, now), open(&sessions, now));
        assert_eq!((first.len(), second.len()), (64, 64));
        assert_ne!(first, second);
        for other in ["", "0", &first[1..], &first.to_uppercase(), &"0".repeat(64)] {
            assert!(sessions.find(other, now).is_none(), "{other}");
        }
        let kept = sessions.0.lock().keys().copied().collect::<Vec<_>>();
        assert!(
            kept.iter().map(|hash| hex::text(hash)).all(|hash| hash != first && hash != second)
        );
    }

    #[test]
    fn sessions_are_bounded_and_the_longest_unused_ends_first() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let ended = watch::Sender::new(false);
        let at = |n: u32| now + SECOND * n;
        let open = |n: u32| {
            let name = format!("token-{}", n % 32);
            sessions.open(name.into(), ended.subscribe(), at(n)).unwrap()
        };
        let ids: Vec<String> = (0..MAX_SESSIONS as u32).map(open).collect();
        assert!(sessions.find(&ids[0], at(100)).is_some());
        open(101);
        assert_eq!(sessions.0.lock().len(), MAX_SESSIONS);
        assert!(sessions.find(&ids[0], at(102)).is_some(), "used since");
        assert!(sessions.find(&ids[1], at(102)).is_none());
    }

    #[test]
    fn a_token_ends_its_own_sessions_first() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let ended = watch::Sender::new(false);
        let open = |name: &str, n: u32| {
            sessions.open(name.into(), ended.subscribe(), now + SECOND * n).unwrap()
        };
        let ann = open("ann", 0);
        let bob: Vec<String> = (1..=MAX_SESSIONS as u32).map(|n| open("bob", n)).collect();
        let at = now + SECOND * 100;
        assert!(sessions.find(&ann, at).is_some(), "it is the oldest, but of another token");
        let (over, open) = bob.split_at(MAX_SESSIONS - MAX_PER_TOKEN);
        assert!(over.iter().all(|id| sessions.find(id, at).is_none()));
        assert!(open.iter().all(|id| sessions.find(id, at).is_some()));
        assert_eq!(sessions.0.lock().len(), 1 + MAX_PER_TOKEN);
    }
}
