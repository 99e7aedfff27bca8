//! Metrics of secrets whose files are followed.

use std::fmt;
use std::time::UNIX_EPOCH;

use announce::secrets::KeyCounts;

use super::family::Family;
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
    family.counters(
        "weir_secret_reload_failures",
        "Changed files of secrets that were rejected, by configuration key; the previous content \
         stays in force.",
        each().map(|(key, rejected, _)| ([("secret", key)], rejected)),
    )?;
    family.gauges(
        "weir_secret_rejected",
        "1 while the present content of a secret's file is rejected (`weir status` shows the API's \
         error, slowpath's log that of a BGP key), else 0.",
        each().map(|(key, _, now)| ([("secret", key)], f64::from(u8::from(now)))),
    )?;
    let until = all.iter().filter_map(|one| {
        let until = one.validity?.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(([("secret", one.key)], until.as_secs_f64()))
    });
    family.gauges(
        "weir_secret_valid_until_seconds",
        "End of the validity of the certificate in force, in seconds since 1970.",
        until,
    )?;
    let (accepted, rejected) =
        credentials.map(|credentials| credentials.replaced_token_requests()).unwrap_or_default();
    family.counters(
        "weir_api_replaced_token_requests",
        "API requests with a token that was replaced: accepted during the overlap, and rejected \
         after it. While it grows, a client still sends the previous token.",
        [([("result", "accepted")], accepted), ([("result", "rejected")], rejected)],
    )
}
