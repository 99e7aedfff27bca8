//! Expiry of idle flows: each lcore examines a few records of its share at a time.

use super::path::{Forward, GatewayLeg, PATH_ONE_WAY, PathError, PathRecord};
use super::tcp::{self, TcpState};
use super::{EndedFlow, Entry, Flows, Hit, Index};
use crate::atomic::Ordering::Relaxed;
use crate::record::{NONE, Timeouts};
use packet::flow::{FlowKey, Side};
use packet::ip::{TCP, UDP};

/// A flow for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Key on the gateway's side.
    pub front: FlowKey,
    /// End of `front` that is the initiator.
    pub initiator: Side,
    /// Key on the backend's side, if it has an entry of its own.
    pub back: Option<FlowKey>,
    /// How the flow's packets are forwarded.
    pub forward: Forward,
    /// Gateway leg of the flow.
    pub gateway: GatewayLeg,
    /// TCP state, for TCP flows.
    pub tcp: Option<TcpState>,
    /// Time of last use by either side, in seconds of the region's clock.
    pub last_seen_s: u32,
}

/// Returns the seconds since `then_s`; 0 if `then_s` is ahead, since the clock of another lcore may
/// be.
fn since(now_s: u32, then_s: u32) -> u32 {
    let idle = now_s.wrapping_sub(then_s);
    if idle > u32::MAX / 2 { 0 } else { idle }
}

/// Idle timeout of a path in seconds.
fn limit_s(path: &PathRecord, forward: &Forward, timeouts: &Timeouts) -> u32 {
    let one_way = forward.flags & PATH_ONE_WAY != 0;
    let own_or = |limit_s| match path.idle_s.load(Relaxed) {
        0 => limit_s,
        own_s => own_s,
    };
    match forward.proto {
        TCP => match TcpState::of(path.tcp.load(Relaxed), one_way) {
            TcpState::Embryonic | TcpState::Reopened => timeouts.tcp_embryonic_s,
            TcpState::Closed => timeouts.tcp_closed_s,
            TcpState::Established | TcpState::Closing | TcpState::Reset => {
                own_or(timeouts.tcp_established_s)
            }
        },
        proto => {
            let limit_s = own_or(if proto == UDP { timeouts.udp_s } else { timeouts.other_s });
            match tcp::is_unconfirmed(path.tcp.load(Relaxed)) {
                true => limit_s.min(timeouts.udp_embryonic_s),
                false => limit_s,
            }
        }
    }
}

impl Index<'_> {
    fn idle_s(&self, i: u32, now_s: u32) -> u32 {
        self.entry(i).map_or(u32::MAX, |e| since(now_s, e.last_seen_s.load(Relaxed)))
    }
}

impl Flows<'_> {
    /// Examines the next `n` records of this lcore's share (record numbers congruent to `lcore`
    /// modulo `lcores`) and ends flows that exceeded their idle timeout. Returns the number of
    /// ended flows. Marks the scopes of the other flows as in use.
    ///
    /// The caller keeps `cursor`, the position in the share, which starts at 0. `on_end` is called
    /// for each ended flow.
    #[expect(clippy::too_many_arguments, reason = "each argument is plain")]
    pub fn sweep(
        &self,
        cursor: &mut u32,
        n: u32,
        lcore: u32,
        lcores: u32,
        now_s: u32,
        timeouts: &Timeouts,
        mut on_end: impl FnMut(&EndedFlow),
    ) -> u32 {
        let lcores = lcores.max(1);
        let share = self.capacity().saturating_sub(lcore % lcores).div_ceil(lcores);
        let mut ended = 0;
        for _ in 0..n.min(share) {
            *cursor = if *cursor >= share { 0 } else { *cursor };
            let id = *cursor * lcores + lcore % lcores;
            *cursor += 1;
            let Some(path) = self.paths.get(id as usize) else { continue };
            let Ok(forward) = path.consistent(PathRecord::forward) else { continue };
            let idle = |forward: &Forward| self.is_idle(path, forward, now_s, timeouts);
            if !idle(&forward) {
                // `is_idle` has just read the entry's line. If the entry belongs to another flow by
                // now, that flow is live as well.
                let scope = self.index.entry(forward.front).map_or(0, Entry::scope);
                self.scopes.keep_alive(scope, now_s);
                continue;
            }
            // `end` checks again: the flow may have become active, or the record may belong to
            // another flow.
            if let Some(gone) = self.end(id, || idle(&path.forward())) {
                on_end(&gone);
                ended += 1;
            }
        }
        ended
    }

    fn is_idle(
        &self,
        path: &PathRecord,
        forward: &Forward,
        now_s: u32,
        timeouts: &Timeouts,
    ) -> bool {
        let limit_s = limit_s(path, forward, timeouts);
        // An active flow is usually seen from both sides, so the back entry's line is rarely
        // needed.
        if self.index.idle_s(forward.front, now_s) < limit_s {
            return false;
        }
        let back = path.back.load(Relaxed);
        back == NONE || self.index.idle_s(back, now_s) >= limit_s
    }

    /// Returns a flow for display; `None` if the record is free or being changed.
    pub fn snapshot(&self, path: u32) -> Option<Snapshot> {
        let record = self.paths.get(path as usize)?;
        let copy = |p: &PathRecord| (p.forward(), p.gateway(), p.back.load(Relaxed));
        let (forward, gateway, back) = record.consistent(copy).ok()?;
        let of_path = |(_, hit): &(FlowKey, Hit)| hit.path == path;
        let (front, hit) = self.index.read(forward.front).filter(of_path)?;
        let back = self.index.read(back).filter(of_path);
        let hits = [Some(hit), back.map(|(_, hit)| hit)].into_iter().flatten();
        let one_way = forward.flags & PATH_ONE_WAY != 0;
        Some(Snapshot {
            front,
            initiator: hit.initiator(),
            back: back.map(|(key, _)| key),
            // Without the responder's digest, which would be displayed as an address.
            forward: forward.without_responder(),
            gateway,
            tcp: (forward.proto == TCP).then(|| TcpState::of(record.tcp.load(Relaxed), one_way)),
            last_seen_s: hits.map(|hit| hit.last_seen_s).max().unwrap_or(0),
        })
    }

    /// Returns the number of flows for which packets are still expected: all except reset ones,
    /// which are kept because the reset may be spoofed. Walks the table.
    pub fn count_not_reset(&self) -> u32 {
        let counts = |path: &&PathRecord| path.is_live() && !tcp::is_reset(path.tcp.load(Relaxed));
        self.paths.iter().filter(counts).count() as u32
    }

    /// Calls `mark` with the backend of every live flow, so that ids in use are not reclaimed.
    pub fn each_backend(&self, mut mark: impl FnMut(u32)) {
        for path in self.paths.iter().filter(|path| path.is_live()) {
            match path.consistent(PathRecord::forward) {
                Ok(forward) => mark(forward.backend),
                Err(PathError::Gone) => {}
                // The copy may be torn, but marking a wrong id only delays its reclamation. The
                // backend of a live path does not change, so its id is marked in any case.
                Err(PathError::Busy) => mark(path.forward().backend),
            }
        }
    }
}
