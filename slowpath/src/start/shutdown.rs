//! Shutdown: deregisters from the cloud and withdraws routes, in parallel, and waits for both.

use crate::cloud::CloudHandle;
use crate::routing::{BgpHandle, BgpLoopFailed};

/// State of the shutdown.
pub(crate) struct Shutdown {
    cloud: Option<CloudHandle>,
    bgp: BgpHandle,
    /// Whether the cloud's lifecycle has ended, or there is none.
    cloud_left: bool,
}

impl Shutdown {
    /// Creates the state; no shutdown has been requested.
    pub(crate) fn new(cloud: Option<CloudHandle>, bgp: BgpHandle) -> Shutdown {
        Shutdown { cloud_left: cloud.is_none(), cloud, bgp }
    }

    /// Handles SIGTERM: the first starts the shutdown, the second makes the process exit at once.
    pub(crate) fn request(&mut self) {
        if let Some(cloud) = &self.cloud {
            cloud.request_leave();
        }
        self.bgp.request_shutdown();
    }

    /// Returns whether SIGTERM has requested the shutdown.
    pub(crate) fn is_requested(&self) -> bool {
        self.bgp.is_requested()
    }

    /// Waits until the process may exit. Cancel safe: the future may be dropped and the method
    /// called again.
    ///
    /// # Errors
    /// Fails if BGP ended by an internal error.
    pub(crate) async fn finished(&mut self) -> Result<(), BgpLoopFailed> {
        if let Some(cloud) = self.cloud.as_mut().filter(|_| !self.cloud_left) {
            tokio::select! {
                ended = self.bgp.stopped(), if !self.bgp.is_requested() => return ended,
                () = cloud.left() => {}
            }
            self.cloud_left = true;
            // The cloud's lifecycle may also end without a request; that ends BGP too.
            if !self.bgp.is_requested() {
                self.bgp.request_shutdown();
            }
        }
        self.bgp.stopped().await
    }
}
