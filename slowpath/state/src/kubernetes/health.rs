//! Annotations that configure health checks: `weir.dev/health-kind` and others, named after the
//! keys of `health` in Weir's own format. The same keys with Cilium's domain are accepted.

use config::services::{HealthCheck, ProbeKind};

use super::annotations::Reader;

/// Returns the health check that the annotations of a service configure; `None` without a valid
/// `health-kind`. Any other value that cannot be parsed is noted and replaced by its default; a
/// check whose values are out of range or do not fit together is noted and omitted.
pub(super) fn check(from: &mut Reader<'_>) -> Option<HealthCheck> {
    let kind = from.value("health-kind", "tcp, http, https", |text| match text.trim() {
        "tcp" => Some(ProbeKind::Tcp),
        "http" => Some(ProbeKind::Http),
        "https" => Some(ProbeKind::Https),
        _ => None,
    })?;
    let text = |from: &mut Reader<'_>, key: &str| {
        from.value(key, "a text", |text| Some(text.trim().to_owned())).unwrap_or_default()
    };
    let times = "milliseconds, 0 to 300000";
    let mut time = |key: &str| from.value(key, times, |text| text.trim().parse().ok());
    let interval_ms = time("health-interval-ms").unwrap_or_default();
    let timeout_ms = time("health-timeout-ms").unwrap_or_default();
    let mut count = |key: &str| from.value(key, "0 to 100", |text| text.trim().parse().ok());
    let (rise, fall) = (count("health-rise"), count("health-fall"));
    let jitter_percent = count("health-jitter-percent");
    let verify = from.value("health-verify", "true, false", |text| text.trim().parse().ok());
    let check = HealthCheck {
        port: from
            .value("health-port", "0 to 65535", |text| text.trim().parse().ok())
            .unwrap_or_default(),
        path: text(from, "health-path"),
        host: text(from, "health-host"),
        expect: text(from, "health-expect"),
        verify: verify.unwrap_or(true),
        ca_file: text(from, "health-ca-file"),
        server_name: text(from, "health-server-name"),
        interval_ms,
        timeout_ms,
        rise: rise.unwrap_or_default(),
        fall: fall.unwrap_or_default(),
        jitter_percent,
        ..HealthCheck::new(kind)
    };
    let faults = check.faults();
    from.notes.extend(faults.iter().map(|fault| {
        let key = fault.field.replace('_', "-");
        let (wrong, allowed) = (&fault.fault, &fault.remedy);
        format!("annotation weir.dev/health-{key}: {wrong}; {allowed}; backends are not probed")
    }));
    faults.is_empty().then_some(check)
}
