//! State of BGP for the API, the metrics and the command.

use std::sync::Arc;

use announce::announcer::Announcer;
use announce::controller::Counts;
use announce::sockets::Sockets;
use parking_lot::Mutex;

/// State of BGP for readers. Cheap to clone.
#[derive(Clone)]
pub struct BgpState {
    /// The policies as carried out.
    pub announcer: Arc<Mutex<Announcer<Sockets>>>,
    /// Counters of the control loop's rounds.
    pub counts: Arc<Mutex<Counts>>,
    /// Current state of sessions and BFD; reading it does not wait for the end of a round.
    pub sockets: Sockets,
}
