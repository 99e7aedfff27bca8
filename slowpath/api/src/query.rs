//! What is asked behind the question mark.

use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// Of a list of objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listed {
    /// At most so many; 500 where nobody says.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// Where the list goes on, as the page before said it.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    pub after: String,
    /// Only these parts of each object, with commas between: `name,spec.frontends`.
    #[schemars(regex(pattern = r"^([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*(,[a-z]+)?)?$"))]
    pub fields: String,
    /// Only what this source said.
    pub source: String,
    /// A stream of changes instead: a line of JSON each (see `Change`).
    pub watch: bool,
    /// Of a stream: what happened after this revision. Without one, everything that is there comes
    /// first.
    pub revision: Option<u64>,
    /// Of a stream: it ends after so many seconds; without, never.
    #[schemars(range(min = 0, max = 86400))]
    pub seconds: Option<u32>,
}

/// Of one object that is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Read {
    /// What this source says of it; `api` where nobody is named.
    pub source: String,
}

/// Of a write.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    /// Checks the write and answers as if it were made, and doesn't make it.
    pub dry_run: bool,
    /// Answers when all lcores serve the change, or a plane refuses it, or after this time: `5s`,
    /// `500ms`.
    #[schemars(regex(pattern = r"^[0-9]{1,3}(ms|s)?$"))]
    pub wait: Option<String>,
}

/// Where nothing is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Of a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rows {
    /// At most so many; 500 where nobody says.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// Where the list goes on, as the page before said it.
    #[serde(rename = "continue")]
    #[schemars(regex(pattern = r"^([0-9a-f]{2})*$"))]
    pub after: String,
    /// Only rows whose first column begins so, or, in frontends and backends, whose address is in
    /// this network.
    pub prefix: String,
    /// Only these columns, with commas between.
    #[schemars(regex(pattern = r"^([A-Za-z]+(,[A-Za-z]+)?)?$"))]
    pub fields: String,
}

/// Items of a page where nobody says.
const PAGE: u32 = 500;
/// Items of the longest page.
const LONGEST_PAGE: u32 = 1000;

/// Reads a query; what is unknown in it is told.
pub(crate) fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let query = Query::try_from_uri(uri);
    query.map(|Query(query)| query).map_err(|wrong| Problem::request(wrong.body_text()))
}

/// A query, each parameter a field of `T`.
pub(crate) struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked<T>, Problem> {
        read(&parts.uri).map(Asked)
    }
}

impl<T: JsonSchema> Describe for Asked<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<T>("query");
    }
}

/// How many items a page has.
pub(crate) fn limit(asked: Option<u32>) -> Result<usize, Problem> {
    match asked.unwrap_or(PAGE) {
        limit @ 1..=LONGEST_PAGE => Ok(limit as usize),
        _ => Err(Problem::request(format!("limit: write 1 to {LONGEST_PAGE}"))),
    }
}

impl Written {
    /// How long to wait, if at all.
    pub fn patience(&self) -> Result<Option<Duration>, Problem> {
        let Some(text) = &self.wait else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = digits.parse::<u64>().ok().filter(|_| (1..=3).contains(&digits.len()));
        match (number, text.get(digits.len()..).unwrap_or_default()) {
            (Some(seconds), "" | "s") => Ok(Some(Duration::from_secs(seconds))),
            (Some(ms), "ms") => Ok(Some(Duration::from_millis(ms))),
            _ => Err(Problem::request("wait: write `5s` or `500ms`, at most three digits")),
        }
    }
}

/// Where a list goes on: two texts that nobody has to understand.
pub(crate) fn mark(first: &str, second: &str) -> String {
    let bytes = first.bytes().chain([0]).chain(second.bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// The reverse; none at the beginning.
pub(crate) fn marked(text: &str) -> Result<Option<(String, String)>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || Problem::request("continue: write what the page before said, or leave it out");
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    let joined = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
    let (first, second) = joined.split_once('\0').ok_or_else(wrong)?;
    Ok(Some((first.to_owned(), second.to_owned())))
}
