//! GENEVE (RFC 8926) and the three options of a gateway: endpoint, attachment, flow cookie.
//!
//! The option class is an argument, so that other clouds can be supported by configuration. Types
//! and sizes are those of AWS: types 1 and 2 with 8 bytes, type 3 with 4 bytes.

use crate::parsed::Malformed;
use crate::window::{Short, Window, mask_options, sign_bit};

/// The length of the header without options, in bytes.
pub const HEADER: usize = 8;
/// The maximum length of the option area in bytes: 63 words.
pub const MAX_OPTIONS: usize = 252;
/// The option class of AWS gateways.
pub const CLASS_AWS: u16 = 0x0108;
/// The length in bytes of the three options that [`own_options`] writes.
pub const OWN_OPTIONS: usize = 32;

/// The upper half of the attachment that Weir sends to a backend with a packet that has no
/// [`Origin`](crate::origin::Origin). The lower half is the number of the flow's gateway.
pub const ATTACHMENT_MARK: u64 = 0x5745_4952 << 32;

/// The bit of the endpoint in [`GatewayOptions::present`].
pub const ENDPOINT: u8 = 1;
/// The bit of the attachment in [`GatewayOptions::present`].
pub const ATTACHMENT: u8 = 2;
/// The bit of the flow cookie in [`GatewayOptions::present`].
pub const COOKIE: u8 = 4;
/// The bits of all three options in [`GatewayOptions::present`].
pub const ALL_OPTIONS: u8 = ENDPOINT | ATTACHMENT | COOKIE;

/// A parsed GENEVE header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geneve {
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
    /// Ethernet type of the payload.
    pub protocol: u16,
    /// Offset of the payload.
    pub payload: u16,
    /// Length of the options in bytes, a multiple of 4, at most 252. They begin 8 bytes after the
    /// start of the header.
    pub opt_len: u8,
    /// O bit: control packet.
    pub control: bool,
    /// C bit: critical options present.
    pub critical: bool,
}

/// The values of a gateway's options; 0 for an option that is absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GatewayOptions {
    /// Endpoint ID.
    pub endpoint: u64,
    /// Attachment ID.
    pub attachment: u64,
    /// Flow cookie.
    pub cookie: u32,
    /// Bit mask of the options that are present with their correct length: [`ENDPOINT`] and so on.
    pub present: u8,
    /// Whether an unknown option is marked critical: if so, the packet must be dropped (RFC 8926
    /// §3.5).
    pub unknown_critical: bool,
}

/// Parses the header at `at`, after the UDP header. The options of an accepted header lie in the
/// window.
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

/// The low half of each option's first word: type, reserved bits 0, length in words. The high half
/// is the class.
const KINDS: [u32; 3] = [0x0102, 0x0202, 0x0301];
/// The mask of the significant bits of an option's first word: all but the three reserved bits.
const OPTION_MASK: u32 = 0xffff_ff1f;

/// Parses the gateway's options in the `opt_len` bytes at `at`. An option of a known type with a
/// wrong length counts as absent. Of several options of one type, the last one counts.
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

/// Like [`options`], but returns `None` unless the area consists of exactly the gateway's three
/// options in the usual order. The BPF program calls it directly, and has the generic walk in a
/// separate function.
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

/// Returns the words of the option area if it consists of exactly the three options, in the order
/// in which AWS sends them. Needs no loop.
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

/// Like [`options`], but always by the generic walk.
#[inline(always)]
pub fn any_options(
    w: &Window<'_>,
    at: u16,
    opt_len: u8,
    class: u16,
) -> Result<GatewayOptions, Malformed> {
    walk(w, usize::from(at), usize::from(opt_len), class)
}

/// Returns true if the area consists of exactly the gateway's three options in the usual order. Its
/// last four bytes are then the cookie.
pub fn are_usual(w: &Window<'_>, at: u16, opt_len: u8, class: u16) -> bool {
    usual(w, at, opt_len, class).is_some()
}

#[inline(always)]
const fn number(high: u32, low: u32) -> u64 {
    (u32::from_be(high) as u64) << 32 | u32::from_be(low) as u64
}

/// Returns 1 if `x` is 0, else 0, without a branch.
#[inline(always)]
fn is_zero(x: u32) -> u32 {
    sign_bit(!x & x.wrapping_sub(1))
}

/// Parses options in any order. The loop only records the position of each known type, without a
/// branch, and the values are read after the loop: the BPF verifier then has one state per
/// iteration.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), inline(never))]
fn walk(
    w: &Window<'_>,
    at: usize,
    opt_len: usize,
    class: u16,
) -> Result<GatewayOptions, Malformed> {
    let class = u32::from(class) << 16;
    let (mut offsets, mut critical, mut off) = (0u32, 0u32, 0usize);
    for _ in 0..MAX_OPTIONS / 4 {
        if off + 4 > opt_len {
            break;
        }
        let word = w.be32(at + mask_options(off))?;
        let kind = (word & OPTION_MASK) ^ class;
        let mut index = 0;
        for (i, known) in KINDS.iter().enumerate() {
            index |= is_zero(kind ^ known) * (i as u32 + 1);
        }
        // Byte `index` of `offsets` is 1 + the word offset of the option. Byte 0 collects unknown
        // options.
        let byte = index * 8;
        offsets = offsets & !(0x7f << byte) | ((off as u32 >> 2) + 1) << byte;
        // The C bit is the highest bit of the type, so none of the three known types can have it.
        critical |= word & 0x8000;
        off += 4 + (word as usize & 0x1f) * 4;
    }
    if off != opt_len {
        return Err(Malformed::GeneveOptions);
    }
    let mut found = GatewayOptions { unknown_critical: critical != 0, ..Default::default() };
    if let Some(p) = value_offset(offsets, 1, at) {
        found.endpoint = number(w.load(p)?, w.load(p + 4)?);
        found.present |= ENDPOINT;
    }
    if let Some(p) = value_offset(offsets, 2, at) {
        found.attachment = number(w.load(p)?, w.load(p + 4)?);
        found.present |= ATTACHMENT;
    }
    if let Some(p) = value_offset(offsets, 3, at) {
        found.cookie = w.be32(p)?;
        found.present |= COOKIE;
    }
    Ok(found)
}

/// Returns the offset of the value of the known option `index`, if it was found.
#[inline(always)]
fn value_offset(offsets: u32, index: u32, at: usize) -> Option<usize> {
    let word = (offsets >> (index * 8)) & 0x7f;
    if word == 0 { None } else { Some(at + mask_options((word as usize - 1) * 4) + 4) }
}

/// Writes the three options with AWS's class and order to `out`, for Weir's own tunnels to
/// backends.
#[inline(always)]
pub fn own_options(out: &mut [u8; OWN_OPTIONS], endpoint: u64, attachment: u64, cookie: u32) {
    for (to, word) in
        out.as_chunks_mut::<8>().0.iter_mut().zip(own_words(endpoint, attachment, cookie))
    {
        *to = word.to_ne_bytes();
    }
}

/// Returns the options that [`own_options`] writes, as words in wire order.
#[inline(always)]
pub const fn own_words(endpoint: u64, attachment: u64, cookie: u32) -> [u64; OWN_OPTIONS / 8] {
    gateway_words(CLASS_AWS, endpoint, attachment, cookie)
}

/// Returns the three options of a gateway with this class, as words in wire order;
/// [`usual_options`] parses them.
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

/// Writes a header at `at`; the caller writes the `opt_len` bytes of options that follow.
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

/// Checks for arbitrary bytes that parsing ends, and that [`options`] agrees with the generic walk.
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
