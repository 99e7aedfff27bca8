//! Writer of pcapng (draft-ietf-opsawg-pcapng): section header, interface descriptions, packets
//! with comments, and interface statistics, in little-endian byte order.

/// Link type of Ethernet.
const ETHERNET: u16 = 1;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Length of an option is 16 bits; longer text is cut.
const MAX_TEXT: usize = u16::MAX as usize - 3;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TIME_RESOLUTION: u16 = 9;
const IF_FILTER: u16 = 11;
const PACKET_FLAGS: u16 = 2;
const PACKET_ID: u16 = 5;
const START_TIME: u16 = 2;
const END_TIME: u16 = 3;
const DROPPED: u16 = 5;
const ACCEPTED: u16 = 6;
const DELIVERED: u16 = 8;

/// Whether a packet arrived on its interface or leaves by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The packet arrived.
    Inbound,
    /// The packet leaves.
    Outbound,
}

/// An interface, to which packets refer by the number of its description.
pub struct Interface<'a> {
    /// Name.
    pub name: &'a str,
    /// What it is.
    pub description: &'a str,
    /// The filter of the capture.
    pub filter: &'a str,
    /// Maximum number of bytes of each frame.
    pub snap: u16,
}

/// A captured frame.
pub struct Packet<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Length of the whole frame in bytes.
    pub frame_len: u32,
    /// The first bytes of the frame.
    pub bytes: &'a [u8],
    /// Comment.
    pub comment: &'a str,
    /// Direction on the interface.
    pub direction: Direction,
    /// Number that all records of one packet have.
    pub id: u64,
}

/// Statistics of an interface at the end of the capture.
pub struct Statistics {
    /// Number of the interface.
    pub interface: u32,
    /// Begin and end of the capture in nanoseconds since 1970.
    pub times_ns: (u64, u64),
    /// Frames that matched the filter.
    pub accepted: u64,
    /// Frames that matched and were lost.
    pub dropped: u64,
    /// Frames in the file.
    pub delivered: u64,
}

/// Appends the section header.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |out| {
        word(out, 0x1a2b_3c4d);
        half(out, 1);
        half(out, 0);
        // The length of the section is not known.
        out.extend(u64::MAX.to_le_bytes());
        option(out, USER_APPLICATION, application.as_bytes());
        half(out, END_OF_OPTIONS);
        half(out, 0);
    });
}

/// Appends the description of the next interface.
pub fn interface(out: &mut Vec<u8>, interface: &Interface<'_>) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        half(out, ETHERNET);
        half(out, 0);
        word(out, interface.snap.into());
        option(out, IF_NAME, interface.name.as_bytes());
        option(out, IF_DESCRIPTION, interface.description.as_bytes());
        // Powers of ten: nanoseconds.
        option(out, IF_TIME_RESOLUTION, &[9]);
        // The first byte: the filter is a text.
        option(out, IF_FILTER, &[&[0], interface.filter.as_bytes()].concat());
        half(out, END_OF_OPTIONS);
        half(out, 0);
    });
}

/// Appends a frame.
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        word(out, packet.interface);
        time(out, packet.time_ns);
        word(out, packet.bytes.len() as u32);
        word(out, packet.frame_len);
        out.extend(packet.bytes);
        pad(out, packet.bytes.len());
        option(out, COMMENT, packet.comment.as_bytes());
        let direction: u32 = match packet.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        option(out, PACKET_FLAGS, &direction.to_le_bytes());
        option(out, PACKET_ID, &packet.id.to_le_bytes());
        half(out, END_OF_OPTIONS);
        half(out, 0);
    });
}

/// Appends the statistics of an interface.
pub fn statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    let (start_ns, end_ns) = statistics.times_ns;
    block(out, INTERFACE_STATISTICS, |out| {
        word(out, statistics.interface);
        time(out, end_ns);
        for (code, ns) in [(START_TIME, start_ns), (END_TIME, end_ns)] {
            let mut bytes = Vec::new();
            time(&mut bytes, ns);
            option(out, code, &bytes);
        }
        let counts = [
            (DROPPED, statistics.dropped),
            (ACCEPTED, statistics.accepted),
            (DELIVERED, statistics.delivered),
        ];
        for (code, count) in counts {
            option(out, code, &count.to_le_bytes());
        }
        half(out, END_OF_OPTIONS);
        half(out, 0);
    });
}

/// Appends a block: its type, its length, what `body` appends, and its length again.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    word(out, len);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(MAX_TEXT)];
    half(out, code);
    half(out, value.len() as u16);
    out.extend(value);
    pad(out, value.len());
}

/// Appends a time: the high word first.
fn time(out: &mut Vec<u8>, ns: u64) {
    word(out, (ns >> 32) as u32);
    word(out, ns as u32);
}

fn half(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_le_bytes());
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

/// Appends zeros up to the next multiple of four of `len` bytes.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(std::iter::repeat_n(0, len.next_multiple_of(4) - len));
}

#[cfg(test)]
mod tests;
