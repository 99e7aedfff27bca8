//! Connection collisions: which of two connections with a peer stays (RFC 4271 section 6.8, RFC
//! 6286 section 2.3, RFC 4724 section 5).

use std::time::{Duration, Instant};

use super::Peer;
use crate::session::{CloseReason, ConnectionId, Direction, Session, Stage};
use crate::wire::Notification;
use crate::wire::notification::cease;

/// A connection opened less than this time after another became established counts as opened at the
/// same time as the other. It is then no sign that the peer restarted.
const SIMULTANEOUS: Duration = Duration::from_secs(5);

impl Peer {
    /// Closes inbound connections that are not established: by opening a new connection, the peer
    /// shows that it has given them up.
    pub(super) fn supersede(&mut self, now: Instant) {
        let unfinished = |session: &Session| {
            session.direction == Direction::Inbound && session.stage() != Stage::Established
        };
        while let Some(at) = self.sessions.iter().position(unfinished) {
            self.close_collided(now, at);
        }
    }

    /// Handles the peer's OPEN on `id`: resolves a collision, then confirms the connection if it
    /// stays.
    pub(super) fn opened(&mut self, now: Instant, id: ConnectionId) {
        let identified = |session: &Session| session.stage() != Stage::OpenSent && session.id != id;
        if let Some(other) = self.sessions.iter().position(identified) {
            let Some(this) = self.sessions.iter().position(|session| session.id == id) else {
                return;
            };
            if self.peer_restarted(this, other) {
                // The peer has lost the old session; a NOTIFICATION on it would end graceful
                // restart.
                let old = self.sessions.remove(other);
                self.end(now, old, CloseReason::Lost("the peer restarted on another connection"));
            } else {
                let loser = if self.wins(this, other) { other } else { this };
                self.close_collided(now, loser);
            }
        }
        if let Some(session) = self.session(id) {
            session.confirm(now);
        }
    }

    /// Closes all connections but `id`.
    pub(super) fn close_others(&mut self, now: Instant, id: ConnectionId) {
        while let Some(at) = self.sessions.iter().position(|session| session.id != id) {
            self.close_collided(now, at);
        }
    }

    fn close_collided(&mut self, now: Instant, at: usize) {
        let session = self.sessions.remove(at);
        self.end(now, session, Notification::cease(cease::COLLISION).into());
    }

    /// Returns whether `this` connection shows that the peer restarted: with graceful restart, the
    /// peer opened it while a session was established (RFC 4724 section 5).
    fn peer_restarted(&self, this: usize, other: usize) -> bool {
        let (this, other) = (&self.sessions[this], &self.sessions[other]);
        let graceful =
            other.negotiated().is_some_and(|negotiated| negotiated.graceful_restart.is_some());
        other.stage() == Stage::Established
            && this.direction == Direction::Inbound
            && graceful
            && this.began >= other.since + SIMULTANEOUS
    }

    /// Returns whether `this` connection stays rather than `other`. An established connection
    /// always stays. Otherwise the connection stays that was opened by the speaker with the higher
    /// identifier or, if the identifiers are equal, with the higher AS number.
    fn wins(&self, this: usize, other: usize) -> bool {
        let (this, other) = (&self.sessions[this], &self.sessions[other]);
        let Some(remote) = this.negotiated() else { return false };
        if other.stage() == Stage::Established {
            return false;
        }
        let local = (self.settings.identifier, self.settings.local_asn);
        let winner = match local > (remote.identifier, remote.peer_asn) {
            true => Direction::Outbound,
            false => Direction::Inbound,
        };
        this.direction == winner
    }
}
