//! How evenly a NIC spreads packets over the lcores (RSS).

use std::time::{Duration, Instant};

use state::text::ARMS;
use tables::counters::ArmCounter;
use tables::region::Region;

use crate::control::report::{Lcore, NicReport};

/// Length of the measured interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// Minimum number of packets in an interval for shares to be computed. Fewer may come from a single
/// flow, which RSS sends to one lcore.
const MIN_PACKETS: u64 = 10_000;

/// Packets that an lcore took from the NIC of each arm.
type Received = [u64; ARMS.len()];

/// Shares of the lcores in the packets of each arm, updated every ten seconds.
#[derive(Default)]
pub struct Spread {
    since: Option<(Instant, Vec<Received>)>,
    shares: Vec<[Option<f64>; ARMS.len()]>,
}

impl Spread {
    /// Updates the shares if an interval has passed.
    pub fn update(&mut self, region: &Region, now: Instant) {
        if self.since.as_ref().is_some_and(|(at, _)| now < *at + INTERVAL) {
            return;
        }
        let counters = region.counters();
        let counts: Vec<Received> = counters
            .pages()
            .map(|page| std::array::from_fn(|arm| page.arm_count(arm as u8, ArmCounter::RxPackets)))
            .collect();
        if let Some((_, before)) = &self.since {
            self.shares = shares(before, &counts);
        }
        self.since = Some((now, counts));
    }

    /// Returns the share of an lcore in the packets of an arm over the last interval, 0 to 1;
    /// `None` if too few packets arrived.
    pub fn share(&self, lcore: usize, arm: usize) -> Option<f64> {
        *self.shares.get(lcore)?.get(arm)?
    }
}

fn shares(before: &[Received], now: &[Received]) -> Vec<[Option<f64>; ARMS.len()]> {
    let advanced: Vec<Received> = before
        .iter()
        .zip(now)
        .map(|(before, now)| std::array::from_fn(|arm| now[arm].saturating_sub(before[arm])))
        .collect();
    let all: Received = std::array::from_fn(|arm| advanced.iter().map(|lcore| lcore[arm]).sum());
    let share = |packets: u64, all: u64| (all >= MIN_PACKETS).then(|| packets as f64 / all as f64);
    advanced.iter().map(|lcore| std::array::from_fn(|arm| share(lcore[arm], all[arm]))).collect()
}

/// Returns a finding for each arm of which an lcore receives at least twice its share.
pub fn findings(lcores: &[Lcore], nics: &[NicReport]) -> Vec<String> {
    let uneven = |nic: &NicReport| {
        let queues = f64::from(nic.rx_queues);
        let share = |lcore: &Lcore| lcore.links.iter().find(|link| link.arm == nic.arm)?.share;
        let shares = lcores.iter().filter_map(|lcore| Some((lcore.id, share(lcore)?)));
        let (lcore, most) = shares.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (queues > 1.0 && most * queues >= 2.0).then(|| {
            format!(
                "lcore {lcore} receives {:.0} % of the packets of {}, at least twice its share of \
                 {:.0} %: the NIC spreads packets by their outer addresses and ports, which vary \
                 too little, for example with one gateway node and one source port, or with a few \
                 large flows; more lcores do not help: add appliances behind the gateway, let it \
                 vary the outer source port, or use a NIC that hashes inner headers",
                most * 100.0,
                nic.arm,
                100.0 / queues
            )
        })
    };
    nics.iter().filter_map(uneven).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::report::Link;

    #[test]
    fn shares_are_those_of_the_interval() {
        let before = [[5, 0], [1_000_000, 0]];
        let now = [[9_005, 0], [1_001_000, 9_999]];
        assert_eq!(shares(&before, &now), [[Some(0.9), None], [Some(0.1), None]]);
    }

    #[test]
    fn an_lcore_with_twice_its_share_is_a_finding() {
        let lcore = |id, share| {
            let link = Link { arm: "ingress".into(), up: true, share };
            Lcore { id, links: vec![link], ..Lcore::default() }
        };
        let nic =
            |rx_queues| NicReport { arm: "ingress".into(), rx_queues, ..NicReport::default() };
        let found = |shares: &[Option<f64>]| {
            let lcores: Vec<Lcore> =
                (0..).zip(shares).map(|(id, share)| lcore(id, *share)).collect();
            findings(&lcores, &[nic(shares.len() as u16)])
        };
        let [finding] = found(&[Some(0.1), Some(0.6), Some(0.2), Some(0.1)]).try_into().unwrap();
        assert!(
            finding.starts_with("lcore 1 receives 60 % of the packets of ingress"),
            "{finding}"
        );
        assert!(finding.contains("its share of 25 %"), "{finding}");
        assert!(finding.contains("more lcores do not help: add appliances"), "{finding}");
        assert!(found(&[Some(0.4), Some(0.2), Some(0.2), Some(0.2)]).is_empty());
        assert_eq!(found(&[Some(1.0), Some(0.0)]).len(), 1);
        assert!(found(&[None, None]).is_empty() && found(&[Some(1.0)]).is_empty());
    }
}
