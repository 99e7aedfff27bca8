//! What people call things that have numbers in the tables.

/// The arms by their numbers.
pub const ARMS: [&str; 2] = ["ingress", "egress"];

/// The name of the service of whose choices one is called so in the region; cut where it is too
/// long.
pub fn service_of(name: &str) -> &str {
    name.split_once('~').map_or(name, |(service, _)| service)
}

/// A protocol number for people; `*` for 0, "any".
pub fn protocol_text(protocol: u8) -> String {
    match protocol {
        0 => "*".to_owned(),
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        number => number.to_string(),
    }
}

/// `address:port`, with brackets around IPv6; without the port when it is 0.
pub fn address_port(address: &str, port: u16) -> String {
    match (address.contains(':'), port) {
        (_, 0) => address.to_owned(),
        (true, _) => format!("[{address}]:{port}"),
        (false, _) => format!("{address}:{port}"),
    }
}
