//! Metrics of secrets whose files are watched.

use std::fmt;
use std::time::UNIX_EPOCH;

use announce::secrets::KeyCounts;

use super::declared as metric;
use super::family::{Family, flag};
use crate::control::listening::Listening;

/// Encodes the metrics of the secrets of the API over TCP, and of BGP's keys.
pub(super) fn encode(
    listening: &Listening,
    bgp_keys: Option<&KeyCounts>,
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    let credentials = listening.credentials();
    let all = credentials.map(|credentials| credentials.status()).unwrap_or_default();
    let api = all.iter().map(|one| (one.key, one.rejected, one.error.is_some()));
    let bgp = bgp_keys.map(|keys| ("bgp.secrets", keys.rejected(), keys.unusable() > 0));
    let each = || api.clone().chain(bgp);
    family
        .counters(&metric::SECRET_FAILURES, each().map(|(key, rejected, _)| ([key], rejected)))?;
    family.gauges(&metric::SECRET_REJECTED, each().map(|(key, _, now)| ([key], flag(now))))?;
    let until = all.iter().filter_map(|one| {
        let until = one.validity?.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(([one.key], until.as_secs_f64()))
    });
    family.gauges(&metric::SECRET_EXPIRY, until)?;
    let (accepted, rejected) =
        credentials.map(|credentials| credentials.replaced_token_requests()).unwrap_or_default();
    family.counters(&metric::REPLACED_TOKEN, [(["accepted"], accepted), (["rejected"], rejected)])
}
