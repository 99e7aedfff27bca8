//! The path record: how a flow is delivered, and how its answers go back. Three cache lines.
//!
//! ```text
//!   0  seq, tcp   | Forward: NAT and backend addresses, service, backend, mode   line 0
//!  64  GatewayLeg: where the flow came from                                      line 1
//! 128  gateway options, 48 bytes | back entry, what it owns, slab, idle time     line 2
//! ```
//! A seqlock guards all three (`seq`), except for the TCP state, which is an atomic of its own.
//! Options of more than 48 bytes lie in a slab, and so does the responder's leg where it differs.

mod held;

use super::entry::{LIVE, WRITING};
use super::step::step;
use super::words::{self, MAX_OPTIONS, OptionRoom, Options, Words as _};
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence, spin_loop};
use crate::record::{Mode, Record};
use crate::rows::{Numbered, Rows, Shared};
use packet::addr::Addr;

/// [`GatewayLeg::tunnel`] of a flow that came in plain.
pub const NO_TUNNEL: u8 = u8::MAX;
/// [`Forward::mode`] of a flow that is returned to its gateway; else it is a
/// [`Mode`](crate::record::Mode).
pub const PATH_RETURN: u8 = 0;
/// [`Forward::flags`]: answers are never seen here (DSR), so the initiator alone decides the state.
pub const PATH_ONE_WAY: u8 = 1;
/// [`Forward::flags`]: the gateway brings the responder's packets too, and what they last came with
/// is known by [`Forward::responder_digest`].
pub const PATH_RESPONDER_LEG: u8 = 2;
/// [`Forward::flags`]: the backend is of the other family, and packets are translated (NAT46,
/// NAT64).
pub const PATH_CROSSES: u8 = 4;
/// [`Forward::flags`]: translated to a proxy on this machine. It has no backend; what it is sent
/// from is the client's own address.
pub const PATH_REDIRECT: u8 = 8;
/// How often a reader or writer tries before it gives up on a path that changes. The kernel's
/// verifier looks at each turn.
pub(super) const TRIES: u64 = if cfg!(target_arch = "bpf") { 8 } else { 512 };
/// How often an answer tries to read a path before it goes by the copy.
pub(super) const ANSWER_TRIES: u64 = 8;
/// Option bytes within the record.
const INLINE: usize = 48;

/// 16 bytes of [`Forward`] with one of two meanings, so that line 0 stays one line: of a translated
/// flow ([`Forward::is_nat`]) our source address towards the backend, and of another with
/// [`PATH_RESPONDER_LEG`] the digest of the responder's leg. No flow has both. Only
/// [`Forward::nat_addr`] and [`Forward::responder_digest`] read it. Zero bytes are neither.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatOrDigest(Addr);

impl NatOrDigest {
    /// Neither an address nor a digest.
    pub const NONE: NatOrDigest = NatOrDigest(Addr::UNSPECIFIED);

    /// Our source address of a translated flow.
    #[inline(always)]
    pub const fn nat(addr: Addr) -> NatOrDigest {
        NatOrDigest(addr)
    }
}

/// Line 0: what becomes of packets from the initiator. Zero bytes are an empty value.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forward {
    /// See [`Forward::nat_addr`] and [`Forward::responder_digest`].
    pub nat_or_digest: NatOrDigest,
    /// The backend's address.
    pub backend_addr: Addr,
    /// Our source port (or echo identifier) towards the backend, host order.
    pub nat_port: u16,
    /// The backend's port, host order.
    pub backend_port: u16,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// The backend's incarnation when the flow began.
    pub incarnation: u32,
    /// The front entry; set by `insert`.
    pub front: u32,
    /// A [`Mode`](crate::record::Mode), or [`PATH_RETURN`].
    pub mode: u8,
    /// `PATH_*` flags.
    pub flags: u8,
    /// IP protocol.
    pub proto: u8,
    /// Zero.
    pub spare: u8,
}

impl Forward {
    /// Our source address towards the backend, of a flow that [is translated](Forward::is_nat).
    /// Of another without a leg of the responder's it is unspecified.
    #[inline(always)]
    pub const fn nat_addr(&self) -> &Addr {
        debug_assert!(self.is_nat() || !self.has_responder_leg());
        &self.nat_or_digest.0
    }

    /// [`Forward::nat_addr`] of a translated flow that begins, to be written.
    #[inline(always)]
    pub const fn nat_addr_mut(&mut self) -> &mut Addr {
        debug_assert!(!self.has_responder_leg());
        &mut self.nat_or_digest.0
    }

    /// What an unchanged leg of the responder's is recognized by, of a flow that has one
    /// ([`PATH_RESPONDER_LEG`]). It lies in this line because every packet reads it anyway.
    #[inline(always)]
    pub const fn responder_digest(&self) -> u32 {
        debug_assert!(self.has_responder_leg());
        self.nat_or_digest.0.words[0]
    }

    #[inline(always)]
    pub(super) const fn has_responder_leg(&self) -> bool {
        self.flags & PATH_RESPONDER_LEG != 0
    }

    /// Only what is translated has a NAT map; what is not may have a leg of the responder's.
    #[inline(always)]
    pub const fn is_nat(&self) -> bool {
        self.mode == Mode::Nat as u8
    }

    pub(super) fn without_responder(self) -> Forward {
        if !self.has_responder_leg() {
            return self;
        }
        let flags = self.flags & !PATH_RESPONDER_LEG;
        Forward { nat_or_digest: NatOrDigest::NONE, flags, ..self }
    }
}

/// Line 1: where the flow came from, as the initiator's latest packet had it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayLeg {
    /// Outer source: the gateway node.
    pub node: Addr,
    /// Outer destination: our address.
    pub local: Addr,
    /// VNI.
    pub vni: u32,
    /// Outer UDP source port as received, host order.
    pub node_port: u16,
    /// Outer UDP destination port as received, host order.
    pub local_port: u16,
    /// VLAN tag, 0 for none.
    pub vlan: u16,
    /// Who delivered it: the outer Ethernet source.
    pub gateway_mac: [u8; 6],
    /// Inner Ethernet source (VXLAN).
    pub inner_src: [u8; 6],
    /// Inner Ethernet destination (VXLAN).
    pub inner_dst: [u8; 6],
    /// Tunnel id, or [`NO_TUNNEL`].
    pub tunnel: u8,
    /// Bytes of gateway options; set by `insert` and `update_gateway`.
    pub option_len: u8,
    /// Arm it came in by: 0 ingress, 1 egress.
    pub arm: u8,
    /// Zero.
    pub spare: u8,
}

const _: () = assert!(size_of::<Forward>() == 56 && size_of::<GatewayLeg>() == 64);
/// Where [`Stored::set_digest`] writes.
const _: () = assert!(core::mem::offset_of!(Forward, nat_or_digest) == 0);

// SAFETY: repr(C), the fields sum up to the size (above: 16+16+2+2+16+4 and 32+4+6+18+4), integers.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for Forward {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for GatewayLeg {}

/// All of a path that an answer needs, of one piece.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Line 0.
    pub forward: Forward,
    /// Line 1, or the responder's leg.
    pub gateway: GatewayLeg,
    /// The first `gateway.option_len` bytes are the gateway's options.
    pub options: OptionRoom,
}

impl Answer {
    /// An answer to be filled.
    pub fn empty() -> Answer {
        let (forward, gateway) = (Forward::default(), GatewayLeg::default());
        Answer { forward, gateway, options: [0; 32] }
    }

    /// A mixed record may say anything of its length; it is thrown away after the copy.
    #[inline(always)]
    fn set_leg(&mut self, leg: GatewayLeg) {
        self.gateway = leg;
        self.gateway.option_len = leg.option_len.min(MAX_OPTIONS as u8);
    }

    /// The gateway's options.
    #[inline]
    pub fn options(&self) -> &[u8] {
        // SAFETY: the words are that many bytes and more: `option_len` is at most `MAX_OPTIONS`,
        // and a larger one is cut.
        #[expect(unsafe_code, reason = "words as bytes")]
        unsafe {
            let len = usize::from(self.gateway.option_len).min(size_of::<OptionRoom>());
            core::slice::from_raw_parts(self.options.as_ptr().cast(), len)
        }
    }
}

/// Why a path could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// The flow ended meanwhile.
    Gone,
    /// It was being changed for too long.
    Busy,
}

/// A path as it lies in the region.
#[repr(C, align(64))]
pub(crate) struct Stored {
    seq: AtomicU32,
    pub(super) tcp: AtomicU32,
    forward: [AtomicU64; 7],
    gateway: [AtomicU64; 8],
    options: [AtomicU64; INLINE / 8],
    pub(super) back: AtomicU32,
    /// Of a translated flow its NAT map, of another the slab with the responder's leg.
    pub(super) owns: AtomicU32,
    pub(super) slab: AtomicU32,
    pub(super) idle_s: AtomicU32,
}

const _: () = assert!(size_of::<Stored>() == 192);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Stored {}

/// Room for what does not fit in the record: a leg with options, or long options alone.
#[repr(C, align(64))]
pub(crate) struct Slab {
    leg: [AtomicU64; 8],
    options: [AtomicU64; 32],
}

const _: () = assert!(size_of::<Slab>() == 320 && 32 * 8 >= MAX_OPTIONS);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Slab {}

impl Slab {
    pub(super) fn set(&self, leg: &GatewayLeg, options: &Options<'_>) {
        store_leg(&self.leg, leg, options.bytes());
        step!();
        words::store_bytes(&self.options, options);
    }

    /// Copies leg and options to another one, while nobody changes them.
    #[inline(always)]
    fn copy(&self, to: &Slab) {
        for (from, to) in self.leg.iter().zip(&to.leg) {
            to.store(from.load(Relaxed), Relaxed);
        }
        let len = usize::from(self.leg[7].load(Relaxed).to_ne_bytes()[OPTION_LEN]);
        step!();
        words::copy(&self.options, &to.options, len);
    }

    /// Copies leg and options out; whoever calls it makes sure that they are of one piece.
    #[inline(never)]
    pub(super) fn read(&self, out: &mut Answer) {
        out.set_leg(words::load(&self.leg));
        words::load_bytes(&self.options, out.gateway.option_len.into(), &mut out.options);
    }
}

impl Stored {
    /// Runs `copy` until nothing changed meanwhile. `copy` must only read.
    #[inline(always)]
    pub(super) fn consistent<T>(&self, copy: impl FnMut(&Stored) -> T) -> Result<T, Missed> {
        self.consistent_in(TRIES, copy)
    }

    /// As [`Stored::consistent`], in so many tries.
    #[inline(always)]
    pub(super) fn consistent_in<T>(
        &self,
        tries: u64,
        mut copy: impl FnMut(&Stored) -> T,
    ) -> Result<T, Missed> {
        for _ in 0..tries {
            let seq = self.seq.load(Acquire);
            if seq & LIVE == 0 {
                return Err(Missed::Gone);
            }
            if seq & WRITING == 0 {
                let copied = copy(self);
                step!();
                fence(Acquire);
                if self.seq.load(Relaxed) == seq {
                    return Ok(copied);
                }
            }
            spin_loop();
        }
        Err(Missed::Busy)
    }

    #[inline(always)]
    pub(super) fn forward(&self) -> Forward {
        words::load(&self.forward)
    }

    #[inline(always)]
    pub(super) fn gateway(&self) -> GatewayLeg {
        words::load(&self.gateway)
    }

    /// Copies options out; to be called within [`Stored::consistent`].
    #[inline(always)]
    pub(super) fn options(&self, len: u8, slabs: Rows<'_, Slab>, to: &mut OptionRoom) {
        let len = usize::from(len);
        if len <= INLINE {
            words::load_bytes(&self.options, len, to);
        } else if let Some(slab) = slabs.row(self.slab.load(Relaxed)) {
            words::load_bytes(&slab.options, len, to);
        }
    }

    /// Copies options of the usual length out, or what lies in their place.
    #[inline(always)]
    pub(super) fn usual_options<const N: usize>(&self, to: &mut [u64; N]) {
        const { assert!(N <= INLINE / 8) };
        self.options.iter().zip(to).for_each(|(from, to)| *to = from.load(Relaxed));
    }

    /// Copies all out that an answer needs; to be called within [`Stored::consistent`].
    #[inline(always)]
    pub(super) fn answer(&self, from_initiator: bool, slabs: Rows<'_, Slab>, out: &mut Answer) {
        out.forward = self.forward();
        if !from_initiator && out.forward.has_responder_leg() {
            // Without a slab of its own it is the initiator's.
            if let Some(slab) = slabs.row(self.owns.load(Relaxed)) {
                return slab.read(out);
            }
        }
        out.set_leg(self.gateway());
        self.options(out.gateway.option_len, slabs, &mut out.options);
    }

    /// Copies leg and options of a record that nobody changes meanwhile.
    pub(super) fn copy_leg(&self, slabs: Rows<'_, Slab>, to: &Slab) {
        let leg = self.gateway();
        words::store(&to.leg, &leg);
        step!();
        let len = usize::from(leg.option_len);
        if len <= INLINE {
            words::copy(&self.options, &to.options, len);
        } else if let Some(slab) = slabs.row(self.slab.load(Relaxed)) {
            words::copy(&slab.options, &to.options, len);
        }
    }

    /// Copies the responder's leg and options, if it has its own.
    #[inline(always)]
    pub(super) fn copy_responder(&self, slabs: Rows<'_, Slab>, to: &Slab) -> bool {
        if !self.has_responder_leg() {
            return false;
        }
        let Some(slab) = slabs.row(self.owns.load(Relaxed)) else { return false };
        slab.copy(to);
        true
    }

    /// Writes leg and options. The caller holds the record, and a slab if [`needs_slab`] says so.
    #[inline]
    pub(super) fn set_gateway(
        &self,
        leg: &GatewayLeg,
        options: &Options<'_>,
        slabs: Rows<'_, Slab>,
    ) {
        store_leg(&self.gateway, leg, options.bytes());
        if !needs_slab(options.bytes()) {
            words::store_bytes(&self.options, options);
        } else if let Some(slab) = slabs.row(self.slab.load(Relaxed)) {
            words::store_bytes(&slab.options, options);
        }
    }

    pub(super) fn set_forward(&self, forward: &Forward) {
        words::store(&self.forward, forward);
    }

    /// The last word of line 0's record, in bytes.
    #[inline(always)]
    fn tail(&self) -> [u8; 8] {
        self.forward[6].load(Relaxed).to_ne_bytes()
    }

    /// [`Forward::front`], of one word.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(super) fn front_entry(&self) -> u32 {
        (self.forward[FRONT_WORD].load(Relaxed) >> FRONT_SHIFT) as u32
    }

    /// [`Forward::is_nat`], of one word.
    pub(super) fn is_nat(&self) -> bool {
        self.tail()[MODE] == Mode::Nat as u8
    }

    /// Whether its answers go past us, of one word.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn is_one_way(&self) -> bool {
        self.tail()[FLAGS] & PATH_ONE_WAY != 0
    }

    /// [`Forward::has_responder_leg`], of one word.
    pub(super) fn has_responder_leg(&self) -> bool {
        self.tail()[FLAGS] & PATH_RESPONDER_LEG != 0
    }

    /// There is a leg of the responder's, recognised by `digest`.
    pub(super) fn set_responder(&self, digest: u32) {
        let mut tail = self.tail();
        tail[FLAGS] |= PATH_RESPONDER_LEG;
        self.set_digest(digest);
        self.forward[6].store(u64::from_ne_bytes(tail), Relaxed);
    }

    /// There is none, as [`Forward::without_responder`].
    pub(super) fn unset_responder(&self) {
        let mut tail = self.tail();
        if tail[FLAGS] & PATH_RESPONDER_LEG != 0 {
            tail[FLAGS] &= !PATH_RESPONDER_LEG;
            self.set_digest(0);
            self.forward[6].store(u64::from_ne_bytes(tail), Relaxed);
        }
    }

    /// See [`NatOrDigest`]: the digest is its first word, the others are zero.
    fn set_digest(&self, digest: u32) {
        let [a, b, c, d] = digest.to_ne_bytes();
        self.forward[0].store(u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), Relaxed);
        self.forward[1].store(0, Relaxed);
    }

    /// Drops options that a torn record claims to have and has not.
    pub(super) fn drop_options(&self) {
        let leg = self.gateway();
        words::store(&self.gateway, &GatewayLeg { option_len: 0, ..leg });
    }
}

/// Word of [`Forward::front`], and where in it on a little-endian processor; for prefetching alone.
#[cfg(not(target_arch = "bpf"))]
const FRONT_WORD: usize = core::mem::offset_of!(Forward, front) / 8;
#[cfg(not(target_arch = "bpf"))]
const FRONT_SHIFT: usize = core::mem::offset_of!(Forward, front) % 8 * 8;
/// Places in [`Stored::tail`].
const MODE: usize = core::mem::offset_of!(Forward, mode) - 48;
const FLAGS: usize = core::mem::offset_of!(Forward, flags) - 48;
/// Place in a leg's last word.
const OPTION_LEN: usize = core::mem::offset_of!(GatewayLeg, option_len) - 56;

/// Writes a leg with options of this length. (The kernel's program has no room for a copy of it.)
#[inline(always)]
fn store_leg(to: &[AtomicU64; 8], leg: &GatewayLeg, len: usize) {
    words::store(to, leg);
    let mut last = to[7].load(Relaxed).to_ne_bytes();
    last[OPTION_LEN] = len as u8;
    to[7].store(u64::from_ne_bytes(last), Relaxed);
}

/// Whether options of this length do not fit in the record.
pub(super) fn needs_slab(len: usize) -> bool {
    len > INLINE
}
