//! GENEVE (RFC 8926) and the three options of a gateway: endpoint, attachment, flow cookie.
//!
//! The options' class is an argument, so that another cloud's is a row in a table. Their types and
//! sizes are AWS's: 1 and 2 with 8 bytes, 3 with 4 bytes.

use crate::parsed::Malformed;
use crate::window::{Short, Window, mask_options, sign_bit};

/// Bytes of the header without options.
pub const HEADER: usize = 8;
/// The longest option area: 63 words.
pub const MAX_OPTIONS: usize = 252;
/// The class of AWS gateways' options.
pub const CLASS_AWS: u16 = 0x0108;
/// Bytes of the three options as [`own_options`] writes them.
pub const OWN_OPTIONS: usize = 32;

/// The attachment by which our own tunnels to backends name the gateway that a flow came from, with
/// its number in the low half, where there is no [`Origin`](crate::origin::Origin).
pub const ATTACHMENT_MARK: u64 = 0x5745_4952 << 32;

/// [`GatewayOptions::present`]: the endpoint.
pub const ENDPOINT: u8 = 1;
/// [`GatewayOptions::present`]: the attachment.
pub const ATTACHMENT: u8 = 2;
/// [`GatewayOptions::present`]: the flow cookie.
pub const COOKIE: u8 = 4;
/// [`GatewayOptions::present`]: all three.
pub const ALL_OPTIONS: u8 = ENDPOINT | ATTACHMENT | COOKIE;

/// A GENEVE header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geneve {
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
    /// Ethernet type of what is inside.
    pub protocol: u16,
    /// Offset of what is inside.
    pub payload: u16,
    /// Bytes of options, a multiple of 4, at most 252. They begin 8 bytes behind the header's
    /// start.
    pub opt_len: u8,
    /// O bit: a control packet.
    pub control: bool,
    /// C bit: critical options present.
    pub critical: bool,
}

/// The gateway's options.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GatewayOptions {
    /// Endpoint id.
    pub endpoint: u64,
    /// Attachment id.
    pub attachment: u64,
    /// Flow cookie.
    pub cookie: u32,
    /// Which of the three are there with their right length: [`ENDPOINT`] and so on.
    pub present: u8,
    /// An option that is none of the three is marked critical: the packet must be dropped (§3.5).
    pub unknown_critical: bool,
}

/// The header at `at`, behind the UDP header. Its options are in the window when it is accepted.
#[inline(always)]
pub fn parse(w: &Window<'_>, at: u16) -> Result<Geneve, Malformed> {
    let h: [u32; 2] = w.load(usize::from(at))?;
    let first = u32::from_be(h[0]);
    if first >> 30 != 0 {
        return Err(Malformed::GeneveVersion);
    }
    let opt_len = (first >> 24 & 0x3f) as u8 * 4;
    w.holds(usize::from(at), HEADER + usize::from(opt_len))?;
    Ok(Geneve {
        vni: u32::from_be(h[1]) >> 8,
        protocol: first as u16,
        payload: at + 8 + u16::from(opt_len),
        opt_len,
        control: first & 0x0080_0000 != 0,
        critical: first & 0x0040_0000 != 0,
    })
}

/// First word of each of the three options behind the class: type, reserved bits 0, length in
/// words.
const KINDS: [u32; 3] = [0x0102, 0x0202, 0x0301];
/// What counts of an option's first word: not the three reserved bits.
const COUNTS: u32 = 0xffff_ff1f;

/// The gateway's options among the `opt_len` bytes at `at`. A known type of another length counts
/// as missing; of a type that comes twice the last one counts.
#[inline(always)]
pub fn options(
    w: &Window<'_>,
    at: u16,
    opt_len: u8,
    class: u16,
) -> Result<GatewayOptions, Malformed> {
    match usual_options(w, at, opt_len, class) {
        Some(options) => Ok(options),
        None => any_options(w, at, opt_len, class),
    }
}

/// As [`options`], if they are the gateway's three, in their usual order, with nothing between.
/// For programs that keep the walk apart.
#[inline(always)]
pub fn usual_options(w: &Window<'_>, at: u16, opt_len: u8, class: u16) -> Option<GatewayOptions> {
    let o = usual(w, at, opt_len, class)?;
    Some(GatewayOptions {
        endpoint: number(o[1], o[2]),
        attachment: number(o[4], o[5]),
        cookie: u32::from_be(o[7]),
        present: ALL_OPTIONS,
        unknown_critical: false,
    })
}

/// The options as AWS sends them, these and no others, in this order: no loop.
#[inline(always)]
fn usual(w: &Window<'_>, at: u16, opt_len: u8, class: u16) -> Option<[u32; 8]> {
    if usize::from(opt_len) != OWN_OPTIONS {
        return None;
    }
    let o: [u32; 8] = w.load(usize::from(at)).ok()?;
    let class = u32::from(class) << 16;
    let other = (u32::from_be(o[0]) ^ (class | KINDS[0]))
        | (u32::from_be(o[3]) ^ (class | KINDS[1]))
        | (u32::from_be(o[6]) ^ (class | KINDS[2]));
    if other == 0 { Some(o) } else { None }
}

/// As [`options`], by the walk alone.
#[inline(always)]
pub fn any_options(
    w: &Window<'_>,
    at: u16,
    opt_len: u8,
    class: u16,
) -> Result<GatewayOptions, Malformed> {
    walk(w, usize::from(at), usize::from(opt_len), class)
}

/// Whether these are a gateway's three options in their usual order, with nothing between: then
/// the last four bytes are the cookie.
pub fn are_usual(w: &Window<'_>, at: u16, opt_len: u8, class: u16) -> bool {
    usual(w, at, opt_len, class).is_some()
}

#[inline(always)]
const fn number(high: u32, low: u32) -> u64 {
    (u32::from_be(high) as u64) << 32 | u32::from_be(low) as u64
}

/// 1 if `x` is 0, else 0, without a branch.
#[inline(always)]
fn is_zero(x: u32) -> u32 {
    sign_bit(!x & x.wrapping_sub(1))
}

/// The walk through any options. Its body has one path (a known type's place is remembered, and
/// read after the loop), so that BPF's verifier has one state to follow per turn.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), inline(never))]
fn walk(
    w: &Window<'_>,
    at: usize,
    opt_len: usize,
    class: u16,
) -> Result<GatewayOptions, Malformed> {
    let class = u32::from(class) << 16;
    let (mut places, mut critical, mut off) = (0u32, 0u32, 0usize);
    for _ in 0..MAX_OPTIONS / 4 {
        if off + 4 > opt_len {
            break;
        }
        let word = w.be32(at + mask_options(off))?;
        let kind = (word & COUNTS) ^ class;
        let mut index = 0;
        for (i, known) in KINDS.iter().enumerate() {
            index |= is_zero(kind ^ known) * (i as u32 + 1);
        }
        // Byte `index` of `places`: 1 + the word where it is. Byte 0 takes the unknown ones.
        let byte = index * 8;
        places = places & !(0x7f << byte) | ((off as u32 >> 2) + 1) << byte;
        // The C bit is the highest of the type, so that none of the three can have it.
        critical |= word & 0x8000;
        off += 4 + (word as usize & 0x1f) * 4;
    }
    if off != opt_len {
        return Err(Malformed::GeneveOptions);
    }
    let mut found = GatewayOptions { unknown_critical: critical != 0, ..Default::default() };
    if let Some(p) = place(places, 1, at) {
        found.endpoint = number(w.load(p)?, w.load(p + 4)?);
        found.present |= ENDPOINT;
    }
    if let Some(p) = place(places, 2, at) {
        found.attachment = number(w.load(p)?, w.load(p + 4)?);
        found.present |= ATTACHMENT;
    }
    if let Some(p) = place(places, 3, at) {
        found.cookie = w.be32(p)?;
        found.present |= COOKIE;
    }
    Ok(found)
}

/// Where the value of the known option `index` begins.
#[inline(always)]
fn place(places: u32, index: u32, at: usize) -> Option<usize> {
    let word = (places >> (index * 8)) & 0x7f;
    if word == 0 { None } else { Some(at + mask_options((word as usize - 1) * 4) + 4) }
}

/// The three options in AWS's class and order, for a tunnel of ours to an inspection appliance.
#[inline(always)]
pub fn own_options(room: &mut [u8; OWN_OPTIONS], endpoint: u64, attachment: u64, cookie: u32) {
    for (to, word) in
        room.as_chunks_mut::<8>().0.iter_mut().zip(own_words(endpoint, attachment, cookie))
    {
        *to = word.to_ne_bytes();
    }
}

/// As [`own_options`], in words as they lie in memory.
#[inline(always)]
pub const fn own_words(endpoint: u64, attachment: u64, cookie: u32) -> [u64; OWN_OPTIONS / 8] {
    gateway_words(CLASS_AWS, endpoint, attachment, cookie)
}

/// The three options of a gateway with this class, in words as they lie in memory: what
/// [`usual_options`] reads.
#[inline(always)]
pub const fn gateway_words(
    class: u16,
    endpoint: u64,
    attachment: u64,
    cookie: u32,
) -> [u64; OWN_OPTIONS / 8] {
    let class = (class as u64) << 16;
    [
        ((class | KINDS[0] as u64) << 32 | endpoint >> 32).to_be(),
        (endpoint << 32 | class | KINDS[1] as u64).to_be(),
        attachment.to_be(),
        ((class | KINDS[2] as u64) << 32 | cookie as u64).to_be(),
    ]
}

/// Writes a header with `opt_len` bytes of options to follow, at `at`.
#[inline(always)]
pub(crate) fn write(
    w: &mut Window<'_>,
    at: usize,
    vni: u32,
    protocol: u16,
    opt_len: usize,
) -> Result<(), Short> {
    let first = (opt_len as u32 / 4) << 24 | u32::from(protocol);
    w.store(at, [first.to_be(), (vni << 8).to_be()])
}

/// Whatever the bytes: the walk ends, finds only what is there, and agrees with the quick way.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let w = Window::new(bytes);
    let Ok(geneve) = parse(&w, 0) else { return };
    assert!(usize::from(geneve.payload) <= w.len() && geneve.opt_len % 4 == 0);
    let quick = options(&w, 8, geneve.opt_len, CLASS_AWS);
    assert_eq!(quick, walk(&w, 8, usize::from(geneve.opt_len), CLASS_AWS));
}

#[cfg(test)]
mod tests;
