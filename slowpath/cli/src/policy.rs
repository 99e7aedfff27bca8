//! Options of `weir service`, and their conversion to objects.

use std::net::IpAddr;
use std::num::NonZeroU16;

use clap::Args;
use config::services::{BackendTunnel, MODE_KEYS, Mode, TunnelKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Settings of a service; settings that are not given remain unchanged.
#[derive(Args)]
pub struct ServiceSettings {
    /// How packets reach the backends [default for new services: nat]
    #[arg(long, value_parser = ["nat", "tunnel", "dsr"])]
    mode: Option<String>,
    /// Tunnel to the backends, for modes tunnel and dsr
    #[arg(long, value_parser = ["geneve", "vxlan", "ipip", "gue"])]
    tunnel: Option<String>,
    /// UDP destination port of the tunnel
    #[arg(long, value_name = "PORT")]
    tunnel_port: Option<u16>,
    /// Virtual network identifier of the tunnel (geneve, vxlan)
    #[arg(long, value_name = "NUMBER")]
    vni: Option<u32>,
    /// How a backend is selected for a new flow
    #[arg(long, value_parser = ["maglev", "random"])]
    algorithm: Option<String>,
    /// Session affinity in seconds: a client address keeps its backend; 0 for no affinity
    #[arg(long, value_name = "SECONDS")]
    affinity: Option<u32>,
    /// Allow only clients of these networks; `any` for no restriction
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    allow: Vec<String>,
    /// Deny clients of these networks and allow all others
    #[arg(long, value_delimiter = ',', value_name = "PREFIX", conflicts_with = "allow")]
    deny: Vec<String>,
    /// Backends that serve packets from outside the cluster
    #[arg(long, value_parser = ["cluster", "local"])]
    external_policy: Option<String>,
    /// Backends that serve packets from within the cluster
    #[arg(long, value_parser = ["cluster", "local"])]
    internal_policy: Option<String>,
    /// Preferred backends by location
    #[arg(long, value_parser = ["any", "same-zone", "same-node"])]
    distribution: Option<String>,
    /// Address family translation with mode nat
    #[arg(long, value_parser = ["none", "nat46", "nat64"])]
    nat_policy: Option<String>,
    /// Health check of the backends: tcp, http:8080/healthz, https/healthz, or none
    #[arg(long, value_parser = parse_probe, value_name = "KIND[:PORT][/PATH]")]
    health: Option<Value>,
    /// Milliseconds between two health checks
    #[arg(long, value_name = "MS")]
    health_interval: Option<u32>,
    /// Milliseconds that a health check may take
    #[arg(long, value_name = "MS")]
    health_timeout: Option<u32>,
    /// Maximum TCP MSS in bytes of passing SYNs; 0 leaves them unchanged
    #[arg(long, value_name = "BYTES")]
    mss: Option<u16>,
    /// Idle timeout of TCP connections in seconds; 0 for the appliance's
    #[arg(long, value_name = "SECONDS")]
    tcp_idle: Option<u32>,
    /// Idle timeout of UDP flows in seconds; 0 for the appliance's
    #[arg(long, value_name = "SECONDS")]
    udp_idle: Option<u16>,
    /// Maglev slots; 0 for the appliance's
    #[arg(long, value_name = "SLOTS")]
    table_size: Option<u32>,
    /// Label to set; an empty value removes it
    #[arg(long = "label", value_parser = parse_label, value_name = "KEY=VALUE")]
    labels: Vec<(String, String)>,
}

impl ServiceSettings {
    /// Writes the given settings into an object.
    pub fn edit(&self, object: &mut Value) -> Result<(), String> {
        let spec = &mut object["spec"];
        let mode = Mode::deserialize(&*spec).unwrap_or_default();
        if let (Some(spec), Value::Object(keys)) = (spec.as_object_mut(), json!(self.mode(mode)?)) {
            spec.retain(|key, _| !MODE_KEYS.contains(&key.as_str()));
            spec.extend(keys);
        }
        for (field, value) in [
            ("algorithm", self.algorithm.as_ref().map(|word| json!(word))),
            ("affinity_s", self.affinity.map(|seconds| json!(seconds))),
            ("external_policy", self.external_policy.as_ref().map(|word| json!(word))),
            ("internal_policy", self.internal_policy.as_ref().map(|word| json!(word))),
            ("distribution", self.distribution.as_ref().map(|word| json!(word))),
            ("nat_policy", self.nat_policy.as_ref().map(|word| json!(word))),
            ("health", self.health.clone()),
            ("mss", self.mss.map(|bytes| json!(bytes))),
            ("tcp_idle_s", self.tcp_idle.map(|seconds| json!(seconds))),
            ("udp_idle_s", self.udp_idle.map(|seconds| json!(seconds))),
            ("table_size", self.table_size.map(|slots| json!(slots))),
        ] {
            if let Some(value) = value {
                spec[field] = value;
            }
        }
        for (ranges, policy) in [(&self.allow, "allow"), (&self.deny, "deny")] {
            match ranges.as_slice() {
                [] => {}
                [any] if any == "any" => {
                    (spec["source_ranges"], spec["source_policy"]) = (json!([]), json!("allow"));
                }
                some => {
                    (spec["source_ranges"], spec["source_policy"]) = (json!(some), json!(policy));
                }
            }
        }
        for (option, field, value) in [
            ("--health-interval", "interval_ms", self.health_interval),
            ("--health-timeout", "timeout_ms", self.health_timeout),
        ] {
            let Some(value) = value else { continue };
            if !spec["health"].is_object() {
                let error = "requires a health check: add --health tcp, http or https";
                return Err(format!("{option} {error}"));
            }
            spec["health"][field] = value.into();
        }
        for (key, value) in &self.labels {
            match (value.as_str(), object["labels"].as_object_mut()) {
                ("", None) => {}
                ("", Some(labels)) => drop(labels.remove(key)),
                _ => object["labels"][key] = json!(value),
            }
        }
        Ok(())
    }

    /// Returns the mode and its tunnel after the change. Settings that are not given remain as in
    /// `before`; those of a tunnel of another kind become its defaults.
    fn mode(&self, before: Mode) -> Result<Mode, String> {
        let (word, tunnel) = match before {
            Mode::Nat => ("nat", None),
            Mode::Tunnel(tunnel) => ("tunnel", Some(tunnel)),
            Mode::Dsr(tunnel) => ("dsr", Some(tunnel)),
        };
        let word = self.mode.as_deref().unwrap_or(word);
        if word == "nat" {
            let some = self.tunnel.is_some() || self.tunnel_port.is_some() || self.vni.is_some();
            let fault = "mode nat has no tunnel: add --mode tunnel or dsr, or omit --tunnel, \
                         --tunnel-port and --vni";
            return if some { Err(fault.to_owned()) } else { Ok(Mode::Nat) };
        }
        let requested =
            self.tunnel.as_ref().and_then(|kind| serde_json::from_value(json!(kind)).ok());
        let kind: TunnelKind = requested
            .or(tunnel.map(|tunnel| tunnel.kind))
            .ok_or_else(|| format!("--mode {word} requires --tunnel geneve, vxlan, ipip or gue"))?;
        let same = tunnel.filter(|tunnel| tunnel.kind == kind);
        let base = same.unwrap_or(BackendTunnel::new(kind));
        let (port, vni) = (self.tunnel_port.unwrap_or(base.port), self.vni.unwrap_or(base.vni));
        let tunnel = BackendTunnel { port, vni, ..base };
        Ok(if word == "dsr" { Mode::Dsr(tunnel) } else { Mode::Tunnel(tunnel) })
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or("write KEY=VALUE, or KEY= to remove the label")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a health check: `tcp`, `http:8080/healthz`, `none`.
fn parse_probe(text: &str) -> Result<Value, String> {
    let (head, path) = match text.find('/') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    // 0 is the backend's own port.
    let (kind, port) = match head.split_once(':') {
        Some((kind, port)) => (kind, parse_port(port)?),
        None => (head, 0),
    };
    match kind {
        "none" => Ok(Value::Null),
        "tcp" | "http" | "https" => Ok(json!({ "kind": kind, "port": port, "path": path })),
        _ => Err("write tcp, http:8080/healthz, https/healthz, or none".to_owned()),
    }
}

/// Parses `ADDRESS[:PORT]`, where the address may be a network. The port is 0 if omitted.
fn parse_host_port(text: &str) -> Result<(String, u16), String> {
    let fault = || format!("`{text}` is not an address: write 203.0.113.10:80 or [2001:db8::1]:80");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(fault)?,
        None if text.matches(':').count() == 1 => text.split_at(text.find(':').unwrap_or(0)),
        None => (text, ""),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => parse_port(port)?,
        None if port.is_empty() => 0,
        None => return Err(fault()),
    };
    let address = host.split_once('/').map_or(host, |(address, _)| address);
    address.parse::<IpAddr>().map(|_| (host.to_owned(), port)).map_err(|_| fault())
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse::<NonZeroU16>();
    port.map(NonZeroU16::get).map_err(|_| format!("`{text}` is not a port: 1 to 65535"))
}

/// Parses comma-separated `key=value` pairs with these keys.
fn parse_pairs<'t>(text: &'t str, keys: &[&str]) -> Result<Vec<(&'t str, &'t str)>, String> {
    let pair = |part: &'t str| {
        let known = part.split_once('=').filter(|(key, _)| keys.contains(key));
        known.ok_or_else(|| format!("`{part}` is unknown; allowed: {}=..", keys.join("=.., ")))
    };
    text.split(',').filter(|part| !part.is_empty()).map(pair).collect()
}

/// Parses a frontend, `tcp://203.0.113.10:80`, into its JSON representation.
pub fn parse_frontend(text: &str) -> Result<Value, String> {
    let (at, about) = text.split_once(',').unwrap_or((text, ""));
    let (protocol, at) = at
        .split_once("://")
        .ok_or("write the protocol first: tcp://203.0.113.10:80, udp://, any://")?;
    let (address, port) = parse_host_port(at)?;
    let mut json = json!({ "address": address, "port": port, "protocol": protocol });
    for (key, value) in parse_pairs(about, &["type", "name", "scope"])? {
        json[if key == "name" { "port_name" } else { key }] = value.into();
    }
    Ok(json)
}

/// A backend as given on the command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Backend {
    /// IP address of the backend.
    pub address: IpAddr,
    /// Port; with 0, packets keep the port of the frontend.
    pub port: u16,
    /// The given attributes, such as `weight`; others remain as they are.
    attributes: Map<String, Value>,
}

impl Backend {
    /// Returns whether an entry of a list has the address and port of this backend.
    pub fn matches(&self, member: &Value) -> bool {
        let address = member["address"].as_str().and_then(|text| text.parse().ok());
        address == Some(self.address)
            && member["port"].as_u64().unwrap_or(0) == u64::from(self.port)
    }

    /// Returns the backend as a new entry of a list.
    pub fn member(&self, protocol: &str) -> Value {
        let mut member =
            json!({ "address": self.address, "port": self.port, "protocol": protocol });
        self.edit(&mut member);
        member
    }

    /// Writes the given attributes into an entry of a list.
    pub fn edit(&self, member: &mut Value) {
        for (key, value) in &self.attributes {
            member[key] = value.clone();
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&state::text::address_port(&self.address.to_string(), self.port))
    }
}

/// Parses a backend: `10.0.2.11:8080,weight=50,zone=a`.
pub fn parse_backend(text: &str) -> Result<Backend, String> {
    let (at, pairs) = text.split_once(',').unwrap_or((text, ""));
    let (address, port) = parse_host_port(at)?;
    let address =
        address.parse().map_err(|_| format!("`{address}` is a network: write an address"))?;
    let mut attributes = Map::new();
    for (key, value) in parse_pairs(pairs, &["weight", "state", "zone", "node", "arm", "probe"])? {
        let number = || value.parse::<u16>().map_err(|_| format!("weight={value}: 0 to 65535"));
        let value = if key == "weight" { number()?.into() } else { Value::from(value) };
        attributes.insert(key.to_owned(), value);
    }
    Ok(Backend { address, port, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_frontends_backends_and_probes() {
        let v6 = parse_frontend("udp://[2001:db8::1]:53,name=dns").unwrap();
        let expected =
            json!({"address": "2001:db8::1", "port": 53, "protocol": "udp", "port_name": "dns"});
        assert_eq!(v6, expected);
        assert_eq!(parse_frontend("any://203.0.113.0/24").unwrap()["address"], "203.0.113.0/24");
        let one = parse_backend("10.0.2.11:80,weight=5,zone=a").unwrap();
        let expected = json!({"address": "10.0.2.11", "port": 80, "protocol": "tcp", "weight": 5,
            "zone": "a"});
        assert_eq!((one.member("tcp"), one.matches(&expected)), (expected.clone(), true));
        assert_eq!(parse_backend("fd00::1").unwrap().to_string(), "fd00::1");
        let expected = json!({"kind": "http", "port": 8080, "path": "/a:b"});
        assert_eq!(parse_probe("http:8080/a:b").unwrap(), expected);
    }

    #[test]
    fn rejects_invalid_arguments_with_allowed_values() {
        for (fault, part) in [
            (parse_frontend("203.0.113.1:80").err(), "tcp://"),
            (parse_frontend("tcp://web:80").err(), "not an address"),
            (parse_frontend("tcp://203.0.113.1:80,port=1").err(), "scope="),
            (parse_backend("10.0.0.0/8").err(), "network"),
            (parse_backend("10.0.0.1:99999").err(), "not a port"),
            (parse_backend("10.0.0.1,weight=much").err(), "65535"),
            (parse_probe("icmp").err(), "none"),
        ] {
            assert!(fault.as_ref().is_some_and(|text| text.contains(part)), "{fault:?} {part}");
        }
    }
}
