//! Runs `examples/ten_thousand.rs` with 200 backends instead of 10,000: each backend gets one
//! verdict, and no probe fails.

#[expect(dead_code, reason = "`main` and what only it calls")]
#[path = "../examples/ten_thousand.rs"]
mod example;

use std::time::Duration;

use config::services::ProbeKind;
use example::{Load, probes};

#[test]
fn a_smaller_load_is_probed_and_counted() {
    let interval = Duration::from_secs(1);
    let load = Load { backends: 200, interval, measured: 3 * interval };
    for kind in [ProbeKind::Tcp, ProbeKind::Http] {
        let measured = probes(&load, kind);
        println!("{kind:?}: {measured}");
        assert!(measured.good > 0, "{measured}");
        assert_eq!(measured.failed, 0, "{measured}");
        assert_eq!(measured.verdicts, load.backends as usize, "one verdict for each: {measured}");
        assert!(measured.at_once <= 512 && measured.p99_ms > 0, "{measured}");
    }
}
