//! ETags and conditional requests (RFC 9110, section 13).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::json;

use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// Returns the ETag of a revision, in quotes.
pub(crate) fn tag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// Returns the `ETag` header of a revision.
pub(crate) fn header(revision: u64) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(tag(revision));
    (header::ETAG, value.unwrap_or(HeaderValue::from_static("\"0\"")))
}

/// Value of an `If-Match` or `If-None-Match` header.
#[derive(Debug)]
enum Tags {
    /// `*`: matches every existing object.
    Any,
    /// Matches if the current ETag is one of these.
    OneOf(Vec<String>),
}

/// How tags are compared (RFC 9110, section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Weak tags (`W/"17"`) match nothing.
    Strong,
    /// Weak tags match like strong ones.
    Weak,
}

impl Tags {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let wrong = || Problem::bad_request(format!("{name}: write `*` or tags like `\"17\"`"));
            let text = value.to_str().map_err(|_| wrong())?;
            for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                let opaque = tag.strip_prefix("W/").unwrap_or(tag);
                let quoted = opaque.len() > 1 && opaque.starts_with('"') && opaque.ends_with('"');
                if tag != "*" && !quoted {
                    return Err(wrong());
                }
                tags.push(tag.to_owned());
            }
        }
        Ok(match tags.as_slice() {
            [] if headers.contains_key(name) => {
                let empty = format!("{name}: the value is empty; omit the header");
                return Err(Problem::bad_request(empty));
            }
            [] => None,
            all if all.iter().any(|tag| tag == "*") => Some(Tags::Any),
            _ => Some(Tags::OneOf(tags)),
        })
    }

    /// Returns whether the tags match `revision`. Revision 0 means that the object does not exist:
    /// no tag matches it.
    fn matches(&self, revision: u64, comparison: Comparison) -> bool {
        match self {
            _ if revision == 0 => false,
            Tags::Any => true,
            Tags::OneOf(tags) => {
                let own = tag(revision);
                let plain = |tag: &String| match tag.strip_prefix("W/") {
                    Some(weak) => comparison == Comparison::Weak && weak == own,
                    None => *tag == own,
                };
                tags.iter().any(plain)
            }
        }
    }
}

/// Precondition of a request: its `If-Match`, `If-None-Match`, and the revision in its body.
#[derive(Debug)]
pub(crate) struct Condition {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
    /// The revision given in the body; 0 if there is none.
    pub body_revision: u64,
}

impl Condition {
    /// Reads the condition from the request's headers.
    pub fn of(headers: &HeaderMap) -> Result<Condition, Problem> {
        Ok(Condition {
            if_match: Tags::read(headers, &header::IF_MATCH)?,
            if_none_match: Tags::read(headers, &header::IF_NONE_MATCH)?,
            body_revision: 0,
        })
    }

    /// Returns whether the request has no condition.
    pub fn is_none(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none() && self.body_revision == 0
    }

    /// Returns whether `If-None-Match` matches, so that the client has this revision already.
    pub fn is_unchanged(&self, revision: u64) -> bool {
        self.if_none_match.as_ref().is_some_and(|tags| tags.matches(revision, Comparison::Weak))
    }

    /// Returns an error if the condition doesn't hold for `revision`; 0 means that the object does
    /// not exist.
    pub fn check(&self, revision: u64) -> Result<(), Problem> {
        let is_match = |tags: &Tags| tags.matches(revision, Comparison::Strong);
        let matches = self.if_match.as_ref().is_none_or(is_match);
        let differs = !self.is_unchanged(revision);
        if matches && differs && (self.body_revision == 0 || self.body_revision == revision) {
            return Ok(());
        }
        Err(Problem::precondition_failed(match revision {
            0 => "the object does not exist; read the current state and try again".to_owned(),
            at => format!("the object is at revision {at}; read it again and change that"),
        }))
    }
}

impl<S: Sync> FromRequestParts<S> for Condition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Condition, Problem> {
        Condition::of(&parts.headers)
    }
}

impl Describe for Condition {
    fn describe(operation: &mut Operation<'_>) {
        describe(operation, "If-Match");
        describe(operation, "If-None-Match");
        operation.fails("precondition-failed");
    }
}

/// Adds a header with ETags to the parameters of an operation.
fn describe(operation: &mut Operation<'_>, header: &str) {
    let about = "`*`, or the ETag of an earlier response, with its quotes.".into();
    let schema = json!({ "type": "string", "pattern": r#"^(\*|"[0-9]{1,19}")$"# });
    operation.parameter(header, "header", &about, &schema);
}

/// The condition of a read: `If-None-Match`. A read of an unchanged revision is answered with 304;
/// `If-Match` is ignored.
pub(crate) struct IfChanged(pub Condition);

impl<S: Sync> FromRequestParts<S> for IfChanged {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfChanged, Problem> {
        Condition::of(&parts.headers).map(IfChanged)
    }
}

impl Describe for IfChanged {
    fn describe(operation: &mut Operation<'_>) {
        describe(operation, "If-None-Match");
        operation.empty(304, "Not modified since that ETag.");
    }
}
