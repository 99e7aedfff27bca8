//! The `[log]` and `[events]` sections as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::LogFormat;

/// The log of all programs.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Format of log lines: `text`, `json` (one object per line) or `journald` (fields `WEIR_EVENT`
    /// and others, in journald's protocol). `auto`: `journald` if standard error is its stream,
    /// otherwise `text`.
    pub format: LogFormat,
    /// Level `error`, `warn`, `info`, `debug`, `trace` or `off`, and levels of modules after it:
    /// `info,bgp=debug`; `bgp=debug` means the same. Lines of the audit log are always written.
    /// The variable `WEIR_LOG` overrides this key. `weir log level` overrides both in slowpath,
    /// until it ends or for a given time.
    pub level: String,
    /// Maximum number of lines per event and subject (peer, service and others) in 10 seconds,
    /// above level `debug`; the others are counted. 0: no limit.
    #[schemars(range(max = 1_000_000))]
    pub limit: u32,
}

impl Default for Log {
    fn default() -> Log {
        Log { format: LogFormat::Auto, level: "info".to_owned(), limit: 10 }
    }
}

/// The history of events.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Maximum size of the history in MiB; the oldest events are removed. It is in
    /// `control.state`, in the folder `events`.
    #[schemars(range(min = 1, max = 256))]
    pub max_mib: u32,
}

impl Default for Events {
    fn default() -> Events {
        Events { max_mib: 16 }
    }
}
