//! Keys of neighbors (TCP-MD5 and TCP-AO): read once a round; a neighbor that requires one has no
//! session without it. The watch notices when a key file is written or rotated.

use std::sync::Arc;
use std::time::Duration;

use bgp::peer::Stop;
use parking_lot::Mutex;
use state::object::bgp::{Neighbor, Password, RouterSpec};

use super::{Announcer, Running};
use crate::controller::Signal;
use crate::peers::{self, Identity, Keys};
use crate::routers::Wrong;
use crate::secrets::{Read, SecretWatch};
use crate::speaker::Speaker;

/// Time from one look at the files to the next.
const LOOK: Duration = Duration::from_secs(1);

impl<S: Speaker> Announcer<S> {
    /// Adds a neighbor, or begins its session anew where its settings are others. Without its key
    /// a neighbor gets no session; one that is signed goes on with the key that it has.
    pub(super) fn neighbor(
        &mut self,
        router: &RouterSpec,
        neighbor: &Neighbor,
        identity: Identity,
        able: bool,
    ) -> Result<(), Wrong> {
        if let Ok(keys) = Keys::read(neighbor, |named| self.password(named)) {
            return self.session(router, neighbor, identity, keys, able);
        }
        let key = peers::key(router, neighbor);
        let same = |peer: &&Running| peer.secrets.iter().eq(neighbor.secrets());
        match self.peers.get(&key).filter(same).map(Running::keys) {
            Some(kept) => self.session(router, neighbor, identity, kept, able)?,
            None => self.remove(key, Stop::Deconfigured),
        }
        Err(Wrong::MissingAuthSecret { neighbor: neighbor.address })
    }

    /// Reads a password, once a round.
    fn password(&mut self, named: &Password) -> Result<String, String> {
        let secrets = &self.secrets;
        let read = || secrets.password(named);
        self.passwords.entry(named.clone()).or_insert_with(read).clone()
    }

    /// Logs why passwords can't be read, where `before` doesn't have it.
    pub(super) fn log_secrets(&self, before: &Read) {
        for (named, read) in &self.passwords {
            if let Err(cause) = read
                && before.get(named) != Some(read)
            {
                tracing::warn!(password = ?named, %cause, "BGP password is not usable");
            }
        }
    }
}

impl<S> Announcer<S> {
    /// What the last round read of passwords, to be compared with the files.
    pub fn secret_watch(&self) -> SecretWatch {
        SecretWatch { secrets: Arc::clone(&self.secrets), used: self.passwords.clone() }
    }
}

/// Gives a signal when a key in use has changed, come or gone, until it is aborted. A change counts
/// once two looks read the same: a file that is being written is not used half.
pub async fn watch<S: Send + 'static>(announcer: Arc<Mutex<Announcer<S>>>, signal: Signal) {
    let mut before = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let watch = announcer.lock().secret_watch();
        // A slow disk must not hold up sessions.
        let now = tokio::task::spawn_blocking(|| watch.look()).await.unwrap_or_default();
        if now.is_some() && now == before {
            signal.event();
        }
        before = now;
    }
}
