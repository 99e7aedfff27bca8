//! Parsing of responses of the metadata service (IMDS), which returns most numbers as strings.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azure_core::http::headers::{HeaderName, Headers};
use serde_json::Value;

use crate::types::{EventKind, Family, Identity, Interface, ScheduledEvent, TunnelEnd, Tunnels};

fn document(body: &[u8]) -> Result<Value, String> {
    let read: Value = serde_json::from_slice(body).map_err(|why| why.to_string())?;
    if read.is_object() { Ok(read) } else { Err("not an object".into()) }
}

/// Returns the string of a key, which must not be missing or empty.
fn required_str(of: &Value, key: &str) -> Result<String, String> {
    let found = of[key].as_str().unwrap_or_default();
    if found.is_empty() { Err(format!("no `{key}`")) } else { Ok(found.to_owned()) }
}

fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

fn number(of: &Value, key: &str) -> Result<u64, String> {
    let found = &of[key];
    let read = found.as_u64().or_else(|| found.as_str()?.trim().parse().ok());
    read.ok_or_else(|| format!("`{key}` is {found}, not a number"))
}

/// Parses `/metadata/instance`.
///
/// # Errors
/// Describes what cannot be parsed.
pub fn parse_identity(body: &[u8]) -> Result<Identity, String> {
    let document = document(body)?;
    let compute = &document["compute"];
    let scale_set = compute["vmScaleSetName"].as_str().filter(|name| !name.is_empty());
    let interfaces = list(&document["network"], "interface").map(parse_interface);
    Ok(Identity {
        vm_id: required_str(compute, "vmId")?,
        name: required_str(compute, "name")?,
        subscription: required_str(compute, "subscriptionId")?,
        resource_group: required_str(compute, "resourceGroupName")?,
        location: required_str(compute, "location")?,
        zone: compute["zone"].as_str().unwrap_or_default().to_owned(),
        environment: required_str(compute, "azEnvironment")?,
        resource_id: required_str(compute, "resourceId")?,
        scale_set: scale_set.map(str::to_owned),
        interfaces: interfaces.collect::<Result<_, String>>()?,
    })
}

fn parse_interface(value: &Value) -> Result<Interface, String> {
    let written = required_str(value, "macAddress")?;
    let mac = parse_mac(&written).ok_or_else(|| format!("`{written}` is not a MAC address"))?;
    let mut addresses = Vec::new();
    for family in ["ipv4", "ipv6"] {
        for address in list(&value[family], "ipAddress") {
            let text = address["privateIpAddress"].as_str().unwrap_or_default();
            if !text.is_empty() {
                addresses.push(parse_address(text)?);
            }
        }
    }
    Ok(Interface { mac, addresses })
}

/// Parses the subnets in `/metadata/instance`: for each interface, in the order of the interfaces,
/// its subnets as address and prefix length.
///
/// # Errors
/// Describes what cannot be parsed.
pub fn parse_subnets(body: &[u8]) -> Result<Vec<Vec<(IpAddr, u8)>>, String> {
    let document = document(body)?;
    let of_interface = |interface: &Value| {
        let families = ["ipv4", "ipv6"].iter();
        let subnets = families.flat_map(|family| list(&interface[*family], "subnet"));
        subnets
            .map(|subnet| {
                let length = number(subnet, "prefix")?;
                let length = u8::try_from(length).map_err(|_| format!("`prefix` is {length}"))?;
                Ok((parse_address(&required_str(subnet, "address")?)?, length))
            })
            .collect::<Result<Vec<_>, String>>()
    };
    list(&document["network"], "interface").map(of_interface).collect()
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    // Examples of Microsoft's have a prefix where an address is expected; its length is ignored.
    let bare = text.split('/').next().unwrap_or_default();
    bare.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

/// Parses a MAC address: twelve hexadecimal digits, with or without hyphens or colons.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b':')).collect();
    let value = |b: u8| char::from(b).to_digit(16).and_then(|v| u8::try_from(v).ok());
    let mut mac = [0; 6];
    if digits.len() != 12 {
        return None;
    }
    for (byte, pair) in mac.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(mac)
}

/// Parses `/metadata/loadbalancer`. A load balancer other than a gateway has no tunnels.
///
/// # Errors
/// Describes what cannot be parsed, or which tunnels contradict each other.
pub fn parse_tunnels(body: &[u8]) -> Result<Vec<(Family, Tunnels)>, String> {
    let document = document(body)?;
    let balancer = &document["loadbalancer"];
    if !balancer.is_object() {
        return Err("no `loadbalancer`".into());
    }
    let mut ends: [[Option<TunnelEnd>; 2]; 2] = Default::default();
    for tunnel in list(balancer, "tunnelInterfaces") {
        let (family, external, end) = parse_tunnel(tunnel)?;
        let slot = &mut ends[family as usize][usize::from(external)];
        match slot {
            Some(other) if *other != end => {
                let which = if external { "external" } else { "internal" };
                return Err(format!(
                    "two {which} tunnels of one family differ: port {} with identifier {}, and \
                     port {} with identifier {}",
                    other.port, other.vni, end.port, end.vni
                ));
            }
            slot => *slot = Some(end),
        }
    }
    let mut tunnels = Vec::new();
    for (family, ends) in [Family::V4, Family::V6].into_iter().zip(ends) {
        match ends {
            [None, None] => {}
            [Some(internal), Some(external)] if internal == external => {
                return Err(format!(
                    "both tunnels have port {} and identifier {}",
                    internal.port, internal.vni
                ));
            }
            [Some(internal), Some(external)] => {
                tunnels.push((family, Tunnels { external, internal }));
            }
            [internal, _] => {
                let (which, other) = match internal {
                    Some(_) => ("an internal", "external"),
                    None => ("an external", "internal"),
                };
                return Err(format!("{which} tunnel, but no {other} one ({family:?})"));
            }
        }
    }
    Ok(tunnels)
}

/// Parses one of `tunnelInterfaces`: family, whether it is external, port and identifier.
fn parse_tunnel(value: &Value) -> Result<(Family, bool, TunnelEnd), String> {
    let local = parse_address(&required_str(value, "localIpAddress")?)?;
    let family = if local.is_ipv6() { Family::V6 } else { Family::V4 };
    let kind = required_str(value, "type")?;
    let external = match kind.to_ascii_lowercase().as_str() {
        "internal" => false,
        "external" => true,
        _ => return Err(format!("unknown tunnel type `{kind}`; allowed: internal, external")),
    };
    let protocol = required_str(value, "protocol")?;
    if !protocol.eq_ignore_ascii_case("vxlan") {
        return Err(format!("unknown tunnel protocol `{protocol}`; allowed: vxlan"));
    }
    let (port, local) = (number(value, "gatewayPort")?, number(value, "localPort")?);
    if port != local {
        return Err(format!("a tunnel has `gatewayPort` {port}, but `localPort` {local}"));
    }
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| format!("`gatewayPort` is {local}, not a UDP port"))?;
    let vni = number(value, "identifier")?;
    let vni = u32::try_from(vni).ok().filter(|vni| *vni < 1 << 24);
    let vni = vni.ok_or("`identifier` is not a 24-bit VXLAN network identifier")?;
    Ok((family, external, TunnelEnd { port, vni }))
}

/// Parses `/metadata/scheduledevents`; returns the events that affect the machine of that name and
/// are not over.
///
/// # Errors
/// Describes what cannot be parsed.
pub fn parse_events(body: &[u8], machine: &str) -> Result<Vec<ScheduledEvent>, String> {
    let document = document(body)?;
    let events = document["Events"].as_array().ok_or("no `Events`")?;
    let affects = |event: &&Value| {
        let names = list(event, "Resources").filter_map(Value::as_str);
        names.into_iter().any(|name| name.eq_ignore_ascii_case(machine))
    };
    let mut affecting = Vec::new();
    for event in events.iter().filter(affects) {
        let status = event["EventStatus"].as_str().unwrap_or_default();
        if matches!(status, "Completed" | "Canceled") {
            continue;
        }
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        // An unparsable time counts as no time: the event may start at once.
        let then = httpdate::parse_http_date(text("NotBefore")).ok();
        let since = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok());
        affecting.push(ScheduledEvent {
            id: required_str(event, "EventId")?,
            kind: parse_event_kind(text("EventType")),
            started: status == "Started",
            not_before: since.map(|since| since.as_secs()),
            description: [text("EventSource"), text("Description")].join(" ").trim().to_owned(),
        });
    }
    Ok(affecting)
}

fn parse_event_kind(word: &str) -> EventKind {
    match word {
        "Freeze" => EventKind::Freeze,
        "Reboot" => EventKind::Reboot,
        "Redeploy" => EventKind::Redeploy,
        "Preempt" => EventKind::Preempt,
        "Terminate" => EventKind::Terminate,
        _ => EventKind::Other,
    }
}

/// Parses a token and its remaining lifetime. The lifetime is the difference of `expires_on` and
/// the response's `Date`, which are both by Azure's clock; if one is missing or invalid, the
/// lifetime is `expires_in`.
pub(super) fn parse_token(headers: &Headers, body: &[u8]) -> Result<(String, Duration), String> {
    let document = document(body)?;
    let secret = required_str(&document, "access_token")?;
    let date = headers.get_optional_str(&HeaderName::from_static("date"));
    let now: Option<SystemTime> = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let now = now.and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    let lifetime = match (now, number(&document, "expires_on")) {
        (Some(now), Ok(expires)) => Duration::from_secs(expires).saturating_sub(now),
        _ => Duration::from_secs(number(&document, "expires_in")?),
    };
    Ok((secret, lifetime))
}
