//! JSON request bodies: media type check, size limit and parsing.

use std::convert::Infallible;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use listeners::TooSlow;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::route::{Describe, JSON, Operation};

/// Maximum size of a request body in bytes (4 MiB). A list of 20,000 backends fits.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// What a request body contains: its media type, whether it is required, and its schema for the
/// OpenAPI document.
pub(crate) trait Content {
    const MEDIA: &'static str = JSON;
    const IS_REQUIRED: bool = true;
    /// Maximum size in bytes. The route must have a layer with this limit if it is not the default.
    const MAX_BYTES: usize = MAX_BODY_BYTES;

    fn schema(operation: &mut Operation<'_>) -> Value;
}

/// The complete object that the path names.
pub(crate) struct WholeObject;

impl Content for WholeObject {
    fn schema(operation: &mut Operation<'_>) -> Value {
        operation.of_subject()
    }
}

/// A merge patch for the object that the path names (RFC 7396).
pub(crate) struct MergePatch;

impl Content for MergePatch {
    const MEDIA: &'static str = "application/merge-patch+json";

    fn schema(_: &mut Operation<'_>) -> Value {
        json!({ "type": "object" })
    }
}

/// A JSON object with the fields of `T`, all of them optional. A request may omit the body.
pub(crate) struct Fields<T>(PhantomData<T>);

impl<T: JsonSchema> Content for Fields<T> {
    const IS_REQUIRED: bool = false;

    fn schema(operation: &mut Operation<'_>) -> Value {
        operation.of_type::<T>()
    }
}

/// A request body as received. An error in reading the body is returned by [`Body::json`] or
/// `fields`, not by the extraction.
pub(crate) struct Body<C> {
    media: Option<HeaderValue>,
    bytes: Result<Bytes, BytesRejection>,
    content: PhantomData<fn() -> C>,
}

impl<C, S: Send + Sync> FromRequest<S> for Body<C> {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Body<C>, Infallible> {
        let media = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = Bytes::from_request(request, state).await;
        Ok(Body { media, bytes, content: PhantomData })
    }
}

impl<C: Content> Describe for Body<C> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = C::schema(operation);
        operation.body(C::MEDIA, C::IS_REQUIRED, schema);
        ["too-large", "media", "invalid"].into_iter().for_each(|problem| operation.fails(problem));
    }
}

impl<C: Content> Body<C> {
    /// Returns the parsed body. Fails if its media type is not that of `C`.
    pub fn json(self) -> Result<Value, Problem> {
        let media_type = self.media.as_ref().and_then(|value| value.to_str().ok());
        let media_type =
            media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(C::MEDIA) {
            return Err(Problem::media(C::MEDIA));
        }
        parse(&received(self.bytes, C::MAX_BYTES)?)
    }
}

impl<T: DeserializeOwned + JsonSchema> Body<Fields<T>> {
    /// Returns the fields of the body. An empty body is an empty object.
    pub fn fields(self) -> Result<T, Problem> {
        let empty = matches!(&self.bytes, Ok(bytes) if bytes.is_empty());
        let json = if empty { Value::Object(Default::default()) } else { self.json()? };
        // serde would accept an array as the struct's fields in order.
        if !json.is_object() {
            let wrong = "the body is not a JSON object: write {\"field\": value, ...}";
            return Err(Problem::bad_request(wrong));
        }
        Ok(state::object::read(&json, "")?)
    }
}

/// Returns the bytes of a body, or the error of reading it. `max` is its maximum size in bytes.
fn received(bytes: Result<Bytes, BytesRejection>, max: usize) -> Result<Bytes, Problem> {
    bytes.map_err(|wrong| match wrong.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::too_large(max),
        _ => match is_too_slow(&wrong) {
            true => Problem::slow(format!("{TooSlow}; send 32 KiB a second or more")),
            false => Problem::bad_request(wrong.body_text()),
        },
    })
}

/// Returns whether the body was abandoned because the client sent it too slowly.
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
    parsed.map_err(|wrong| Problem::bad_request(format!("the body is not valid JSON: {wrong}")))
}
