//! TCP-MD5 and TCP-AO keys of neighbors: read once per round. A neighbor whose key cannot be read
//! gets no new session; a running session keeps its keys if they came from the same secrets, and
//! ends otherwise. A changed key is replaced in the running session, which stays established if the
//! neighbor changes its key within the hold time. A watch detects key files that are written or
//! rotated.

use std::sync::Arc;
use std::time::Duration;

use bgp::peer::Stop;
use parking_lot::Mutex;
use state::object::bgp::{Neighbor, Password, RouterSpec};

use super::{Announcer, RunningPeer};
use crate::apply::DefectKind;
use crate::controller::Signal;
use crate::peers::{self, Identity, Keys};
use crate::secrets::{ReadKeys, SecretWatch};
use crate::speaker::Speaker;

/// Interval between checks of the key files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl<S: Speaker> Announcer<S> {
    /// Adds a neighbor, or applies its changed settings. If a key cannot be read, a running session
    /// whose keys came from the same secrets continues with them; any other session ends, and the
    /// neighbor has none.
    pub(super) fn apply_neighbor(
        &mut self,
        router: &RouterSpec,
        neighbor: &Neighbor,
        identity: Identity,
        forwarding: bool,
    ) -> Result<(), DefectKind> {
        if let Ok(keys) = Keys::read(neighbor, |named| self.password(named)) {
            return self.update_session(router, neighbor, identity, keys, forwarding);
        }
        let key = peers::key(router, neighbor);
        let same = |peer: &&RunningPeer| peer.secrets.iter().eq(neighbor.secrets());
        match self.peers.get(&key).filter(same).map(RunningPeer::keys) {
            Some(current) => {
                self.update_session(router, neighbor, identity, current, forwarding)?
            }
            None => self.remove(key, Stop::Deconfigured),
        }
        Err(DefectKind::MissingAuthSecret { neighbor: neighbor.address })
    }

    /// Returns the key that `named` refers to, or the reason why it cannot be read. The result is
    /// cached for the round.
    fn password(&mut self, named: &Password) -> Result<String, String> {
        let secrets = &self.secrets;
        let read = || secrets.password(named);
        self.passwords.entry(named.clone()).or_insert_with(read).clone()
    }

    /// Logs each key that cannot be read, unless the previous round (`before`) has the same error.
    /// A logged key counts as rejected if the policy of the previous round names it too.
    pub(super) fn log_unreadable_keys(&self, before: &ReadKeys) {
        let mut rejected = 0;
        for (named, read) in &self.passwords {
            if let Err(cause) = read
                && before.get(named) != Some(read)
            {
                rejected += u64::from(before.contains_key(named));
                tracing::warn!(
                    event = "bgp_secret_unusable",
                    key = "bgp.secrets",
                    password = ?named,
                    %cause,
                    "BGP key is not usable"
                );
            }
        }
        self.key_counts.record(rejected, &self.passwords);
    }
}

impl<S> Announcer<S> {
    /// Returns the keys of the last round, to be compared with the files.
    pub fn secret_watch(&self) -> SecretWatch {
        SecretWatch { secrets: Arc::clone(&self.secrets), used: self.passwords.clone() }
    }
}

/// Signals when a key that the policy names is changed, created or removed, until the task is
/// aborted. A change counts once two consecutive checks, 1 s apart, read the same keys, so that a
/// partly written file is not used.
pub async fn watch<S: Send + 'static>(announcer: Arc<Mutex<Announcer<S>>>, signal: Signal) {
    let mut before = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let watch = announcer.lock().secret_watch();
        // Reads off the runtime, because a slow disk must not delay sessions.
        let now = tokio::task::spawn_blocking(|| watch.changed_keys()).await.unwrap_or_default();
        if now.is_some() && now == before {
            signal.event();
        }
        before = now;
    }
}
