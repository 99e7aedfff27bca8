//! Shutdown: deregisters from the cloud and withdraws routes, in parallel, and waits for both.

use crate::cloud::CloudHandle;
use crate::routing::{BgpHandle, BgpLoopFailed};

/// State of the shutdown.
pub(crate) struct Shutdown {
    cloud: Option<CloudHandle>,
    bgp: BgpHandle,
    cloud_left: bool,
}

impl Shutdown {
    /// Creates the state; no shutdown has been requested.
    pub(crate) fn new(cloud: Option<CloudHandle>, bgp: BgpHandle) -> Shutdown {
        Shutdown { cloud_left: cloud.is_none(), cloud, bgp }
    }

    /// Handles SIGTERM: the first starts the shutdown, the second ends it at once.
    pub(crate) fn request(&mut self) {
        if let Some(cloud) = &self.cloud {
            cloud.request_leave();
        }
        self.bgp.request_shutdown();
    }

    /// Waits until the process may exit. Cancel safe: may be dropped and called again.
    ///
    /// # Errors
    /// BGP ended by an internal error.
    pub(crate) async fn finished(&mut self) -> Result<(), BgpLoopFailed> {
        if let Some(cloud) = self.cloud.as_mut().filter(|_| !self.cloud_left) {
            tokio::select! {
                ended = self.bgp.stopped(), if !self.bgp.is_requested() => return ended,
                () = cloud.left() => {}
            }
            self.cloud_left = true;
            // The cloud's lifecycle may end without a request.
            if !self.bgp.is_requested() {
                self.bgp.request_shutdown();
            }
        }
        self.bgp.stopped().await
    }
}
