//! Selection of a table's rows by their first column.

use config::checked::Prefix;

use super::Table;
use config::services::text::prefix_of;

/// Filter of rows by their key, the first column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyFilter {
    /// Selects keys that begin with this text; all keys if it is empty.
    Text(String),
    /// Selects keys whose address or network lies within this network.
    Network(Prefix),
}

impl KeyFilter {
    /// Parses a filter for one of the tables. If the keys are addresses, `10.0.0.0/8` or `fd00::/8`
    /// is a network; an invalid network is an error, because no key begins with it.
    pub fn new(table: Table, text: &str) -> Result<KeyFilter, String> {
        let by_address = matches!(table, Table::Frontends | Table::Backends);
        match network_of(text).filter(|_| by_address) {
            None => Ok(KeyFilter::Text(text.to_owned())),
            Some(network) => prefix_of(network).map(KeyFilter::Network).map_err(|wrong| {
                format!("prefix: {wrong}; or write the first characters of an address")
            }),
        }
    }

    /// Returns whether the row with this key is selected.
    pub fn selects(&self, key: &str) -> bool {
        match self {
            KeyFilter::Text(text) => key.starts_with(text),
            KeyFilter::Network(network) => key_prefix(key)
                .is_some_and(|of| of.len128() >= network.len128() && network.contains(of.addr)),
        }
    }
}

/// Returns the text of a network without brackets if the text has the form `ADDRESS/LENGTH` or
/// `[ADDRESS/LENGTH]`; `None` for other texts, such as `10.0.0.1:80/TCP` or the beginning of one.
fn network_of(text: &str) -> Option<&str> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let (address, length) = bare.split_once('/')?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    // After a port comes a protocol, which may be a number: `10.0.0.1:80/47`.
    let has_port = address.starts_with('[') || address.matches(':').count() == 1;
    (digits && !has_port).then_some(bare)
}

/// Returns the address or network at the beginning of `10.0.0.1:80/TCP` or `[fd00::/8]:*/*`.
fn key_prefix(key: &str) -> Option<Prefix> {
    let address = match key.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0,
        None => key.split_once(':')?.0,
    };
    prefix_of(address).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected<'k>(text: &str, keys: &[&'k str]) -> Vec<&'k str> {
        let filter = KeyFilter::new(Table::Backends, text).unwrap();
        keys.iter().copied().filter(|key| filter.selects(key)).collect()
    }

    #[test]
    fn filter_by_network_or_key_prefix() {
        let keys = [
            "9.255.255.255:80/TCP",
            "10.0.0.0/8:*/*",
            "10.0.0.0/7:*/*",
            "10.0.2.11:8080/TCP",
            "10.200.0.1:53/47",
            "11.0.0.1:80/TCP",
            "[fd00::2]:80/TCP",
            "[fd00::/8]:*/*",
            "[fe80::2]:80/TCP",
        ];
        let ten = ["10.0.0.0/8:*/*", "10.0.2.11:8080/TCP", "10.200.0.1:53/47"];
        assert_eq!(selected("10.0.0.0/8", &keys), ten);
        assert_eq!(selected("10.0.2.11/32", &keys), ["10.0.2.11:8080/TCP"]);
        let unique = ["[fd00::2]:80/TCP", "[fd00::/8]:*/*"];
        assert_eq!(selected("fd00::/8", &keys), unique);
        assert_eq!(selected("[fd00::/8]", &keys), unique);
        assert_eq!(selected("::/0", &keys), ["[fd00::2]:80/TCP", "[fd00::/8]:*/*", keys[8]]);
        assert_eq!(selected("0.0.0.0/0", &keys), keys[..6]);
        // The text is not a network, and selects the keys that begin with it.
        assert_eq!(selected("10.0.0.0/", &keys), ["10.0.0.0/8:*/*", "10.0.0.0/7:*/*"]);
        assert_eq!(selected("10.200.0.1:53/47", &keys), ["10.200.0.1:53/47"]);
        assert_eq!(selected("[fd00::2]:80/T", &keys), ["[fd00::2]:80/TCP"]);
        assert_eq!(selected("", &keys), keys);
    }

    #[test]
    fn invalid_network_is_rejected_where_keys_are_addresses() {
        let wrong = |text| KeyFilter::new(Table::Frontends, text).unwrap_err();
        let bits = wrong("10.0.0.1/8");
        assert!(bits.contains("expected \"10.0.0.0/8\" for the network"), "{bits}");
        for text in ["10.0.0.0/33", "10.0.0.300/8", "fd00::/129", "[fd00::/300]"] {
            let text = wrong(text);
            assert!(
                text.starts_with("prefix: `") && text.contains("neither an address nor a network"),
                "{text}"
            );
        }
        let service = KeyFilter::new(Table::Services, "10.0.0.1/8").unwrap();
        assert!(service.selects("10.0.0.1/8-web") && !service.selects("10.0.0.1/9"));
    }
}
