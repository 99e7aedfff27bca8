//! Watches the lcores' status lines: who polls, which generation each serves, whether links are up.
//!
//! A process that died leaves its last words in the region, so an lcore counts as polling only
//! while its tick moves.

use std::time::{Duration, Instant};

use state::words::ARMS;
use tables::region::Region;

use crate::control::report::{Lcore, Link};
use crate::health::Able;

/// How long a tick may stand still: who announces addresses has to withdraw them within a second.
/// Poll loops turn many thousand times in it, even where they share their CPU with everything else
/// as in the lab.
const STILL: Duration = Duration::from_millis(700);

/// How long an lcore may take to serve a committed generation before that counts as a fault.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);

struct Tick {
    at: u64,
    moved: Option<Instant>,
    behind: Option<Instant>,
}

/// What was seen of each lcore so far.
pub struct Lcores {
    expected: usize,
    arms: usize,
    ticks: Vec<Tick>,
    busy: Vec<crate::plane::busy::Busy>,
}

impl Lcores {
    /// For so many configured lcores and arms.
    pub fn new(expected: usize, arms: usize) -> Lcores {
        Lcores { expected, arms: arms.min(ARMS.len()), ticks: Vec::new(), busy: Vec::new() }
    }

    /// Looks at all of them.
    pub fn look(&mut self, region: &Region, now: Instant) -> Vec<Lcore> {
        let generation = region.generation();
        let mut lcores = Vec::new();
        self.ticks.resize_with(region.lcores().len(), || Tick { at: 0, moved: None, behind: None });
        self.busy.resize_with(region.lcores().len(), Default::default);
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
                polling: tick.moved.is_some_and(|moved| now < moved + STILL),
                acknowledged,
                late: tick.behind.is_some_and(|since| now >= since + ACKNOWLEDGE),
                links: links
                    .map(|(n, arm)| Link { arm: (*arm).into(), up: lcore.link(n) })
                    .collect(),
                busy: busy.look(region, id, now),
            });
        }
        lcores
    }

    /// Whether traffic may come, from what the last look saw. `generation` is the committed one;
    /// 0 means that nothing was committed yet. Tells also whether the plane takes traffic: all of
    /// that but a drain.
    pub fn able(&self, lcores: &[Lcore], generation: u32, draining: bool) -> (Able, bool) {
        let mut reasons = Vec::new();
        if generation == 0 {
            reasons.push("no tables are committed yet".to_owned());
        }
        if lcores.is_empty() {
            reasons.push("no lcore: the fastpath is not running".to_owned());
        } else if lcores.len() < self.expected {
            reasons.push(format!("{} of {} lcores are there", lcores.len(), self.expected));
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
                reasons.push(format!("the link of {arm} is down"));
            }
        }
        let carries = reasons.is_empty();
        if draining {
            reasons.push("draining (weir drain --undo ends it)".to_owned());
        }
        (Able { able: reasons.is_empty(), reasons }, carries)
    }
}
