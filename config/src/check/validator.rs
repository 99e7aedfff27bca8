//! `Validator`: parses texts into values, and collects problems so that all are reported.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::checked::{Interface, Prefix, address_and_length, mask};
use crate::error::ConfigProblem;
use crate::layers::Merged;

/// Collects problems and warnings during validation. After a problem, methods return `None` or a
/// placeholder, so that validation continues; neither becomes part of a [`Config`](crate::Config).
pub(crate) struct Validator<'a> {
    merged: &'a Merged,
    pub(crate) problems: Vec<ConfigProblem>,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Validator<'a> {
    pub(crate) fn new(merged: &'a Merged) -> Validator<'a> {
        Validator { merged, problems: Vec::new(), warnings: Vec::new() }
    }

    pub(crate) fn reject(&mut self, key: &str, fault: &str, remedy: &str) {
        self.problems.push(self.merged.problem(key, fault, remedy));
    }

    /// Returns the key and location of a value, for use in a message about another value.
    pub(crate) fn location(&self, key: &str) -> String {
        let problem = self.merged.problem(key, "", "");
        format!("{} ({})", problem.key, problem.location)
    }

    /// Parses a unicast address other than loopback and IPv4-mapped ones.
    pub(crate) fn address(&mut self, key: &str, text: &str) -> Option<IpAddr> {
        match text.parse::<IpAddr>() {
            Ok(addr) if is_usable(addr) => Some(addr),
            Ok(_) => {
                let fault = "not an address that a machine can have";
                self.reject(
                    key,
                    fault,
                    "write a unicast address, not 0.0.0.0, loopback or IPv4-mapped",
                );
                None
            }
            Err(_) => {
                let example = "write an IPv4 or IPv6 address: \"10.0.1.10\", \"fd00:1::10\"";
                self.reject(key, "not an IP address", example);
                None
            }
        }
    }

    /// Parses a network; an address without a prefix length is a network of one address.
    pub(crate) fn prefix(&mut self, key: &str, text: &str) -> Option<Prefix> {
        let Some((addr, len)) = address_and_length(text) else {
            let example = "write \"10.0.0.0/24\", \"fd00:1::/64\" or a single address";
            self.reject(key, "not a network", example);
            return None;
        };
        let network = Prefix { addr: mask(addr, len), len };
        if network.addr != addr {
            let remedy = format!("write \"{network}\" for the network, \"{addr}\" for the address");
            self.reject(key, "the address has bits after its prefix length", &remedy);
        }
        Some(network)
    }

    /// Parses an address with the prefix length of its network.
    pub(crate) fn interface(&mut self, key: &str, text: &str) -> Option<Interface> {
        match address_and_length(text).filter(|(_, len)| text.contains('/') && *len > 0) {
            Some((addr, len)) => {
                self.address(key, &addr.to_string()).map(|addr| Interface { addr, len })
            }
            None => {
                let example = "write \"10.0.1.10/24\" or \"fd00:1::10/64\"";
                self.reject(key, "not an address with prefix length", example);
                None
            }
        }
    }

    /// Parses an address with a port other than 0.
    pub(crate) fn socket(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let parsed = text.parse::<SocketAddr>().ok().filter(|s| s.port() != 0);
        if parsed.is_none() {
            let example = "write \"127.0.0.1:19100\", \"0.0.0.0:8080\" or \"[::]:8080\"";
            self.reject(key, "not an address with port", example);
        }
        parsed
    }

    /// Validates a short name that is safe in metrics, file names and on command lines.
    pub(crate) fn name(&mut self, key: &str, text: &str) {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
        if text.is_empty() || text.len() > 63 || !text.bytes().all(good) {
            self.reject(key, "not a valid name", "write 1 to 63 of a-z, 0-9, `-`, `.` and `_`");
        }
    }

    /// Validates an absolute path of at most `max_len` bytes.
    pub(crate) fn path(&mut self, key: &str, text: &str, max_len: usize) {
        if !text.starts_with('/') || text.ends_with('/') || text.len() > max_len {
            let remedy =
                format!("write an absolute path without a final `/`, at most {max_len} bytes");
            self.reject(key, "not a valid path", &remedy);
        }
    }

    /// Reports each value that occurred before, and names the key of the first occurrence.
    pub(crate) fn unique<T: PartialEq>(&mut self, values: &[(String, T)], what: &str) {
        for (i, (key, value)) in values.iter().enumerate() {
            if let Some((first, _)) = values[..i].iter().find(|(_, v)| v == value) {
                let remedy = format!("the first is {}: change one of them", self.location(first));
                self.reject(key, &format!("the same {what} twice"), &remedy);
            }
        }
    }
}

fn is_usable(addr: IpAddr) -> bool {
    let mapped = matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || mapped || broadcast)
}

/// Returns the key of a list element. If the list has one element, returns the key of the whole
/// list, since a single element may be written as a plain text.
pub(super) fn list_key(section: &str, field: &str, i: usize, texts: &[String]) -> String {
    let key = format!("{section}.{field}");
    if texts.len() == 1 { key } else { format!("{key}.{i}") }
}

/// Parses an optional path; an empty text is `None`.
pub(super) fn optional_path(validator: &mut Validator, key: &str, text: String) -> Option<PathBuf> {
    if text.is_empty() {
        return None;
    }
    validator.path(key, &text, 4000);
    Some(text.into())
}

/// Parses a port range `first-last` that starts at `min` or later. Otherwise reports a problem that
/// shows `example`, and returns a placeholder.
pub(super) fn port_range(
    validator: &mut Validator,
    key: &str,
    text: &str,
    (min, example): (u16, &str),
) -> (u16, u16) {
    let ports = text.split_once('-').and_then(|(first, last)| {
        Some((first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?))
    });
    ports.filter(|(first, last)| *first >= min && first <= last).unwrap_or_else(|| {
        let remedy =
            format!("write \"first-last\" within {min} and 65535, for example \"{example}\"");
        validator.reject(key, "not a range of ports", &remedy);
        (0, 0)
    })
}
