//! The rings of each lcore: commands to it, and events from it.

use tables::command::{Command, Event};
use tables::region::Region;
use tables::ring::{Consumer, Message, Producer, SharedSlots};

/// Maximum number of events taken from one lcore per call, to bound the time in the control loop.
const EVENTS_PER_LCORE: usize = 1024;

struct LcoreRings<'r> {
    commands: Producer<SharedSlots<'r>>,
    events: Consumer<SharedSlots<'r>>,
}

/// A pair of rings for each lcore that the region has capacity for.
pub struct Rings<'r> {
    lcores: Vec<LcoreRings<'r>>,
    /// Number of messages from lcores that are no events.
    invalid: u64,
}

impl<'r> Rings<'r> {
    /// Attaches to the rings at the positions where the previous slowpath stopped.
    pub fn attach(region: &'r Region) -> Rings<'r> {
        let lcores = (0..region.sizes().lcores).filter_map(|lcore| {
            Some(LcoreRings {
                commands: Producer::attach(SharedSlots::commands(region, lcore)?),
                events: Consumer::attach(SharedSlots::events(region, lcore)?),
            })
        });
        Rings { lcores: lcores.collect(), invalid: 0 }
    }

    /// Sends a command to one lcore. Returns false if its ring is full, or if the region has no
    /// such lcore.
    pub fn send(&mut self, lcore: usize, command: &Command) -> bool {
        self.lcores.get_mut(lcore).is_some_and(|rings| rings.commands.push(&command.encode()))
    }

    /// Takes the lcores' events, each with the index of its lcore.
    pub fn take(&mut self) -> Vec<(u32, Event)> {
        let mut all = Vec::new();
        for (lcore, rings) in self.lcores.iter_mut().enumerate() {
            let mut batch = [Message::default(); 64];
            for _ in 0..EVENTS_PER_LCORE / batch.len() {
                let count = rings.events.pop_into(&mut batch);
                for message in &batch[..count] {
                    match Event::decode(message) {
                        Ok(event) => all.push((lcore as u32, event)),
                        Err(_) => self.invalid += 1,
                    }
                }
                if count < batch.len() {
                    break;
                }
            }
        }
        all
    }

    /// Returns the number of messages that are no events, plus the number of invalid ring
    /// positions; zero unless the data plane is defective.
    pub fn invalid(&self) -> u64 {
        let of_lcore = |rings: &LcoreRings<'_>| {
            rings.commands.invalid_indices() + rings.events.invalid_indices()
        };
        self.invalid + self.lcores.iter().map(of_lcore).sum::<u64>()
    }
}
