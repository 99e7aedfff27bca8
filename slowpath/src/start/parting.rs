//! How slowpath goes for good: the cloud is left, and routers are told. Whichever of the two is
//! done first waits for the other.

use crate::cloud::Leave;
use crate::routing::{Broken, Farewell};

/// What is left before the process ends.
pub(crate) struct Parting {
    cloud: Option<Leave>,
    routers: Farewell,
    cloud_left: bool,
}

impl Parting {
    /// Nobody has asked for it yet.
    pub(crate) fn new(cloud: Option<Leave>, routers: Farewell) -> Parting {
        Parting { cloud_left: cloud.is_none(), cloud, routers }
    }

    /// SIGTERM came: the first has the appliance leave, the second ends it at once.
    pub(crate) fn ask(&mut self) {
        if let Some(cloud) = &self.cloud {
            cloud.ask();
        }
        self.routers.ask();
    }

    /// Ends when the process may end. May be dropped and called again.
    ///
    /// # Errors
    /// BGP ended by itself.
    pub(crate) async fn over(&mut self) -> Result<(), Broken> {
        if let Some(cloud) = self.cloud.as_mut().filter(|_| !self.cloud_left) {
            tokio::select! {
                broken = self.routers.gone(), if !self.routers.is_asked() => return broken,
                () = cloud.gone() => {}
            }
            self.cloud_left = true;
            // The cloud may have had its own reasons.
            if !self.routers.is_asked() {
                self.routers.ask();
            }
        }
        self.routers.gone().await
    }
}
