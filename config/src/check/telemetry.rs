//! Validation of the `[telemetry]` section.

use std::time::Duration;

use super::validator::{Validator, optional_path};
use crate::checked::Telemetry;
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Telemetry) -> Option<Telemetry> {
    if !(1..=3600).contains(&file.interval_s) {
        let fault = format!("{} is out of range", file.interval_s);
        validator.reject("telemetry.interval_s", &fault, "allowed: 1 to 3600; default 30");
    }
    let headers_file = optional_path(validator, "telemetry.headers_file", file.headers_file);
    if file.otlp_endpoint.is_empty() {
        if headers_file.is_some() {
            let remedy = "set telemetry.otlp_endpoint as well, or remove the file";
            validator.reject("telemetry.headers_file", "there is no collector", remedy);
        }
        return None;
    }
    if let Err(fault) = check_url(&file.otlp_endpoint) {
        let remedy = "write the base URL of a collector for OTLP over HTTP, such as \
                      \"http://127.0.0.1:4318\", or \"\" to export nothing";
        validator.reject("telemetry.otlp_endpoint", fault, remedy);
    }
    let endpoint = file.otlp_endpoint.trim_end_matches('/').to_owned();
    let interval = Duration::from_secs(file.interval_s.into());
    Some(Telemetry { endpoint, headers_file, interval })
}

/// Checks the syntax of a base URL: scheme, host, optional port and path (RFC 3986 section 3).
fn check_url(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.ok_or("the URL does not begin with http:// or https://")?;
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) || rest.contains(['"', '<', '>', '\\']) {
        return Err("the URL contains a character that URLs cannot have");
    }
    if rest.contains(['?', '#']) {
        return Err("a base URL has no `?` and no `#`");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("a user in the URL would be shown with the configuration; use headers_file");
    }
    let (is_host, port) = match authority.strip_prefix('[') {
        Some(literal) => {
            let (address, port) = literal.split_once(']').ok_or("`]` is missing")?;
            (address.parse::<std::net::Ipv6Addr>().is_ok(), port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (!host.is_empty() && host.bytes().all(allowed), port)
        }
    };
    if !is_host {
        return Err("the URL has no valid host");
    }
    let port = port.strip_prefix(':').map(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    match (port, authority.ends_with(']')) {
        (Some(false), _) => Err("the port is not a number from 1 to 65535"),
        (None, false) if authority.starts_with('[') => Err("a port follows `]:`"),
        _ => Ok(()),
    }
}
