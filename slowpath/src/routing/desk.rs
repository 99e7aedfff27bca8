//! What is known of routers, for the API, the metrics and the command.

use std::sync::Arc;

use announce::announcer::Announcer;
use announce::controller::Counts;
use announce::sockets::Sockets;
use parking_lot::Mutex;

/// What is known of routers, for those who ask. Cheap to copy.
#[derive(Clone)]
pub struct Desk {
    /// Policies as they are carried out.
    pub announcer: Arc<Mutex<Announcer<Sockets>>>,
    /// What is counted of the control loop's rounds.
    pub counts: Arc<Mutex<Counts>>,
    /// Sessions and BFD as they are: for this nobody waits for a round's end.
    pub sockets: Sockets,
}
