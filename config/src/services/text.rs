//! How prefixes and protocols are written, and what need not be.

use crate::checked::{Prefix, address_and_length, mask};

/// An address, or a network whose bits after its length are zero.
///
/// # Errors
/// It is neither.
pub fn prefix_of(text: &str) -> Result<Prefix, String> {
    let wrong = || {
        format!(
            "`{text}` is no address and no network, expected \"203.0.113.10\" or \"10.0.0.0/24\""
        )
    };
    let (addr, len) = address_and_length(text).ok_or_else(wrong)?;
    let network = Prefix { addr: mask(addr, len), len };
    if network.addr == addr {
        return Ok(network);
    }
    Err(format!(
        "`{text}` has bits after its prefix length, expected \"{network}\" for the network"
    ))
}

/// The reverse.
pub fn prefix_text(prefix: &Prefix) -> String {
    if prefix.is_single() { prefix.addr.to_string() } else { prefix.to_string() }
}

/// Whether a value is its type's default, so that it need not be written.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Lists of prefixes for serde.
pub mod prefixes {
    use super::{Prefix, prefix_of, prefix_text};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// As texts.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(list: &[Prefix], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(prefix_text))
    }

    /// From texts.
    ///
    /// # Errors
    /// A text is no address and no network.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Prefix>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| prefix_of(text).map_err(D::Error::custom)).collect()
    }
}

/// Protocols for serde.
pub mod protocol {
    use crate::protocol;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// By name.
    ///
    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(number: &u8, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&protocol::name(*number))
    }

    /// From a name or a number.
    ///
    /// # Errors
    /// There is no such protocol.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
        let text = String::deserialize(from)?;
        protocol::number(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "there is no protocol `{text}`, expected \"tcp\", \"udp\", \"sctp\", \"icmp\", \
                 \"icmpv6\", \"any\" or \"1\" to \"254\""
            ))
        })
    }
}
