//! Replaces placeholder ports wherever they occur in a packet.

use super::structure::{Body, Ip};

impl Ip {
    /// Replaces each port, echo identifier, flow label, identification and 16-bit word of GENEVE
    /// options by what `new` returns for it, also in inner and quoted packets. Each is replaced
    /// once: a new value that is itself a placeholder stays.
    pub fn rename_ports(&mut self, new: &impl Fn(u16) -> u16) {
        for end in [&mut self.src, &mut self.dst] {
            let (before, after) = (end.port(), new(end.port()));
            if before != after {
                end.set_port(after);
            }
        }
        if let Ok(id) = u16::try_from(self.id) {
            self.id = u32::from(new(id));
        }
        self.label = new(self.label);
        if let Body::Geneve(header, _) = &mut self.body {
            for word in header.options.chunks_exact_mut(2) {
                let after = new(u16::from_be_bytes([word[0], word[1]]));
                word.copy_from_slice(&after.to_be_bytes());
            }
        }
        if let Some(inner) = self.body.inner_mut() {
            inner.rename_ports(new);
        }
    }

    /// Returns whether [`Ip::rename_ports`] would replace `port` anywhere in the packet.
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
