//! Shutdown: deregisters from the cloud and withdraws routes, in parallel, and waits for both.

use crate::cloud::Leave;
use crate::routing::{Broken, Farewell};

/// State of the shutdown.
pub(crate) struct Parting {
    cloud: Option<Leave>,
    routers: Farewell,
    cloud_left: bool,
}

impl Parting {
    /// Creates the state; no shutdown has been requested.
    pub(crate) fn new(cloud: Option<Leave>, routers: Farewell) -> Parting {
        Parting { cloud_left: cloud.is_none(), cloud, routers }
    }

    /// Handles SIGTERM: the first starts the shutdown, the second ends it at once.
    pub(crate) fn ask(&mut self) {
        if let Some(cloud) = &self.cloud {
            cloud.ask();
        }
        self.routers.ask();
    }

    /// Waits until the process may exit. Cancel safe: may be dropped and called again.
    ///
    /// # Errors
    /// BGP ended by an internal error.
    pub(crate) async fn over(&mut self) -> Result<(), Broken> {
        if let Some(cloud) = self.cloud.as_mut().filter(|_| !self.cloud_left) {
            tokio::select! {
                broken = self.routers.gone(), if !self.routers.is_asked() => return broken,
                () = cloud.gone() => {}
            }
            self.cloud_left = true;
            // The cloud's lifecycle may end without a request.
            if !self.routers.is_asked() {
                self.routers.ask();
            }
        }
        self.routers.gone().await
    }
}
