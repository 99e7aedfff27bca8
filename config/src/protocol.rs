//! Names and numbers of IP protocols in files and objects.

use std::borrow::Cow;

/// Returns the number of a protocol given by name or number; `any` is 0. Number 255 is reserved for
/// internal use of the tables.
pub fn number(text: &str) -> Option<u8> {
    match text {
        "any" => Some(0),
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmpv6" => Some(58),
        "sctp" => Some(132),
        number => number.parse().ok().filter(|number| (1..255).contains(number)),
    }
}

/// Returns the name of a protocol, or its number as text if it has none.
pub fn name(number: u8) -> Cow<'static, str> {
    match number {
        0 => "any".into(),
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmpv6".into(),
        132 => "sctp".into(),
        number => number.to_string().into(),
    }
}
