//! Frames of a simulation: built once, rewritten for each flow, and parsed where they leave.

use crate::feed::{INNER, PLAIN};
use fastpath::port::Buffer;
use fastpath::port::memory::Frame;
use packet::window::Window;
use std::cell::RefCell;
use std::rc::Rc;

/// One end of a flow: IPv4 address and port, in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// The IPv4 address.
    pub addr: u32,
    /// The port.
    pub port: u16,
}

/// A frame that is rewritten repeatedly with other ends.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// The offset of the IPv4 header with the ends.
    ip: usize,
    /// For an ICMP error, the offset of its own IPv4 header; `ip` is then that of the quoted
    /// packet.
    around: Option<usize>,
}

impl Template {
    /// Creates a template of a packet in a gateway's tunnel, as [`crate::feed`] builds it.
    pub fn inner(frame: Vec<u8>) -> Template {
        Template { bytes: frame, ip: INNER, around: None }
    }

    /// Creates a template of a packet without a tunnel.
    pub fn plain(frame: Vec<u8>) -> Template {
        Template { bytes: frame, ip: PLAIN, around: None }
    }

    /// Makes the template an ICMP error whose quoted packet has the ends; the error is sent to the
    /// source of the quoted packet.
    pub fn quoting(self) -> Template {
        Template { around: Some(self.ip), ip: self.ip + 28, ..self }
    }

    /// Sets the ends.
    pub fn ends(&mut self, src: End, dst: End) -> &mut Template {
        let ip = self.ip;
        self.put(ip + 12, &src.addr.to_be_bytes());
        self.put(ip + 16, &dst.addr.to_be_bytes());
        self.put(ip + 20, &src.port.to_be_bytes());
        self.put(ip + 22, &dst.port.to_be_bytes());
        self.sum(ip);
        if let Some(around) = self.around {
            self.put(around + 16, &src.addr.to_be_bytes());
            self.sum(around);
            self.sum_error(around);
        }
        self
    }

    /// Sets the IPv4 identification.
    pub fn id(&mut self, id: u16) -> &mut Template {
        let ip = self.ip;
        self.put(ip + 4, &id.to_be_bytes());
        self.sum(ip);
        self
    }

    /// Sets the gateway endpoint (AWS's first option).
    pub fn endpoint(&mut self, endpoint: u64) -> &mut Template {
        // Ethernet, IPv4, UDP, GENEVE, and the header of an option.
        self.put(14 + 20 + 8 + 8 + 4, &endpoint.to_be_bytes());
        self
    }

    /// Returns the current frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Updates the checksum of the IPv4 header at `ip`. The L4 checksum remains the template's,
    /// since nothing on the path verifies it.
    fn sum(&mut self, ip: usize) {
        self.put(ip + 10, &[0, 0]);
        let sum = tests::frames::sum::checksum(&self.bytes[ip..ip + 20]);
        self.put(ip + 10, &sum.to_be_bytes());
    }

    fn sum_error(&mut self, around: usize) {
        let icmp = around + 20;
        self.put(icmp + 2, &[0, 0]);
        let sum = tests::frames::sum::checksum(&self.bytes[icmp..]);
        self.put(icmp + 2, &sum.to_be_bytes());
    }
}

/// Reads the ends of the packet whose IPv4 header without options begins at `ip`.
pub fn ends(frame: &[u8], ip: usize) -> Option<(End, End)> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let ports = word(ip + 20)?;
    let src = End { addr: word(ip + 12)?, port: (ports >> 16) as u16 };
    Some((src, End { addr: word(ip + 16)?, port: ports as u16 }))
}

/// Unused frames for reuse.
pub type Pool = Rc<RefCell<Vec<Frame>>>;

/// A buffer with a tag that identifies its packet; on drop its memory returns to the pool.
pub struct Tagged {
    frame: Frame,
    /// The index of the packet among the honest packets of its burst, or the flood's tag.
    pub tag: u32,
    pool: Pool,
}

impl Tagged {
    /// Creates a buffer with these bytes.
    pub fn new(pool: &Pool, bytes: &[u8], tag: u32) -> Tagged {
        let mut frame = pool.borrow_mut().pop().unwrap_or_default();
        frame.renew(bytes);
        Tagged { frame, tag, pool: Rc::clone(pool) }
    }

    /// Returns the bytes; frames here have one segment.
    pub fn bytes(&self) -> &[u8] {
        self.frame.first()
    }
}

impl Drop for Tagged {
    fn drop(&mut self) {
        self.pool.borrow_mut().push(std::mem::take(&mut self.frame));
    }
}

impl Buffer for Tagged {
    fn window(&mut self) -> Window<'_> {
        self.frame.window()
    }

    fn len(&self) -> usize {
        self.frame.len()
    }

    fn is_chained(&self) -> bool {
        self.frame.is_chained()
    }

    fn strip(&mut self, n: usize) -> bool {
        self.frame.strip(n)
    }

    fn grow(&mut self, n: usize) -> bool {
        self.frame.grow(n)
    }

    fn truncate(&mut self, len: usize) -> bool {
        self.frame.truncate(len)
    }

    fn copy_to(&self, out: &mut [u8]) -> usize {
        self.frame.copy_to(out)
    }
}
