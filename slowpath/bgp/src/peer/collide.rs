//! Connection collisions: which of two connections with a peer stays (RFC 4271 section 6.8, RFC
//! 6286 section 2.3, RFC 4724 section 5).

use std::time::{Duration, Instant};

use super::Peer;
use crate::session::{ConnectionId, Direction, Down, Session, Stage};
use crate::wire::Notification;
use crate::wire::notification::cease;

/// A connection that began within this time after another became established was opened at the same
/// time as the other, and is no sign that the peer restarted.
const AT_THE_SAME_TIME: Duration = Duration::from_secs(5);

impl Peer {
    /// Closes inbound connections that are not established: with a new connection the peer has
    /// given them up.
    pub(super) fn supersede(&mut self, now: Instant) {
        let unfinished = |session: &Session| {
            session.direction == Direction::Inbound && session.stage() != Stage::Established
        };
        while let Some(at) = self.sessions.iter().position(unfinished) {
            self.lose(now, at);
        }
    }

    /// Handles the peer's OPEN on `id`: resolves a collision, then confirms the connection if it
    /// stays.
    pub(super) fn opened(&mut self, now: Instant, id: ConnectionId) {
        let known = |session: &Session| session.stage() != Stage::OpenSent && session.id != id;
        if let Some(other) = self.sessions.iter().position(known) {
            let Some(this) = self.sessions.iter().position(|session| session.id == id) else {
                return;
            };
            if self.has_come_back(this, other) {
                // The peer has lost the old session; a NOTIFICATION on it would end graceful
                // restart.
                let old = self.sessions.remove(other);
                self.end(now, old, Down::Lost("the peer came back on another connection"));
            } else {
                let loser = if self.stays(this, other) { other } else { this };
                self.lose(now, loser);
            }
        }
        if let Some(session) = self.session(id) {
            session.confirm(now);
        }
    }

    /// Closes all connections but `id`.
    pub(super) fn leave_only(&mut self, now: Instant, id: ConnectionId) {
        while let Some(at) = self.sessions.iter().position(|session| session.id != id) {
            self.lose(now, at);
        }
    }

    fn lose(&mut self, now: Instant, at: usize) {
        let session = self.sessions.remove(at);
        self.end(now, session, Notification::cease(cease::COLLISION).into());
    }

    /// Returns whether the peer restarted: with graceful restart, it connects while a session is
    /// established.
    fn has_come_back(&self, this: usize, other: usize) -> bool {
        let (this, other) = (&self.sessions[this], &self.sessions[other]);
        let graceful = other.negotiated().is_some_and(|both| both.graceful_restart.is_some());
        other.stage() == Stage::Established
            && this.direction == Direction::Inbound
            && graceful
            && this.began >= other.since + AT_THE_SAME_TIME
    }

    /// Returns whether `this` stays rather than `other`. An established one always stays; otherwise
    /// the one that the speaker with the higher identifier opened, or, if these are equal, with the
    /// higher AS number.
    fn stays(&self, this: usize, other: usize) -> bool {
        let (this, other) = (&self.sessions[this], &self.sessions[other]);
        let Some(theirs) = this.negotiated() else { return false };
        if other.stage() == Stage::Established {
            return false;
        }
        let ours = (self.settings.identifier, self.settings.local_asn);
        let winner = match ours > (theirs.identifier, theirs.peer_asn) {
            true => Direction::Outbound,
            false => Direction::Inbound,
        };
        this.direction == winner
    }
}
