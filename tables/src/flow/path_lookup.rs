//! Lookup of a flow through its path and front record, without its entry.

#[cfg(not(target_arch = "bpf"))]
use super::Hit;
use super::entry::KeyWords;
use super::front::Front;
use super::path::{Forward, GatewayLeg, PATH_ONE_WAY, PathRecord};
use super::{Flows, tcp};
use crate::atomic::Ordering::Relaxed;
use crate::record::{Mode, NONE};
use crate::rows::Numbered;
use packet::flow::{FlowKey, Side};
use packet::geneve::OWN_OPTIONS;

/// A candidate path for a packet's flow, whose cache lines are being fetched.
pub struct PathCandidate<'r> {
    path: Option<&'r PathRecord>,
    front: Option<&'r Front>,
}

impl PathCandidate<'_> {
    /// Returns whether the path number is valid.
    #[inline(always)]
    pub fn is_valid(&self) -> bool {
        self.path.is_some() && self.front.is_some()
    }
}

/// A flow found through its path: a consistent copy.
pub struct PathHit<'r> {
    front: &'r Front,
    /// How packets from the initiator are forwarded.
    pub forward: Forward,
    /// Digest of the gateway leg, as [`Hit::digest`] of the front entry.
    pub digest: u32,
    /// End of the front key that is the initiator.
    pub initiator: Side,
    tcp: u32,
}

impl PathHit<'_> {
    /// Returns whether a TCP segment with these flags (the flags byte of RFC 9293 §3.1), or a
    /// packet of another protocol with flags 0, leaves the flow's state unchanged and does not
    /// reopen a connection.
    #[inline(always)]
    pub fn keeps_state(&self, flags: u8, from_initiator: bool) -> bool {
        let one_way = self.forward.flags & PATH_ONE_WAY != 0;
        tcp::keeps_state(self.tcp, flags, from_initiator, one_way)
    }
}

/// The flow of a reply, found through its path.
pub struct ReplyHit<'r> {
    front: &'r Front,
    /// End of the front key that is the initiator.
    pub initiator: Side,
    /// Whether the flow's initiator sent the packet: inspecting backends return such packets as
    /// well.
    pub from_initiator: bool,
    tcp: u32,
}

impl ReplyHit<'_> {
    /// As [`PathHit::keeps_state`]; `forward` is the flow's [`ReplyPath::forward`].
    #[inline(always)]
    pub fn keeps_state(&self, forward: &Forward, flags: u8) -> bool {
        let one_way = forward.flags & PATH_ONE_WAY != 0;
        tcp::keeps_state(self.tcp, flags, self.from_initiator, one_way)
    }
}

/// Everything that a reply needs of a flow whose options have the usual length or are absent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReplyPath {
    /// How packets from the initiator are forwarded.
    pub forward: Forward,
    /// Gateway leg of the flow.
    pub gateway: GatewayLeg,
    /// Options of the gateway; valid if `gateway.option_len` is not 0.
    pub options: [u64; OWN_OPTIONS / 8],
    /// Key of the gateway's side.
    pub front: FlowKey,
}

impl<'r> Flows<'r> {
    /// Returns the key of the front entry of a path's flow, and the end that is the initiator;
    /// `None` if the record is free or being changed.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn front_ends(&self, path: u32) -> Option<(FlowKey, Side)> {
        let (path, front) = (self.paths.row(path)?, self.fronts.row(path)?);
        let copy = |_: &PathRecord| (front.key(), front.high.load(Relaxed));
        let (key, high) = path.consistent(copy).ok()?;
        Some((key, if high == 1 { Side::High } else { Side::Low }))
    }

    /// Returns the key of the front entry of a path's flow, and the end that is the initiator;
    /// `None` if the flow has ended or is being changed. A region in a file has no front records.
    #[cfg(not(target_arch = "bpf"))]
    pub fn front_ends(&self, path: u32) -> Option<(FlowKey, Side)> {
        let forward = self.paths.row(path)?.consistent(PathRecord::forward).ok()?;
        let (key, hit) = self.index.read(forward.front)?;
        (hit.path == path && hit.is_front()).then(|| (key, hit.initiator()))
    }

    /// Begins [`Flows::find_by_path`] by reading a word of the path record and of the front record.
    /// The processor does not wait for a value before it is used, so it fetches both cache lines in
    /// parallel. The result is invalid for [`NONE`](crate::record::NONE).
    #[inline(always)]
    pub fn candidate(&self, path: u32) -> PathCandidate<'r> {
        let (path, front) = (self.paths.row(path), self.fronts.row(path));
        if let (Some(path), Some(front)) = (path, front) {
            let _ = (path.tcp.load(Relaxed), front.scope.load(Relaxed));
        }
        PathCandidate { path, front }
    }

    /// Returns the flow with front key `key` if its path is the candidate.
    #[inline(always)]
    pub fn find_by_path(
        &self,
        candidate: &PathCandidate<'r>,
        key: &FlowKey,
    ) -> Option<PathHit<'r>> {
        let (path, front, expected) = (candidate.path?, candidate.front?, &KeyWords::of(key));
        let copy = |path: &PathRecord| {
            let (digest, high) = (front.digest.load(Relaxed), front.high.load(Relaxed));
            (front.differs(expected), path.forward(), digest, high, path.tcp.load(Relaxed))
        };
        let (differs, forward, digest, high, tcp) = path.consistent(copy).ok()?;
        if differs != 0 {
            return None;
        }
        let initiator = if high == 1 { Side::High } else { Side::Low };
        Some(PathHit { front, forward, digest, initiator, tcp })
    }

    /// Returns the flow of a packet from a backend if its path is the candidate, and fills `out`.
    /// The end `side` of `key` sent the packet. With `PLAIN`, the packet arrived without a tunnel
    /// and has the key of the backend's side. Otherwise it arrived in a tunnel that carries the
    /// scope, and has the front key.
    ///
    /// Also returns `None` if the flow has options that are not [`OWN_OPTIONS`] bytes long, or if
    /// the packet returns by a leg of the responder's own: such a flow needs [`Flows::find`] and
    /// [`Flows::answer`].
    #[inline(always)]
    pub fn find_reply_by_path<const PLAIN: bool>(
        &self,
        candidate: &PathCandidate<'r>,
        (key, side): (&FlowKey, Side),
        out: &mut ReplyPath,
    ) -> Option<ReplyHit<'r>> {
        let (path, front) = (candidate.path?, candidate.front?);
        let copy = |path: &PathRecord| {
            out.forward = path.forward();
            out.gateway = path.gateway();
            path.inline_options(&mut out.options);
            out.front = front.key();
            let (back, owns) = (path.back.load(Relaxed), path.owns.load(Relaxed));
            (front.high.load(Relaxed), path.tcp.load(Relaxed), back, owns)
        };
        let (high, tcp, back, owns) = path.consistent(copy).ok()?;
        let initiator = if high == 1 { Side::High } else { Side::Low };
        let (from_initiator, same) = if PLAIN && out.forward.is_nat() {
            (false, out.is_reply_key(key, side))
        } else {
            // A plain packet belongs to this flow if the flow has a back entry, or if the packet is
            // a reply and the flow itself has the plain scope.
            let from_initiator = initiator == side;
            let accepts_plain = back != NONE || out.front.scope == key.scope && !from_initiator;
            let scoped = FlowKey { scope: out.front.scope, ..*key };
            let same = if PLAIN { accepts_plain && scoped == out.front } else { *key == out.front };
            (from_initiator, same && out.forward.mode == Mode::Tunnel as u8)
        };
        let other_leg = !from_initiator && out.forward.has_responder_leg() && owns != NONE;
        let len = usize::from(out.gateway.option_len);
        let is_common = (len == 0 || len == OWN_OPTIONS) && !other_leg;
        (same && is_common).then_some(ReplyHit { front, initiator, from_initiator, tcp })
    }

    /// As [`Flows::touch`], for a flow found by [`Flows::find_reply_by_path`].
    #[inline(always)]
    pub fn touch_reply(&self, hit: &ReplyHit<'_>, forward: &Forward, now_s: u32) {
        self.touch_front(hit.front, forward, now_s);
    }

    /// As [`Flows::touch`], for a flow found by [`Flows::find_by_path`].
    #[inline(always)]
    pub fn touch_path_hit(&self, hit: &PathHit<'_>, now_s: u32) {
        self.touch_front(hit.front, &hit.forward, now_s);
    }

    /// Updates the front entry's time of last use, at most once per second.
    #[inline(always)]
    fn touch_front(&self, front: &Front, forward: &Forward, now_s: u32) {
        if front.last_seen_s.load(Relaxed) != now_s {
            front.last_seen_s.store(now_s, Relaxed);
            if let Some(entry) = self.index.entry(forward.front) {
                entry.last_seen_s.store(now_s, Relaxed);
            }
        }
    }

    /// Rewrites a path's front record from its front entry, for recovery.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn set_front(&self, id: u32, key: &FlowKey, hit: &Hit) {
        if let Some(front) = self.fronts.row(id) {
            front.set(key, hit.initiator(), hit.digest, hit.last_seen_s);
        }
    }
}

impl ReplyPath {
    /// Returns whether the backend of this NAT flow sent a packet with this key in the plain scope.
    #[inline(always)]
    fn is_reply_key(&self, key: &FlowKey, side: Side) -> bool {
        let (forward, (src, sport)) = (&self.forward, key.end(side));
        let (dst, dport) = key.end(side.other());
        key.proto == u32::from(forward.proto)
            && src == forward.backend_addr
            && sport == forward.backend_port
            && dst == *forward.nat_addr()
            && dport == forward.nat_port
    }
}
