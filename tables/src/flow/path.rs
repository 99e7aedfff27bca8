//! Path record: how a flow is forwarded, and how its replies return. Three cache lines.
//!
//! ```text
//!   0  seq, tcp   | Forward: NAT and backend addresses, service, backend, mode   line 0
//!  64  GatewayLeg: the gateway leg of the latest packet                          line 1
//! 128  gateway options, 48 bytes | back entry, what it owns, slab, idle timeout  line 2
//! ```
//! A seqlock (`seq`) guards all three lines, except for the flow's state (`tcp`), which is a
//! separate atomic. Options longer than 48 bytes are in a slab, as is the responder's leg if it
//! differs. A flow is a NAT flow if Weir rewrites its addresses and ports (mode NAT, or a redirect
//! to a proxy).

mod ownership;

use super::entry::{LIVE, WRITING};
use super::step::step;
use super::words::{self, MAX_OPTIONS, OptionWords, Options, Words as _};
use crate::atomic::{AtomicU32, AtomicU64, Ordering::*, fence, spin_loop};
use crate::layout::PATH_BYTES;
use crate::record::{Mode, Record};
use crate::rows::{Numbered, Rows, Shared};
use packet::addr::Addr;

/// [`GatewayLeg::tunnel`] of a flow that arrived without a tunnel.
pub const NO_TUNNEL: u8 = u8::MAX;
/// [`Forward::mode`] of a flow that is returned to its gateway; other values are those of
/// [`Mode`](crate::record::Mode).
pub const PATH_RETURN: u8 = 0;
/// [`Forward::flags`]: replies bypass this appliance (direct server return), so the initiator's
/// packets alone determine the flow's state.
pub const PATH_ONE_WAY: u8 = 1;
/// [`Forward::flags`]: the gateway sends the responder's packets as well; the digest of their
/// latest leg is [`Forward::responder_digest`].
pub const PATH_RESPONDER_LEG: u8 = 2;
/// [`Forward::flags`]: the backend is of the other address family, and packets are translated
/// (NAT46, NAT64).
pub const PATH_CROSSES: u8 = 4;
/// [`Forward::flags`]: the flow is redirected to a proxy on this host. There is no backend, and the
/// source towards the proxy is the client's own address.
pub const PATH_REDIRECT: u8 = 8;
/// Number of attempts of a reader or writer at a path that is being changed; fewer in the BPF
/// program, because the verifier checks each iteration.
pub(super) const TRIES: u64 = if cfg!(target_arch = "bpf") { 8 } else { 512 };
/// Number of attempts to read a path for a reply before the leg copy is used.
pub(super) const ANSWER_TRIES: u64 = 8;
/// Option bytes stored in the record itself.
const INLINE: usize = 48;

/// Sixteen bytes of [`Forward`] with two meanings, so that line 0 fits in one cache line.
///
/// In a NAT flow ([`Forward::is_nat`]), the bytes are the source address towards the backend or
/// proxy. In a flow with [`PATH_RESPONDER_LEG`], which is never a NAT flow, they are the digest of
/// the responder's leg. In all other flows they are zero. Only [`Forward::nat_addr`] and
/// [`Forward::responder_digest`] read them.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatOrDigest(Addr);

impl NatOrDigest {
    /// Neither an address nor a digest.
    pub const NONE: NatOrDigest = NatOrDigest(Addr::UNSPECIFIED);

    /// Returns the value for a local source address of a NAT flow.
    #[inline(always)]
    pub const fn nat(addr: Addr) -> NatOrDigest {
        NatOrDigest(addr)
    }
}

/// Line 0: how packets from the initiator are forwarded. All zeros is an empty value.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forward {
    /// See [`Forward::nat_addr`] and [`Forward::responder_digest`].
    pub nat_or_digest: NatOrDigest,
    /// Address of the backend.
    pub backend_addr: Addr,
    /// Local source port (or echo identifier) towards the backend, in host byte order.
    pub nat_port: u16,
    /// Port of the backend, in host byte order.
    pub backend_port: u16,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// Incarnation of the backend when the flow began.
    pub incarnation: u32,
    /// Number of the front entry; set by `insert`.
    pub front: u32,
    /// Forwarding mode: a [`Mode`](crate::record::Mode), or [`PATH_RETURN`].
    pub mode: u8,
    /// Bit mask of the `PATH_*` flags.
    pub flags: u8,
    /// IP protocol number on the gateway's side.
    pub proto: u8,
    /// Must be zero.
    pub spare: u8,
}

impl Forward {
    /// Returns the source address of a NAT flow ([`Forward::is_nat`]) towards its backend: a local
    /// address, or the client's own for a proxy. It is the unspecified address if the flow is not a
    /// NAT flow. Not to be called for a flow with a responder's leg.
    #[inline(always)]
    pub const fn nat_addr(&self) -> &Addr {
        debug_assert!(self.is_nat() || !self.has_responder_leg());
        &self.nat_or_digest.0
    }

    /// Returns [`Forward::nat_addr`] of a new NAT flow, to be written.
    #[inline(always)]
    pub const fn nat_addr_mut(&mut self) -> &mut Addr {
        debug_assert!(!self.has_responder_leg());
        &mut self.nat_or_digest.0
    }

    /// Returns the digest of the responder's leg of a flow that has one ([`PATH_RESPONDER_LEG`]).
    /// The digest is in this line because every packet reads the line anyway.
    #[inline(always)]
    pub const fn responder_digest(&self) -> u32 {
        debug_assert!(self.has_responder_leg());
        self.nat_or_digest.0.words[0]
    }

    #[inline(always)]
    pub(super) const fn has_responder_leg(&self) -> bool {
        self.flags & PATH_RESPONDER_LEG != 0
    }

    /// Returns whether Weir rewrites the flow's addresses and ports: in mode NAT, and if the flow
    /// is redirected to a proxy. Only a NAT flow can have a NAT port map, and only a flow that is
    /// not one can have a responder's leg.
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

/// Line 1: the gateway leg of the latest packet, or of the initiator's latest one in a flow with a
/// responder's leg.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayLeg {
    /// Outer source address: the gateway node.
    pub node: Addr,
    /// Outer destination address: a local address.
    pub local: Addr,
    /// VXLAN or GENEVE network identifier.
    pub vni: u32,
    /// Outer UDP source port as received, in host byte order.
    pub node_port: u16,
    /// Outer UDP destination port as received, in host byte order.
    pub local_port: u16,
    /// VLAN tag control field; 0 for none.
    pub vlan: u16,
    /// Outer Ethernet source address: the device that delivered the packet.
    pub gateway_mac: [u8; 6],
    /// Inner Ethernet source address (VXLAN).
    pub inner_src: [u8; 6],
    /// Inner Ethernet destination address (VXLAN).
    pub inner_dst: [u8; 6],
    /// Tunnel id, or [`NO_TUNNEL`].
    pub tunnel: u8,
    /// Length of the gateway options in bytes; set by `insert` and `update_gateway`.
    pub option_len: u8,
    /// Arm on which the packet arrived: 0 ingress, 1 egress.
    pub arm: u8,
    /// Must be zero.
    pub spare: u8,
}

const _: () = assert!(size_of::<Forward>() == 56 && size_of::<GatewayLeg>() == 64);
/// Offset assumed by [`PathRecord::set_digest`].
const _: () = assert!(core::mem::offset_of!(Forward, nat_or_digest) == 0);

// SAFETY: repr(C), the fields sum up to the size (above: 16+16+2+2+16+4 and 32+4+6+18+4), integers.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for Forward {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for GatewayLeg {}

/// A consistent copy of everything that a reply needs of a path.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Line 0 of the path.
    pub forward: Forward,
    /// Line 1 of the path, or the responder's leg.
    pub gateway: GatewayLeg,
    /// Options of the gateway: the first `gateway.option_len` bytes are valid.
    pub options: OptionWords,
}

impl Answer {
    /// Creates an empty value to be filled.
    pub fn empty() -> Answer {
        let (forward, gateway) = (Forward::default(), GatewayLeg::default());
        Answer { forward, gateway, options: [0; 32] }
    }

    /// Sets the leg, with an option length that fits. A torn record may contain any length; its
    /// copy is discarded afterwards.
    #[inline(always)]
    fn set_leg(&mut self, leg: GatewayLeg) {
        self.gateway = leg;
        self.gateway.option_len = leg.option_len.min(MAX_OPTIONS as u8);
    }

    /// Options of the gateway.
    #[inline]
    pub fn options(&self) -> &[u8] {
        // SAFETY: `len` is at most the size of the words.
        #[expect(unsafe_code, reason = "words as bytes")]
        unsafe {
            let len = usize::from(self.gateway.option_len).min(size_of::<OptionWords>());
            core::slice::from_raw_parts(self.options.as_ptr().cast(), len)
        }
    }
}

/// Error of reading a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The flow has ended.
    Gone,
    /// The path was being changed for too long.
    Busy,
}

/// A path record in the region.
#[repr(C, align(64))]
pub(crate) struct PathRecord {
    /// Sequence number of the seqlock; its low two bits are `WRITING` and `LIVE`.
    seq: AtomicU32,
    /// State bits of the flow (see `tcp`; flows of other protocols have them too), and above them
    /// the number of flows that the record has had.
    pub(super) tcp: AtomicU32,
    forward: [AtomicU64; 7],
    gateway: [AtomicU64; 8],
    options: [AtomicU64; INLINE / 8],
    /// Number of the back entry, or `NONE`.
    pub(super) back: AtomicU32,
    /// Of a NAT flow, the NAT port map from which its port was claimed; of any other flow, the slab
    /// of the responder's leg. `NONE` if it has none.
    pub(super) owns: AtomicU32,
    /// Slab of options that do not fit in the record, or `NONE`.
    pub(super) slab: AtomicU32,
    /// Idle timeout of the confirmed flow in seconds; 0 for that of the settings.
    pub(super) idle_s: AtomicU32,
    /// Cache line that distinguishes the format of `make upgrade-test` from the current one.
    #[cfg(feature = "next-format")]
    added: [AtomicU64; 8],
}

const _: () = assert!(size_of::<PathRecord>() == PATH_BYTES);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for PathRecord {}

/// Overflow space of a path record: a leg with its options, or long options alone.
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
        store_leg(&self.leg, leg, options.byte_len());
        step!();
        words::store_bytes(&self.options, options);
    }

    /// Copies leg and options to the slab `to`. The caller ensures that the source slab does not
    /// change.
    #[inline(always)]
    fn copy(&self, to: &Slab) {
        for (from, to) in self.leg.iter().zip(&to.leg) {
            to.store(from.load(Relaxed), Relaxed);
        }
        let len = usize::from(self.leg[7].load(Relaxed).to_ne_bytes()[OPTION_LEN]);
        step!();
        words::copy(&self.options, &to.options, len);
    }

    /// Copies leg and options out. The caller ensures that they are consistent.
    #[inline(never)]
    pub(super) fn read(&self, out: &mut Answer) {
        out.set_leg(words::load(&self.leg));
        words::load_bytes(&self.options, out.gateway.option_len.into(), &mut out.options);
    }
}

impl PathRecord {
    /// Runs `copy` until the record did not change during it. `copy` must have no side effects on
    /// shared state.
    #[inline(always)]
    pub(super) fn consistent<T>(&self, copy: impl FnMut(&PathRecord) -> T) -> Result<T, PathError> {
        self.consistent_in(TRIES, copy)
    }

    /// As [`PathRecord::consistent`], with a limit of `tries`.
    #[inline(always)]
    pub(super) fn consistent_in<T>(
        &self,
        tries: u64,
        mut copy: impl FnMut(&PathRecord) -> T,
    ) -> Result<T, PathError> {
        for _ in 0..tries {
            let seq = self.seq.load(Acquire);
            if seq & LIVE == 0 {
                return Err(PathError::Gone);
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
        Err(PathError::Busy)
    }

    #[inline(always)]
    pub(super) fn forward(&self) -> Forward {
        words::load(&self.forward)
    }

    #[inline(always)]
    pub(super) fn gateway(&self) -> GatewayLeg {
        words::load(&self.gateway)
    }

    /// Copies options out. Called within [`PathRecord::consistent`].
    #[inline(always)]
    pub(super) fn options(&self, len: u8, slabs: Rows<'_, Slab>, to: &mut OptionWords) {
        let len = usize::from(len);
        if len <= INLINE {
            words::load_bytes(&self.options, len, to);
        } else if let Some(slab) = slabs.row(self.slab.load(Relaxed)) {
            words::load_bytes(&slab.options, len, to);
        }
    }

    /// Copies the first `N` words of the record's option space out, whether or not they contain
    /// options.
    #[inline(always)]
    pub(super) fn inline_options<const N: usize>(&self, to: &mut [u64; N]) {
        const { assert!(N <= INLINE / 8) };
        self.options.iter().zip(to).for_each(|(from, to)| *to = from.load(Relaxed));
    }

    /// Copies everything out that a reply needs. Called within [`PathRecord::consistent`].
    #[inline(always)]
    pub(super) fn answer(&self, from_initiator: bool, slabs: Rows<'_, Slab>, out: &mut Answer) {
        out.forward = self.forward();
        if !from_initiator && out.forward.has_responder_leg() {
            // Without a slab of its own, the responder's leg is the initiator's.
            if let Some(slab) = slabs.row(self.owns.load(Relaxed)) {
                return slab.read(out);
            }
        }
        out.set_leg(self.gateway());
        self.options(out.gateway.option_len, slabs, &mut out.options);
    }

    /// Copies the record's leg and options to a slab. The caller ensures that the record does not
    /// change.
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

    /// Copies the responder's leg and options to a slab, if the path has a separate one for them;
    /// returns whether it has.
    #[inline(always)]
    pub(super) fn copy_responder(&self, slabs: Rows<'_, Slab>, to: &Slab) -> bool {
        if !self.has_responder_leg() {
            return false;
        }
        let Some(slab) = slabs.row(self.owns.load(Relaxed)) else { return false };
        slab.copy(to);
        true
    }

    /// Writes leg and options. The caller has locked the record, and has assigned a slab if
    /// [`needs_slab`] returns true.
    #[inline]
    pub(super) fn set_gateway(
        &self,
        leg: &GatewayLeg,
        options: &Options<'_>,
        slabs: Rows<'_, Slab>,
    ) {
        store_leg(&self.gateway, leg, options.byte_len());
        if !needs_slab(options.byte_len()) {
            words::store_bytes(&self.options, options);
        } else if let Some(slab) = slabs.row(self.slab.load(Relaxed)) {
            words::store_bytes(&slab.options, options);
        }
    }

    pub(super) fn set_forward(&self, forward: &Forward) {
        words::store(&self.forward, forward);
    }

    /// Returns the bytes of the last word of [`Forward`], which contains mode and flags.
    #[inline(always)]
    fn tail(&self) -> [u8; 8] {
        self.forward[6].load(Relaxed).to_ne_bytes()
    }

    /// [`Forward::front`], read as part of one word.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(super) fn front_entry(&self) -> u32 {
        (self.forward[FRONT_WORD].load(Relaxed) >> FRONT_SHIFT) as u32
    }

    /// [`Forward::is_nat`], read from one word.
    pub(super) fn is_nat(&self) -> bool {
        self.tail()[MODE] == Mode::Nat as u8
    }

    /// Returns whether replies bypass this appliance, read from one word.
    #[cfg(not(target_arch = "bpf"))]
    pub(super) fn is_one_way(&self) -> bool {
        self.tail()[FLAGS] & PATH_ONE_WAY != 0
    }

    /// [`Forward::has_responder_leg`], read from one word.
    pub(super) fn has_responder_leg(&self) -> bool {
        self.tail()[FLAGS] & PATH_RESPONDER_LEG != 0
    }

    /// Records that the path has a responder's leg with this digest.
    pub(super) fn set_responder(&self, digest: u32) {
        let mut tail = self.tail();
        tail[FLAGS] |= PATH_RESPONDER_LEG;
        self.set_digest(digest);
        self.forward[6].store(u64::from_ne_bytes(tail), Relaxed);
    }

    /// Removes the responder's leg, as [`Forward::without_responder`].
    pub(super) fn unset_responder(&self) {
        let mut tail = self.tail();
        if tail[FLAGS] & PATH_RESPONDER_LEG != 0 {
            tail[FLAGS] &= !PATH_RESPONDER_LEG;
            self.set_digest(0);
            self.forward[6].store(u64::from_ne_bytes(tail), Relaxed);
        }
    }

    /// Writes the digest as the first word of [`NatOrDigest`], and zeros as the others.
    fn set_digest(&self, digest: u32) {
        let [a, b, c, d] = digest.to_ne_bytes();
        self.forward[0].store(u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), Relaxed);
        self.forward[1].store(0, Relaxed);
    }

    /// Sets the length of the options to 0, for a record whose options were not found.
    pub(super) fn drop_options(&self) {
        let leg = self.gateway();
        words::store(&self.gateway, &GatewayLeg { option_len: 0, ..leg });
    }
}

/// Index of the word that contains [`Forward::front`], and the shift of `front` in it on a
/// little-endian processor; for prefetching only.
#[cfg(not(target_arch = "bpf"))]
const FRONT_WORD: usize = core::mem::offset_of!(Forward, front) / 8;
#[cfg(not(target_arch = "bpf"))]
const FRONT_SHIFT: usize = core::mem::offset_of!(Forward, front) % 8 * 8;
/// Offsets in [`PathRecord::tail`].
const MODE: usize = core::mem::offset_of!(Forward, mode) - 48;
const FLAGS: usize = core::mem::offset_of!(Forward, flags) - 48;
/// Offset in the last word of a leg.
const OPTION_LEN: usize = core::mem::offset_of!(GatewayLeg, option_len) - 56;

/// Writes a leg with this option length, without a copy of the leg: the BPF program's stack is too
/// small for one.
#[inline(always)]
fn store_leg(to: &[AtomicU64; 8], leg: &GatewayLeg, len: usize) {
    words::store(to, leg);
    let mut last = to[7].load(Relaxed).to_ne_bytes();
    last[OPTION_LEN] = len as u8;
    to[7].store(u64::from_ne_bytes(last), Relaxed);
}

/// Returns whether options of this length do not fit in the record.
pub(super) fn needs_slab(len: usize) -> bool {
    len > INLINE
}
