//! Health checks of a service's backends, with the same keys in services files and in objects.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::is_default;
use crate::checked::Probing;
use crate::validation_error::ValidationError;

/// What a health check requires of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// A TCP connection is established.
    #[default]
    Tcp,
    /// An HTTP/1.1 request returns an expected status.
    Http,
    /// An HTTP/1.1 request over TLS 1.2 or 1.3 returns an expected status.
    Https,
}

/// Health check of a service's backends. Its result applies to this service only.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// `tcp` (a connection is established), `http` or `https` (the response has an expected
    /// status).
    pub kind: ProbeKind,
    /// Port to check; 0 for the backend's port, or the first frontend's if the backend has none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub port: u16,
    /// http and https: request path, starting with `/`; empty for `/`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub path: String,
    /// http and https: `Host` header; empty for the backend's address and port.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: String,
    /// http and https: expected statuses, `200-399` or `200,204,301-308`; empty for 200-399.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expect: String,
    /// https: verify the server's certificate; `false` accepts any certificate.
    #[serde(default = "default_verify", skip_serializing_if = "is_true")]
    #[schemars(extend("default" = true))]
    pub verify: bool,
    /// https: PEM file of the trusted certificate authorities, a path in `health.ca_folder`; empty
    /// for `health.ca_file`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ca_file: String,
    /// https: server name for SNI and for verification of the certificate; empty for `host`, or for
    /// the backend's address if `host` is empty too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub server_name: String,
    /// Milliseconds between two checks of a backend, at least 100; 0 for `health.interval_ms`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 300_000))]
    pub interval_ms: u32,
    /// Milliseconds that a check may take in total, at least 10 and at most the interval; 0 for
    /// `health.timeout_ms`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 300_000))]
    pub timeout_ms: u32,
    /// Consecutive successful checks that make a backend healthy; 0 for `health.rise`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 100))]
    pub rise: u8,
    /// Consecutive failed checks that make a backend unhealthy; 0 for `health.fall`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 100))]
    pub fall: u8,
    /// Maximum random delay of a check in percent of the interval, so that checks spread over time;
    /// omitted for `health.jitter_percent`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 50))]
    pub jitter_percent: Option<u8>,
}

fn default_verify() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

/// Timing of health checks, and the thresholds of their verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time between two checks; 100 ms to 300 s.
    pub interval: Duration,
    /// Maximum duration of a check; at most the interval.
    pub timeout: Duration,
    /// Maximum random delay of a check; at most half the interval.
    pub jitter: Duration,
    /// Consecutive successful checks that make a backend healthy; 1 to 100.
    pub rise: u32,
    /// Consecutive failed checks that make a backend unhealthy; 1 to 100.
    pub fall: u32,
    /// Maximum number of doublings of `rise` for a flapping backend; 0 to 6.
    pub damping: u8,
}

/// Expected statuses if none are configured.
const DEFAULT_STATUSES: RangeInclusive<u16> = 200..=399;

/// Parses a list of statuses and ranges from 200 to 599. An empty text is the default list. Returns
/// `None` if the text is not such a list.
pub fn statuses(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    if text.is_empty() {
        return Some(vec![DEFAULT_STATUSES]);
    }
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|n| *n >= 200 && *n < 600);
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(first..=last)
    };
    text.split(',').map(one).collect()
}

impl HealthCheck {
    /// Creates a health check of this kind with the defaults of all other keys.
    pub fn new(kind: ProbeKind) -> HealthCheck {
        HealthCheck {
            kind,
            port: 0,
            path: String::new(),
            host: String::new(),
            expect: String::new(),
            verify: true,
            ca_file: String::new(),
            server_name: String::new(),
            interval_ms: 0,
            timeout_ms: 0,
            rise: 0,
            fall: 0,
            jitter_percent: None,
        }
    }

    /// Returns the timing, with the appliance's values for keys that are 0 or omitted. A timeout
    /// longer than the interval is lowered to the interval.
    pub fn timing(&self, appliance: &Probing) -> Timing {
        let milliseconds = |own: u32, default: Duration| match own {
            0 => default,
            own => Duration::from_millis(own.into()),
        };
        let count = |own: u8, default: u8| u32::from(if own == 0 { default } else { own });
        let interval = milliseconds(self.interval_ms, appliance.interval);
        let percent = self.jitter_percent.unwrap_or(appliance.jitter_percent).min(50);
        Timing {
            interval,
            timeout: milliseconds(self.timeout_ms, appliance.timeout).min(interval),
            jitter: interval * u32::from(percent) / 100,
            rise: count(self.rise, appliance.rise),
            fall: count(self.fall, appliance.fall),
            damping: appliance.damping,
        }
    }

    /// Returns all validation errors of the health check.
    pub fn faults(&self) -> Vec<ValidationError> {
        let mut faults = Vec::new();
        let mut reject = |field: &'static str, fault: &str, remedy: &str| {
            faults.push(ValidationError::new(field, fault, remedy));
        };
        self.check_numbers(&mut reject);
        let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let rooted = self.path.starts_with('/') && visible(&self.path);
        if !rooted && !self.path.is_empty() {
            let remedy = "write a path that starts with `/`, without spaces: \"/healthz?full=1\"";
            reject("path", "not a valid path", remedy);
        }
        if !visible(&self.host) || self.host.len() > 255 {
            reject("host", "not a valid host", "write a name, or an address with its port");
        }
        if statuses(&self.expect).is_none() {
            let remedy = "write statuses of 200 to 599: \"200\", \"200-399\", \"200,204,301-308\"";
            reject("expect", "not a list of statuses", remedy);
        }
        if !self.server_name.is_empty() && !is_host_name(&self.server_name) {
            let remedy = "write a DNS name, \"web.example\", or an address";
            reject("server_name", "not a valid server name", remedy);
        }
        if !self.ca_file.is_empty() && !self.ca_file.starts_with('/') {
            reject("ca_file", "not an absolute path", "write a path that starts with `/`");
        }
        let (http, https) = match self.kind {
            ProbeKind::Tcp => (false, false),
            ProbeKind::Http => (true, false),
            ProbeKind::Https => (true, true),
        };
        for (field, written, fits, kinds) in [
            ("path", !self.path.is_empty(), http, "\"http\" or \"https\""),
            ("host", !self.host.is_empty(), http, "\"http\" or \"https\""),
            ("expect", !self.expect.is_empty(), http, "\"http\" or \"https\""),
            ("verify", !self.verify, https, "\"https\""),
            ("ca_file", !self.ca_file.is_empty(), https, "\"https\""),
            ("server_name", !self.server_name.is_empty(), https, "\"https\""),
        ] {
            if written && !fits {
                let remedy = format!("remove it, or write kind = {kinds}");
                reject(field, "checks of this kind do not use it", &remedy);
            }
        }
        if !self.verify && !self.ca_file.is_empty() {
            let fault = "with verify = false, no certificate authority is used";
            reject("ca_file", fault, "remove one of them");
        }
        faults
    }

    fn check_numbers(&self, reject: &mut impl FnMut(&'static str, &str, &str)) {
        if !matches!(self.interval_ms, 0 | 100..=300_000) {
            reject("interval_ms", "out of range", "allowed: 100 to 300000, or 0");
        }
        if !matches!(self.timeout_ms, 0 | 10..=300_000) {
            reject("timeout_ms", "out of range", "allowed: 10 to 300000, or 0");
        } else if self.interval_ms != 0 && self.timeout_ms > self.interval_ms {
            let remedy = format!("allowed: at most interval_ms, {}", self.interval_ms);
            reject("timeout_ms", "longer than the interval between checks", &remedy);
        }
        for (field, number, max) in [
            ("rise", self.rise, 100),
            ("fall", self.fall, 100),
            ("jitter_percent", self.jitter_percent.unwrap_or(0), 50),
        ] {
            if number > max {
                let fault = format!("{number} is out of range");
                reject(field, &fault, &format!("allowed: 0 to {max}"));
            }
        }
    }
}

/// Returns whether the text is a DNS name or an IP address.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(good)
    };
    text.parse::<std::net::IpAddr>().is_ok()
        || text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}
