//! Monitors the lcores: which of them poll, the generation that each serves, and the link states.
//!
//! The region keeps the last status of a process that died, so an lcore counts as polling only
//! while its tick advances.

use std::time::{Duration, Instant};

use state::text::ARMS;
use tables::region::Region;

use crate::control::report::{Lcore, Link, trouble};
use crate::health::Able;
use crate::plane::spread::Spread;

/// How long the tick counter of a polling lcore may stand still. Less than one second, because BGP
/// has to withdraw routes within a second. Long enough, because a poll loop iterates many thousand
/// times in this period, even if other processes share the CPU, as in the lab.
const POLL_TIMEOUT: Duration = Duration::from_millis(700);

/// How long an lcore may take to serve a committed generation before it counts as late.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Progress of one lcore over time.
struct Tick {
    /// The lcore's tick counter (poll iterations) when it was last read.
    at: u64,
    /// When the counter last advanced.
    moved: Option<Instant>,
    /// Since when the lcore has not served the committed generation.
    behind: Option<Instant>,
}

/// Observed state of the lcores.
pub struct Lcores {
    expected: usize,
    arms: usize,
    ticks: Vec<Tick>,
    busy: Vec<crate::plane::busy::LcoreLoad>,
    spread: Spread,
}

impl Lcores {
    /// Creates the state for this number of configured lcores and arms.
    pub fn new(expected: usize, arms: usize) -> Lcores {
        let (ticks, busy, spread) = (Vec::new(), Vec::new(), Spread::default());
        Lcores { expected, arms: arms.min(ARMS.len()), ticks, busy, spread }
    }

    /// Reads the status of all lcores.
    pub fn observe(&mut self, region: &Region, now: Instant) -> Vec<Lcore> {
        let generation = region.generation();
        let mut lcores = Vec::new();
        self.ticks.resize_with(region.lcores().len(), || Tick { at: 0, moved: None, behind: None });
        self.busy.resize_with(region.lcores().len(), Default::default);
        self.spread.update(region, now);
        for (id, lcore) in region.live_lcores() {
            let (Some(tick), Some(busy)) = (self.ticks.get_mut(id), self.busy.get_mut(id)) else {
                continue;
            };
            let at = lcore.tick();
            if at != tick.at {
                (tick.at, tick.moved) = (at, Some(now));
            }
            let acknowledged = lcore.acknowledged();
            tick.behind = match acknowledged == generation {
                true => None,
                false => tick.behind.or(Some(now)),
            };
            let links = ARMS.iter().take(self.arms).enumerate();
            lcores.push(Lcore {
                id: id as u32,
                polling: tick.moved.is_some_and(|moved| now < moved + POLL_TIMEOUT),
                acknowledged,
                late: tick.behind.is_some_and(|since| now >= since + ACKNOWLEDGE_TIMEOUT),
                links: links
                    .map(|(n, arm)| {
                        let share = self.spread.share(id, n);
                        Link { arm: (*arm).into(), up: lcore.link(n), share }
                    })
                    .collect(),
                busy: busy.update(region, id, now),
            });
        }
        lcores
    }

    /// Returns whether the appliance can take new traffic, by the status of its lcores and the
    /// drain, and whether the plane forwards traffic, which a drain does not change. `generation`
    /// is the committed one; 0 means that nothing has been committed yet.
    pub fn able(
        &self,
        region: &Region,
        lcores: &[Lcore],
        generation: u32,
        draining: bool,
    ) -> (Able, bool) {
        let mut reasons = Vec::new();
        if generation == 0 {
            reasons.push("no tables are committed yet".to_owned());
        }
        if lcores.is_empty() {
            reasons.push("no lcore: the data plane is not running".to_owned());
        } else if lcores.len() < self.expected {
            reasons.push(format!("{} of {} lcores are running", lcores.len(), self.expected));
        }
        for lcore in lcores {
            if !lcore.polling {
                reasons.push(format!("lcore {} does not poll", lcore.id));
            }
            if lcore.late {
                let acknowledged = lcore.acknowledged;
                let id = lcore.id;
                reasons
                    .push(format!("lcore {id} serves generation {acknowledged}, not {generation}"));
            }
        }
        for (number, arm) in ARMS.iter().enumerate().take(self.arms) {
            let up = |lcore: &Lcore| lcore.links.get(number).is_some_and(|link| link.up);
            if lcores.iter().any(|lcore| !up(lcore)) {
                let cause = trouble(region, number).map_or(String::new(), |t| format!(": {t}"));
                reasons.push(format!("the link of {arm} is down{cause}"));
            }
        }
        let forwarding = reasons.is_empty();
        if draining {
            reasons.push("draining (weir drain --undo ends it)".to_owned());
        }
        (Able { able: reasons.is_empty(), reasons }, forwarding)
    }
}
