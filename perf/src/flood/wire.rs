//! Frames of a simulation: built once, written anew for each flow, and read back where they leave.

use crate::feed::{INNER, PLAIN};
use fastpath::port::Buffer;
use fastpath::port::memory::Frame;
use packet::window::Window;
use std::cell::RefCell;
use std::rc::Rc;

/// One end of a flow: IPv4 address and port, in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Address.
    pub addr: u32,
    /// Port.
    pub port: u16,
}

/// A frame that is written again and again with other ends.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where the IPv4 header begins that has the ends, and one that encloses it.
    ip: usize,
    around: Option<usize>,
}

impl Template {
    /// A packet in a gateway's tunnel, as [`crate::feed`] builds it.
    pub fn inner(frame: Vec<u8>) -> Template {
        Template { bytes: frame, ip: INNER, around: None }
    }

    /// A packet in no tunnel.
    pub fn plain(frame: Vec<u8>) -> Template {
        Template { bytes: frame, ip: PLAIN, around: None }
    }

    /// An ICMP error: its quote has the ends, and it goes itself to the quote's sender.
    pub fn quoting(self) -> Template {
        Template { around: Some(self.ip), ip: self.ip + 28, ..self }
    }

    /// Writes other ends.
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

    /// Writes another identification.
    pub fn id(&mut self, id: u16) -> &mut Template {
        let ip = self.ip;
        self.put(ip + 4, &id.to_be_bytes());
        self.sum(ip);
        self
    }

    /// Writes another gateway endpoint (AWS's first option).
    pub fn endpoint(&mut self, endpoint: u64) -> &mut Template {
        // Ethernet, IPv4, UDP, GENEVE, and the header of an option.
        self.put(14 + 20 + 8 + 8 + 4, &endpoint.to_be_bytes());
        self
    }

    /// The frame as it is now.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes an IPv4 header's checksum right; the L4 checksum is the template's, which nobody on
    /// the way looks at.
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

/// Frames that wait to be used again.
pub type Pool = Rc<RefCell<Vec<Frame>>>;

/// A buffer that knows whose packet it is, and returns its memory when it is dropped.
pub struct Tagged {
    frame: Frame,
    /// Whose packet it is.
    pub tag: u32,
    pool: Pool,
}

impl Tagged {
    /// A buffer with these bytes.
    pub fn new(pool: &Pool, bytes: &[u8], tag: u32) -> Tagged {
        let mut frame = pool.borrow_mut().pop().unwrap_or_default();
        frame.renew(bytes);
        Tagged { frame, tag, pool: Rc::clone(pool) }
    }

    /// Its bytes; frames here are in one segment.
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
