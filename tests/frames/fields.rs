//! Parses a frame into fields, to describe the differences between two frames.

use std::fmt::Write;

/// A named field of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The layer, with a number from its second occurrence on: "ipv4", "ipv4 2".
    pub layer: String,
    /// The field's name in that layer.
    pub name: String,
    /// Offset of the first byte.
    pub at: usize,
    /// Length in bytes.
    pub len: usize,
}

/// A layer's fields of fixed length, in order: name and length in bytes.
type Shape = &'static [(&'static str, usize)];

const ETHERNET: Shape = &[("to", 6), ("from", 6), ("ethertype", 2)];
const VLAN: Shape = &[("tag", 2), ("ethertype", 2)];
const IPV4: Shape = &[
    ("version+ihl", 1),
    ("tos", 1),
    ("total length", 2),
    ("id", 2),
    ("fragment", 2),
    ("ttl", 1),
    ("protocol", 1),
    ("header checksum", 2),
    ("source", 4),
    ("destination", 4),
];
const IPV6: Shape = &[
    ("version+class+label", 4),
    ("payload length", 2),
    ("next header", 1),
    ("hop limit", 1),
    ("source", 16),
    ("destination", 16),
];
const TCP: Shape = &[
    ("source port", 2),
    ("destination port", 2),
    ("seq", 4),
    ("ack", 4),
    ("offset", 1),
    ("flags", 1),
    ("window", 2),
    ("checksum", 2),
    ("urgent", 2),
];
const UDP: Shape = &[("source port", 2), ("destination port", 2), ("length", 2), ("checksum", 2)];
const ICMP: Shape = &[("type", 1), ("code", 1), ("checksum", 2), ("id/mtu", 4)];
const GENEVE: Shape =
    &[("version+opt len", 1), ("flags", 1), ("protocol", 2), ("vni", 3), ("reserved", 1)];
const OPTION: Shape = &[("class", 2), ("type", 1), ("length", 1)];
const VXLAN: Shape = &[("flags", 4), ("vni", 3), ("reserved", 1)];

/// UDP ports that are parsed as tunnels: the assigned ones, and those of the cases' Azure gateway
/// before its pool changes.
const GENEVE_PORT: u16 = 6081;
const VXLAN_PORTS: [u16; 4] = [4789, 10_800, 10_801, 10_802];
const GUE_PORT: u16 = 6080;

/// The fields parsed so far, the current layer, and the offset of the next field.
struct FieldParser<'a> {
    bytes: &'a [u8],
    at: usize,
    layer: String,
    fields: Vec<Field>,
}

/// Returns all fields of a frame, as far as it can be parsed.
pub fn fields(frame: &[u8]) -> Vec<Field> {
    let mut parser = FieldParser { bytes: frame, at: 0, layer: String::new(), fields: Vec::new() };
    parser.ethernet();
    if parser.at < frame.len() {
        let len = frame.len() - parser.at;
        parser.push("payload", &[]);
        parser.field("bytes", len);
    }
    parser.fields
}

impl FieldParser<'_> {
    fn be16(&self, at: usize) -> u16 {
        match self.bytes.get(at..at + 2) {
            Some(pair) => u16::from_be_bytes([pair[0], pair[1]]),
            None => 0,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// Adds a field of the current layer, truncated at the end of the frame.
    fn field(&mut self, name: &str, len: usize) {
        let len = len.min(self.bytes.len() - self.at);
        if len > 0 {
            let (layer, name) = (self.layer.clone(), name.to_owned());
            self.fields.push(Field { layer, name, at: self.at, len });
            self.at += len;
        }
    }

    /// Begins a layer, adds its fields and returns its offset.
    fn push(&mut self, layer: &str, shape: Shape) -> usize {
        let begin = self.at;
        let count = self
            .fields
            .iter()
            .filter(|f| f.layer.split(' ').next() == Some(layer) && f.name == first_field(shape))
            .count();
        self.layer = if count == 0 { layer.to_owned() } else { format!("{layer} {}", count + 1) };
        for (name, len) in shape {
            self.field(name, *len);
        }
        begin
    }

    fn ethernet(&mut self) {
        let begin = self.push("ethernet", ETHERNET);
        let mut ethertype = self.be16(begin + 12);
        if ethertype == 0x8100 {
            let begin = self.push("vlan", VLAN);
            ethertype = self.be16(begin + 2);
        }
        match ethertype {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            _ => {}
        }
    }

    fn ipv4(&mut self) {
        let begin = self.push("ipv4", IPV4);
        let header = usize::from(self.byte(begin) & 15) * 4;
        if header > 20 {
            self.field("options", header - 20);
        }
        if self.be16(begin + 6) & 0x1fff == 0 {
            self.l4(self.byte(begin + 9));
        }
    }

    fn ipv6(&mut self) {
        let begin = self.push("ipv6", IPV6);
        let mut next = self.byte(begin + 6);
        while matches!(next, 0 | 43 | 44 | 51 | 60) && self.at + 8 <= self.bytes.len() {
            let start = self.at;
            let len = match next {
                44 => 8,
                51 => 4 * (usize::from(self.byte(start + 1)) + 2),
                _ => 8 * (usize::from(self.byte(start + 1)) + 1),
            };
            let later = next == 44 && self.be16(start + 2) & !7 != 0;
            self.field(&format!("extension {next}"), len);
            next = self.byte(start);
            if later {
                return;
            }
        }
        self.l4(next);
    }

    /// Parses what follows an IP header, by protocol.
    fn l4(&mut self, proto: u8) {
        match proto {
            4 => self.ipv4(),
            41 => self.ipv6(),
            6 => {
                let begin = self.push("tcp", TCP);
                let header = usize::from(self.byte(begin + 12) >> 4) * 4;
                if header > 20 {
                    self.field("options", header - 20);
                }
            }
            17 => {
                let begin = self.push("udp", UDP);
                self.tunnel(self.be16(begin + 2));
            }
            1 | 58 => {
                let begin = self.push("icmp", ICMP);
                match (proto, self.byte(begin)) {
                    (1, 3 | 4 | 5 | 11 | 12) => self.ipv4(),
                    (58, 1..=4) => self.ipv6(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn tunnel(&mut self, port: u16) {
        if port == GENEVE_PORT {
            let begin = self.push("geneve", GENEVE);
            let end = begin + 8 + usize::from(self.byte(begin) & 0x3f) * 4;
            while self.at < end.min(self.bytes.len()) {
                let option = self.push("option", OPTION);
                self.field("value", usize::from(self.byte(option + 3) & 0x1f) * 4);
            }
            match self.be16(begin + 2) {
                0x0800 => self.ipv4(),
                0x86dd => self.ipv6(),
                _ => {}
            }
        } else if VXLAN_PORTS.contains(&port) {
            self.push("vxlan", VXLAN);
            self.ethernet();
        } else if port == GUE_PORT {
            match self.byte(self.at) >> 4 {
                4 => self.ipv4(),
                6 => self.ipv6(),
                _ => {}
            }
        }
    }
}

/// Returns the name of a layer's first field, by which occurrences of the layer are counted.
fn first_field(shape: Shape) -> &'static str {
    shape.first().map_or("", |(name, _)| name)
}

fn hex(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().take(24).map(|b| format!("{b:02x}")).collect();
    let rest = if bytes.len() > 24 { " ..." } else { "" };
    format!("{}{rest}", shown.join(" "))
}

/// Describes the fields of a frame, one line per layer.
pub fn describe(frame: &[u8]) -> String {
    let mut text = String::new();
    let mut layer = "";
    let fields = fields(frame);
    for field in &fields {
        if field.layer != layer {
            let _ = write!(text, "\n    {:>3} {:<10}", field.at, field.layer);
            layer = &field.layer;
        }
        let _ = write!(text, " {}={}", field.name, hex(&frame[field.at..field.at + field.len]));
    }
    text
}

/// Describes how `actual` differs from `expected`: each differing field by layer and name, the
/// bytes around the first difference, and all fields of `actual`. `None` if both are equal.
pub fn difference(expected: &[u8], actual: &[u8]) -> Option<String> {
    if expected == actual {
        return None;
    }
    let mut text = String::new();
    if expected.len() != actual.len() {
        let _ = writeln!(text, "  {} bytes expected, {} received", expected.len(), actual.len());
    }
    for field in fields(expected) {
        let part = &expected[field.at..field.at + field.len];
        let end = (field.at + field.len).min(actual.len());
        let found = &actual[field.at.min(end)..end];
        if part != found {
            let Field { layer, name, at, .. } = &field;
            let _ = writeln!(text, "  {layer} {name} at {at}");
            let _ = writeln!(text, "    expected {}\n    received {}", hex(part), hex(found));
        }
    }
    let first = expected.iter().zip(actual).take_while(|(a, b)| a == b).count();
    let from = first.saturating_sub(8) / 8 * 8;
    let around = |bytes: &[u8]| hex(&bytes[from.min(bytes.len())..(from + 24).min(bytes.len())]);
    let _ = writeln!(text, "  first difference at byte {first}; from byte {from}:");
    let _ = writeln!(text, "    expected {}\n    received {}", around(expected), around(actual));
    let _ = writeln!(text, "  received:{}", describe(actual));
    Some(text)
}
