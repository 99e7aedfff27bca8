//! Text representation of addresses, prefixes and protocols for serde.

use crate::checked::{Prefix, address_and_length, mask};

/// Parses an address, or a network whose host bits are zero.
///
/// # Errors
/// Returns a message if the text is neither.
pub fn prefix_of(text: &str) -> Result<Prefix, String> {
    let fault = || {
        format!(
            "`{text}` is neither an address nor a network, expected \"203.0.113.10\" or \
             \"10.0.0.0/24\""
        )
    };
    let (addr, len) = address_and_length(text).ok_or_else(fault)?;
    let network = Prefix { addr: mask(addr, len), len };
    if network.addr == addr {
        return Ok(network);
    }
    Err(format!(
        "`{text}` has bits after its prefix length, expected \"{network}\" for the network"
    ))
}

/// Formats a prefix; the length of a single address is omitted.
pub fn prefix_text(prefix: &Prefix) -> String {
    if prefix.is_single() { prefix.addr.to_string() } else { prefix.to_string() }
}

/// Returns whether a value is its type's default, so that it need not be written.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Prefixes for serde.
pub mod prefix {
    use super::{Prefix, prefix_of, prefix_text};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes as text.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(prefix: &Prefix, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&prefix_text(prefix))
    }

    /// Deserializes from text.
    ///
    /// # Errors
    /// Returns an error if the text is neither an address nor a network.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Prefix, D::Error> {
        prefix_of(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// IDs of gateway endpoints for serde; an empty text is 0, which means all endpoints.
pub mod scope {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes as hexadecimal.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{id:#x}"))
    }

    /// Deserializes from hexadecimal.
    ///
    /// # Errors
    /// Returns an error if the text is not an ID.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() {
            return Ok(0);
        }
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        let id = u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0);
        id.ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not an endpoint ID, expected one in hexadecimal, 0x1 to \
                 0xffffffffffffffff, or an empty text for all endpoints"
            ))
        })
    }
}

/// Lists of prefixes for serde.
pub mod prefixes {
    use super::{Prefix, prefix_of, prefix_text};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes as a list of texts.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(list: &[Prefix], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(prefix_text))
    }

    /// Deserializes from a list of texts.
    ///
    /// # Errors
    /// Returns an error if a text is neither an address nor a network.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Prefix>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| prefix_of(text).map_err(D::Error::custom)).collect()
    }
}

/// IP protocols for serde.
pub mod protocol {
    use crate::protocol;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes as a name.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(number: &u8, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&protocol::name(*number))
    }

    /// Deserializes from a name or a number.
    ///
    /// # Errors
    /// Returns an error if there is no such protocol.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
        let text = String::deserialize(from)?;
        protocol::number(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "unknown protocol `{text}`, expected \"tcp\", \"udp\", \"sctp\", \"icmp\", \
                 \"icmpv6\", \"any\" or \"1\" to \"254\""
            ))
        })
    }
}

/// IP addresses for serde.
pub mod address {
    use std::net::IpAddr;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Serializes as text.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(address: &IpAddr, to: S) -> Result<S::Ok, S::Error> {
        address.serialize(to)
    }

    /// Deserializes from text.
    ///
    /// # Errors
    /// Returns an error if the text is not an address.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IpAddr, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| {
            D::Error::custom(format!(
                "`{text}` is not an IP address, expected \"10.0.1.10\" or \"fd00:1::10\""
            ))
        })
    }
}

/// Optional IP addresses for serde; an empty text is `None`.
pub mod optional_address {
    use std::net::IpAddr;

    use serde::de::IntoDeserializer;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::address;

    /// Serializes as text.
    ///
    /// # Errors
    /// Returns the serializer's errors.
    pub fn serialize<S: Serializer>(address: &Option<IpAddr>, to: S) -> Result<S::Ok, S::Error> {
        address.serialize(to)
    }

    /// Deserializes from text.
    ///
    /// # Errors
    /// Returns an error if the text is not an address.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<IpAddr>, D::Error> {
        let text = Option::<String>::deserialize(from)?.filter(|text| !text.is_empty());
        text.map(|text| address::deserialize(text.into_deserializer())).transpose()
    }
}
