//! Query parameters.

use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hex;
use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// Pattern of `fields`: at most 64 comma-separated paths (`name,spec.frontends`), or nothing.
const FIELD_LIST: &str = concat!(
    r"^([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*",
    r"(,[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*){0,63})?$"
);

/// Query parameters of a list of objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Maximum number of items, 1 to 1000; 500 by default.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// Where the page begins: the value of `continue` in the previous page.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    pub after: String,
    /// Comma-separated fields to return of each object, at most 64: `name,spec.frontends`. All by
    /// default.
    #[schemars(regex(pattern = FIELD_LIST))]
    pub fields: String,
    /// Only objects of this source.
    pub source: String,
    /// Streams changes instead, one line of JSON each (see `Change`).
    pub watch: bool,
    /// Of a stream: changes after this revision. Without it, the stream begins with all existing
    /// objects.
    pub revision: Option<u64>,
    /// Of a stream: ends it after this many seconds. Without it, the stream does not end.
    #[schemars(range(min = 0, max = 86400))]
    pub seconds: Option<u32>,
}

/// Query parameters of reading one object.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReadQuery {
    /// The source whose object is read; `api` by default.
    pub source: String,
}

/// Query parameters of a write.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WriteQuery {
    /// Validates the write and returns the response as if it were made, without making it.
    pub dry_run: bool,
    /// Waits until all lcores serve the change or a plane rejects it, at most this long: `5s`,
    /// `500ms`. One to three digits; the default unit is seconds.
    #[schemars(regex(pattern = r"^[0-9]{1,3}(ms|s)?$"))]
    pub wait: Option<String>,
}

/// Query of an endpoint that takes no parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// Query parameters of a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RowsQuery {
    /// Maximum number of rows, 1 to 1000; 500 by default.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// Where the page begins: the value of `continue` in the previous page.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    pub after: String,
    /// Only rows whose first column starts with this text or, in frontends and backends, whose
    /// address is in this network.
    pub prefix: String,
    /// Comma-separated columns to return, at most 64. All by default.
    #[schemars(regex(pattern = r"^([A-Za-z]+(,[A-Za-z]+){0,63})?$"))]
    pub fields: String,
}

/// Maximum number of items in a page if the client requests none.
const DEFAULT_PAGE: u32 = 500;
/// Maximum number of items in a page that a client may request.
const MAX_PAGE: u32 = 1000;

/// Parses a query. Unknown parameters are an error where `T` denies unknown fields.
pub(crate) fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let query = Query::try_from_uri(uri);
    query.map(|Query(query)| query).map_err(|wrong| Problem::bad_request(wrong.body_text()))
}

/// Query parameters, each a field of `T`.
pub(crate) struct QueryParams<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<QueryParams<T>, Problem> {
        read(&parts.uri).map(QueryParams)
    }
}

impl<T: JsonSchema> Describe for QueryParams<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<T>("query");
    }
}

/// Returns the maximum number of items in a page. Fails if the requested one is not 1 to 1000.
pub(crate) fn limit(requested: Option<u32>) -> Result<usize, Problem> {
    match requested.unwrap_or(DEFAULT_PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit as usize),
        _ => Err(Problem::bad_request(format!("limit: write 1 to {MAX_PAGE}"))),
    }
}

impl WriteQuery {
    /// Returns how long to wait, or `None` if `wait` was not given.
    pub fn timeout(&self) -> Result<Option<Duration>, Problem> {
        let Some(text) = &self.wait else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = digits.parse::<u64>().ok().filter(|_| (1..=3).contains(&digits.len()));
        match (number, text.get(digits.len()..).unwrap_or_default()) {
            (Some(seconds), "" | "s") => Ok(Some(Duration::from_secs(seconds))),
            (Some(ms), "ms") => Ok(Some(Duration::from_millis(ms))),
            _ => Err(Problem::bad_request("wait: write `5s` or `500ms`, at most three digits")),
        }
    }
}

/// Encodes a page cursor, which is opaque to clients: two texts separated by a zero byte, in
/// hexadecimal.
pub(crate) fn encode_cursor(first: &str, second: &str) -> String {
    hex::text(format!("{first}\0{second}").as_bytes())
}

/// Decodes a page cursor; `None` if `text` is empty.
pub(crate) fn decode_cursor(text: &str) -> Result<Option<(String, String)>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || Problem::bad_request("continue: write the previous page's value, or omit it");
    let octets = hex::octets(text).ok_or_else(wrong)?;
    let joined = String::from_utf8(octets).map_err(|_| wrong())?;
    let (first, second) = joined.split_once('\0').ok_or_else(wrong)?;
    Ok(Some((first.to_owned(), second.to_owned())))
}
