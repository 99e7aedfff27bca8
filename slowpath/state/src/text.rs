//! Text for values that the region stores as numbers, and for the service names in the region.

/// Names of the arms, indexed by arm number.
pub const ARMS: [&str; 2] = ["ingress", "egress"];

/// Returns the name of the service to which an entry of the region belongs. The region has an entry
/// for each set of a service's frontends that share their backends, named `service` or
/// `service~suffix`, for example `shop/web~udp4`. Names of entries are cut to
/// [`crate::name::NAME_BYTES`] bytes, so a long service name may be incomplete.
pub fn service_of(name: &str) -> &str {
    name.split_once('~').map_or(name, |(service, _)| service)
}

/// Returns the name of an IP protocol, its number if this function knows no name, or `*` for 0,
/// which stands for any protocol.
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

/// Formats `address:port`, with brackets around IPv6, and without the port when it is 0.
pub fn address_port(address: &str, port: u16) -> String {
    match (address.contains(':'), port) {
        (_, 0) => address.to_owned(),
        (true, _) => format!("[{address}]:{port}"),
        (false, _) => format!("{address}:{port}"),
    }
}
