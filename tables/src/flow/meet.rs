//! Finds a flow on the path that it goes by, by what stands beside the path, without its entry.

#[cfg(not(target_arch = "bpf"))]
use super::Hit;
use super::entry::Words;
use super::front::Front;
use super::path::{Forward, GatewayLeg, PATH_ONE_WAY, Stored};
use super::{Flows, tcp};
use crate::atomic::Ordering::Relaxed;
use crate::record::{Mode, NONE};
use crate::rows::Numbered;
use packet::flow::{FlowKey, Side};
use packet::geneve::OWN_OPTIONS;

/// A path that a packet's flow may go by, asked for.
pub struct Likely<'r> {
    path: Option<&'r Stored>,
    front: Option<&'r Front>,
}

impl Likely<'_> {
    /// Whether there is such a path at all.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.path.is_some() && self.front.is_some()
    }
}

/// A flow met on its path: a consistent copy of what was said there.
pub struct Met<'r> {
    front: &'r Front,
    /// What becomes of packets from the initiator.
    pub forward: Forward,
    /// As [`Hit::digest`] of the front entry.
    pub digest: u32,
    /// The end of the front key that began the flow.
    pub initiator: Side,
    tcp: u32,
}

impl Met<'_> {
    /// Whether a TCP segment with these flags (the byte of RFC 9293 3.1), or a packet of another
    /// protocol, which has none, changes nothing of what is known of the flow, and does not reopen
    /// a connection.
    #[inline(always)]
    pub fn stays(&self, flags: u8, from_initiator: bool) -> bool {
        let one_way = self.forward.flags & PATH_ONE_WAY != 0;
        tcp::stays(self.tcp, flags, from_initiator, one_way)
    }
}

/// An answer's flow, met on its path.
pub struct Answered<'r> {
    front: &'r Front,
    /// The end of the front key that began the flow.
    pub initiator: Side,
    /// Whether the flow's initiator sent the packet: a backend that inspects returns those as well.
    pub from_initiator: bool,
    tcp: u32,
}

impl Answered<'_> {
    /// As [`Met::stays`]; `forward` is the flow's.
    #[inline(always)]
    pub fn stays(&self, forward: &Forward, flags: u8) -> bool {
        let one_way = forward.flags & PATH_ONE_WAY != 0;
        tcp::stays(self.tcp, flags, self.from_initiator, one_way)
    }
}

/// All of a flow that an answer needs, with options of the usual length or none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// What becomes of packets from the initiator.
    pub forward: Forward,
    /// Where the flow came from.
    pub gateway: GatewayLeg,
    /// The gateway's options, if `gateway.option_len` says that there are some.
    pub options: [u64; OWN_OPTIONS / 8],
    /// The key of the gateway's side.
    pub front: FlowKey,
}

impl<'r> Flows<'r> {
    /// Begins [`Flows::meet`] by reading a word of each line: both may be in no cache, and a
    /// processor goes on until somebody wants to know what was read. [`NONE`](crate::record::NONE)
    /// is no path.
    #[inline(always)]
    pub fn likely(&self, path: u32) -> Likely<'r> {
        let (path, front) = (self.paths.row(path), self.fronts.row(path));
        if let (Some(path), Some(front)) = (path, front) {
            let _ = (path.tcp.load(Relaxed), front.scope.load(Relaxed));
        }
        Likely { path, front }
    }

    /// The flow whose front key is `key`, if it goes by this path now.
    #[inline(always)]
    pub fn meet(&self, likely: &Likely<'r>, key: &FlowKey) -> Option<Met<'r>> {
        let (path, front, wanted) = (likely.path?, likely.front?, &Words::of(key));
        let copy = |path: &Stored| {
            let (digest, high) = (front.digest.load(Relaxed), front.high.load(Relaxed));
            (front.differs(wanted), path.forward(), digest, high, path.tcp.load(Relaxed))
        };
        let (differs, forward, digest, high, tcp) = path.consistent(copy).ok()?;
        if differs != 0 {
            return None;
        }
        let initiator = if high == 1 { Side::High } else { Side::Low };
        Some(Met { front, forward, digest, initiator, tcp })
    }

    /// The flow of a packet from a backend, if it goes by this path now; `side` of `key` sent it.
    /// `PLAIN`: the packet came plain, and its key is the one of the backend's side. Else it came
    /// in a tunnel that carries the scope, and has the front key. Fills in `out`.
    ///
    /// None also where the flow's leg or options are not usual, and where the responder's leg is
    /// another: [`Flows::find`] and [`Flows::answer`] decide on these.
    #[inline(always)]
    pub fn meet_answer<const PLAIN: bool>(
        &self,
        likely: &Likely<'r>,
        (key, side): (&FlowKey, Side),
        out: &mut Usual,
    ) -> Option<Answered<'r>> {
        let (path, front) = (likely.path?, likely.front?);
        let copy = |path: &Stored| {
            out.forward = path.forward();
            out.gateway = path.gateway();
            path.usual_options(&mut out.options);
            out.front = front.key();
            let (back, owns) = (path.back.load(Relaxed), path.owns.load(Relaxed));
            (front.high.load(Relaxed), path.tcp.load(Relaxed), back, owns)
        };
        let (high, tcp, back, owns) = path.consistent(copy).ok()?;
        let initiator = if high == 1 { Side::High } else { Side::Low };
        let translated = PLAIN && out.forward.is_nat();
        let (from_initiator, same) = if translated {
            (false, out.is_answered_by(key, side))
        } else {
            // Without a back entry, plain packets are another flow's, but for those of a client
            // that is plain itself.
            let from_initiator = initiator == side;
            let own = back != NONE || out.front.scope == key.scope && !from_initiator;
            let scoped = FlowKey { scope: out.front.scope, ..*key };
            let same = if PLAIN { own && scoped == out.front } else { *key == out.front };
            (from_initiator, same && out.forward.mode == Mode::Tunnel as u8)
        };
        let other_leg = !from_initiator && out.forward.has_responder_leg() && owns != NONE;
        let len = usize::from(out.gateway.option_len);
        let usual = (len == 0 || len == OWN_OPTIONS) && !other_leg;
        (same && usual).then_some(Answered { front, initiator, from_initiator, tcp })
    }

    /// As [`Flows::touch`], of a flow whose answer was met.
    #[inline(always)]
    pub fn touch_answered(&self, met: &Answered<'_>, forward: &Forward, now_s: u32) {
        self.touch_front(met.front, forward, now_s);
    }

    /// As [`Flows::touch`], of a flow that was met.
    #[inline(always)]
    pub fn touch_met(&self, met: &Met<'_>, now_s: u32) {
        self.touch_front(met.front, &met.forward, now_s);
    }

    /// Sets the second of the front entry, once a second.
    #[inline(always)]
    fn touch_front(&self, front: &Front, forward: &Forward, now_s: u32) {
        if front.seen_s.load(Relaxed) != now_s {
            front.seen_s.store(now_s, Relaxed);
            if let Some(entry) = self.index.entry(forward.front) {
                entry.last_seen_s.store(now_s, Relaxed);
            }
        }
    }

    /// Writes a path's front anew from its front entry, for recovery.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn face(&self, id: u32, key: &FlowKey, hit: &Hit) {
        if let Some(front) = self.fronts.row(id) {
            front.set(key, hit.initiator(), hit.digest, hit.last_seen_s);
        }
    }
}

impl Usual {
    /// Whether a translated flow's backend sent the packet with this key in the plain scope.
    #[inline(always)]
    fn is_answered_by(&self, key: &FlowKey, side: Side) -> bool {
        let (forward, (src, sport)) = (&self.forward, key.end(side));
        let (dst, dport) = key.end(side.other());
        key.proto == u32::from(forward.proto)
            && src == forward.backend_addr
            && sport == forward.backend_port
            && dst == *forward.nat_addr()
            && dport == forward.nat_port
    }
}
