//! Replaces placeholder ports wherever they occur in a packet.

use super::structure::{Body, Ip};

impl Ip {
    /// Replaces `from` by `to` wherever it occurs as a port, an echo identifier, a flow label, an
    /// identification or a 16-bit word of GENEVE options, also in inner and quoted packets.
    pub fn rename_port(&mut self, from: u16, to: u16) {
        for end in [&mut self.src, &mut self.dst] {
            if end.port() == from {
                end.set_port(to);
            }
        }
        if self.id == u32::from(from) {
            self.id = u32::from(to);
        }
        if self.label == from {
            self.label = to;
        }
        if let Body::Geneve(header, _) = &mut self.body {
            for word in header.options.chunks_exact_mut(2).filter(|w| **w == from.to_be_bytes()) {
                word.copy_from_slice(&to.to_be_bytes());
            }
        }
        if let Some(inner) = self.body.inner_mut() {
            inner.rename_port(from, to);
        }
    }

    /// Returns whether [`Ip::rename_port`] would replace `port`.
    pub fn mentions_port(&self, port: u16) -> bool {
        let mut words = match &self.body {
            Body::Geneve(header, _) => header.options.chunks_exact(2),
            _ => [].chunks_exact(2),
        };
        [self.src.port(), self.dst.port(), self.label].contains(&port)
            || self.id == u32::from(port)
            || words.any(|word| word == port.to_be_bytes())
            || self.body.inner().is_some_and(|inner| inner.mentions_port(port))
    }
}
