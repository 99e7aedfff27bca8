//! Rounds of objects in simulated time.

use std::time::Duration;

use private_link::object::Object;
use private_link::time::Time;
use private_link::{ArmClients, Next, Role, RoundContext};

use super::{Azure, once};

#[path = "../object_driver/mod.rs"]
mod object_driver;

pub use object_driver::{ObjectDriver, settings};

impl ObjectDriver {
    /// Runs a round; returns `None` if the process ended during the round.
    pub fn round(&mut self, azure: &Azure, role: &Role) -> Option<Next> {
        let (now, settings) = (Time(azure.state().now()), settings());
        let clients = ArmClients { service: azure, endpoint: azure };
        once(self.run_round(&RoundContext {
            now,
            clients,
            pause: azure,
            settings: &settings,
            role,
        }))
    }

    /// Runs rounds as they are due, until this number of seconds has passed. A process that ends is
    /// started again after 3 s.
    pub fn run_for(&mut self, azure: &Azure, seconds: u64) {
        let end = azure.state().now() + seconds;
        let mut rounds = 0;
        while !self.gone && self.due <= end {
            azure.state().pass(self.due);
            if self.round(azure, &Role::Owner).is_none() {
                self.due = azure.state().now() + 3;
            }
            rounds += 1;
            assert!(rounds < 2_000, "the rounds never settle: {:#?}", self.object.status);
        }
        azure.state().pass(end);
    }

    /// Returns the delay until the next round is due.
    pub fn pause(&self, azure: &Azure) -> Duration {
        Duration::from_secs(self.due - azure.state().now())
    }

    /// Requests the deletion of the object.
    pub fn delete(&mut self, azure: &Azure) {
        self.delete_at(azure.state().now());
    }

    /// Changes the desired state, and makes a round due.
    pub fn change(&mut self, azure: &Azure, change: impl FnOnce(&mut Object)) {
        change(&mut self.object);
        self.object.generation += 1;
        self.due = azure.state().now();
    }
}
