//! The `[health]`, `[metrics]`, `[control]`, `[api]` and `[audit]` sections as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::one_or_many;
use crate::checked::TOKENS_FILE;

/// Health: probes of this appliance by others, and its health checks of backends.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// `address:port`, one or a list, for HTTP probes of the appliance: 200 while it is able to
    /// serve, otherwise 503 with the reasons.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "listen"))]
    pub listen: Vec<String>,
    /// `address:port`, one or a list, for TCP probes of the appliance. Connections are accepted
    /// only while it is able to serve, and refused otherwise.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "listen"))]
    pub tcp: Vec<String>,
    /// Milliseconds without a heartbeat of slowpath's control loop after which the appliance counts
    /// as unable to serve: the loop's last report expires, probes fail and routes are withdrawn. A
    /// disk that hangs does not stop the loop.
    #[schemars(range(min = 1_000, max = 300_000))]
    pub stall_timeout_ms: u32,
    /// Networks that probe this appliance, in addition to the `sources` of gateways and, on Azure,
    /// 168.63.129.16. Connection slots are reserved for them on health and health check ports, so
    /// that other clients cannot keep a probe out.
    #[serde(deserialize_with = "one_or_many")]
    pub reserved_sources: Vec<String>,
    /// Maximum number of concurrent health checks of backends. A check that hangs takes its
    /// timeout: N backends that all hang need N x `timeout_ms` / `interval_ms`.
    #[schemars(range(min = 1, max = 10_000))]
    pub probes_at_once: u32,
    /// Source addresses of health checks on this machine, at most one per address family. Empty:
    /// the kernel selects one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "machine"))]
    pub probe_sources: Vec<String>,
    /// PEM file of the certificate authorities that https checks trust. Services may name a
    /// `ca_file` of their own.
    #[schemars(extend("x-weir" = "certificate"))]
    pub ca_file: String,
    /// Directory that must contain the `ca_file` of every service; symbolic links may only lead to
    /// files in it.
    #[schemars(extend("x-weir" = "certificate folder"))]
    pub ca_folder: String,
    /// Milliseconds between two checks of a backend; default of services.
    #[schemars(range(min = 100, max = 300_000))]
    pub interval_ms: u32,
    /// Milliseconds that a check may take in total; default of services.
    #[schemars(range(min = 10, max = 300_000))]
    pub timeout_ms: u32,
    /// Consecutive successful checks that make a backend healthy; default of services.
    #[schemars(range(min = 1, max = 100))]
    pub rise: u8,
    /// Consecutive failed checks that make a backend unhealthy; default of services.
    #[schemars(range(min = 1, max = 100))]
    pub fall: u8,
    /// Maximum random delay of a check in percent of the interval; default of services.
    #[schemars(range(min = 0, max = 50))]
    pub jitter_percent: u8,
    /// Maximum number of doublings of `rise` for a flapping backend; 0 disables damping. A backend
    /// that becomes unhealthy within 32 checks after a recovery needs twice as many successful
    /// checks for the next one; every 32 checks for which it stays healthy undo one doubling.
    #[schemars(range(min = 0, max = 6))]
    pub damping: u8,
}

/// The Prometheus endpoint.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// `address:port`, one or a list, of the Prometheus endpoint; empty for none. It listens on
    /// loopback by default, because it has neither TLS nor authentication by default. The default
    /// port is outside 9100 to 9999, the range of Prometheus exporters (9100 is node_exporter's).
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "listen"))]
    pub listen: Vec<String>,
    /// PEM file with the certificate and its intermediate certificates. Empty: no TLS.
    #[schemars(extend("x-weir" = "certificate"))]
    pub tls_cert: String,
    /// PEM file with the certificate's private key.
    #[schemars(extend("x-weir" = "secret"))]
    pub tls_key: String,
    /// Require a token of role `metrics` or higher from `api.token_file` or `api.tokens_file`
    /// (`Authorization: Bearer ...`). Addresses other than loopback then require `tls_cert` and
    /// `tls_key`.
    pub token: bool,
}

/// The audit log in `control.state`: every change through the API, the control socket and `weir`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Maximum size of the audit log in MiB. The oldest eighth is removed when it is reached.
    #[schemars(range(min = 1, max = 65536))]
    pub max_mib: u32,
}

/// The control socket, used by the `weir` command, and persisted state.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Path of the Unix socket, at most 107 bytes.
    #[schemars(extend("x-weir" = "machine path"))]
    pub socket: String,
    /// Group whose members have the role `admin` on the socket: without being root, they may use
    /// every `weir` command that needs only the socket. Commands that change the machine or use
    /// files in `/etc/weir` need root. It must differ from `region.group`. The default `weir-admin`
    /// is used if the machine has that group; any other group must exist. Empty: root and the user
    /// as which slowpath runs.
    pub group: String,
    /// Group whose members have the role `operate` on the socket: they read, and drain, trace,
    /// capture, set the log level, confirm removals and decide on private endpoint connections, but
    /// change no configuration. The file system of `socket` must support POSIX ACLs. Empty: no such
    /// group.
    pub operate_group: String,
    /// Group whose members have the role `read` on the socket. As for `operate_group`.
    pub read_group: String,
    /// Directory in which services and other objects persist across restarts, a few kB each, for
    /// this appliance alone. Empty: nothing is persisted, and what came through the API is lost
    /// when slowpath ends.
    #[schemars(extend("x-weir" = "machine path"))]
    pub state: String,
    /// Maximum share of a source's objects, in percent, that one complete list of the source (the
    /// services file or directory, a session) may remove; applies to sources with 10 objects or
    /// more. A list that removes more, or that removes all objects or all services of any number,
    /// has no effect until it is confirmed with `weir source confirm NAME`, or with `allow_removal`
    /// in a services file or in the commit.
    #[schemars(range(min = 0, max = 100))]
    pub max_removal_percent: u8,
}

/// The API over TCP.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// `address:port`, one or a list, on which the API is served; empty for none. Addresses other
    /// than loopback require `tls_cert` and `tls_key`.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "listen"))]
    pub listen: Vec<String>,
    /// PEM file with the certificate and its intermediate certificates.
    #[schemars(extend("x-weir" = "certificate"))]
    pub tls_cert: String,
    /// PEM file with the certificate's private key.
    #[schemars(extend("x-weir" = "secret"))]
    pub tls_key: String,
    /// File with a token of role `admin` that clients send (`Authorization: Bearer ...`), at least
    /// 16 characters, for example from `head -c 24 /dev/urandom | base64`. Empty: none.
    #[schemars(extend("x-weir" = "secret"))]
    pub token_file: String,
    /// File with named tokens, one per line: `NAME ROLE SHA256 [EXPIRES]`, where `ROLE` is
    /// `metrics`, `read`, `operate` or `admin`, `SHA256` is that of the token in hexadecimal, and
    /// `EXPIRES` a time (RFC 3339). `weir token create` adds one. A missing file is an error unless
    /// it is the default. Empty: none.
    #[schemars(extend("x-weir" = "secret"))]
    pub tokens_file: String,
    /// Seconds for which a token that was replaced in `token_file` is still accepted. Watches that
    /// were opened with it then end. 0: it is rejected at once. A restart of slowpath ends the
    /// overlap.
    #[schemars(range(max = 86400))]
    pub token_overlap_s: u32,
    /// Host names under which browsers may open the page, one or a list, in addition to any
    /// address, `localhost` and the names of the certificate. Requests for other names are
    /// rejected, which protects against DNS rebinding.
    #[serde(deserialize_with = "one_or_many")]
    pub hosts: Vec<String>,
}

impl Default for Api {
    fn default() -> Api {
        Api {
            listen: Vec::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            token_file: String::new(),
            tokens_file: TOKENS_FILE.into(),
            token_overlap_s: 300,
            hosts: Vec::new(),
        }
    }
}
