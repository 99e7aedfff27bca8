//! State of BGP for the API, the metrics and `weir bgp`.

use std::sync::Arc;

use announce::announcer::Announcer;
use announce::controller::Counts;
use announce::secrets::KeyCounts;
use announce::sockets::SharedSpeaker;
use parking_lot::Mutex;

/// State of BGP for readers. Cheap to clone.
#[derive(Clone)]
pub struct BgpState {
    /// The announcer, which applies the policies to the sessions.
    pub announcer: Arc<Mutex<Announcer<SharedSpeaker>>>,
    /// Statistics of the rounds of BGP's control loop.
    pub counts: Arc<Mutex<Counts>>,
    /// Counts of keys that cannot be read.
    pub key_counts: Arc<KeyCounts>,
    /// Current state of sessions and BFD; reading it does not wait for the end of a round.
    pub sockets: SharedSpeaker,
}
