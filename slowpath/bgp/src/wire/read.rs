//! A bounds-checked reader of octets, which returns `None` at the end and never panics.

/// The octets that are left to read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns whether all octets were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next `count` octets.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns the next `N` octets.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Returns the next octet.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    /// Returns the next two octets as a big-endian number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns the next four octets as a big-endian number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
}
