//! Bodies of requests, as JSON.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use listeners::TooSlow;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;

/// Bytes of the longest body: a list of 20,000 backends fits.
pub const LONGEST_BODY: usize = 4 << 20;

/// The type of a whole object.
pub(crate) const JSON: &str = "application/json";

/// A body, if it could be read.
pub(crate) type Body = Result<Bytes, BytesRejection>;

/// A body of that type.
pub(crate) fn json(headers: &HeaderMap, body: Body, media: &str) -> Result<Value, Problem> {
    let told = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let told = told.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !told.eq_ignore_ascii_case(media) {
        return Err(Problem::media(media));
    }
    parse(&whole(body)?)
}

/// The fields of a body; without a body none of them is said.
pub(crate) fn fields<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    let empty = matches!(&body, Ok(bytes) if bytes.is_empty());
    let json = if empty { Value::Object(Default::default()) } else { json(headers, body, JSON)? };
    // A list of the fields' values would be taken for them.
    if !json.is_object() {
        return Err(Problem::request("the body is no JSON object: write {\"field\": value, ...}"));
    }
    Ok(state::object::read(&json, "")?)
}

fn whole(body: Body) -> Result<Bytes, Problem> {
    body.map_err(|wrong| match wrong.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(LONGEST_BODY),
        _ => match is_too_slow(&wrong) {
            true => Problem::slow(format!("{TooSlow}; send 32 KiB a second or more")),
            false => Problem::request(wrong.body_text()),
        },
    })
}

/// Whether a body was given up because it came too slowly.
fn is_too_slow(wrong: &BytesRejection) -> bool {
    let mut error: Option<&dyn std::error::Error> = Some(wrong);
    while let Some(one) = error {
        if one.is::<TooSlow>() {
            return true;
        }
        error = one.source();
    }
    false
}

fn parse(body: &Bytes) -> Result<Value, Problem> {
    let parsed = serde_json::from_slice(body);
    parsed.map_err(|wrong| Problem::request(format!("the body is no JSON: {wrong}")))
}
