//! ETags, and the headers that make a request depend on them (RFC 9110 13).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::json;

use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// The tag of a revision.
pub(crate) fn tag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// The same as a header.
pub(crate) fn header(revision: u64) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::try_from(tag(revision));
    (header::ETAG, value.unwrap_or(HeaderValue::from_static("\"0\"")))
}

/// What a header asks of the tag that is there.
#[derive(Debug)]
enum Tags {
    /// `*`: that there is one.
    Any,
    /// That it is one of these.
    OneOf(Vec<String>),
}

impl Tags {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let wrong = || Problem::request(format!("{name}: write `*` or tags like `\"17\"`"));
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
                return Err(Problem::request(format!("{name}: it is empty; leave it out")));
            }
            [] => None,
            all if all.iter().any(|tag| tag == "*") => Some(Tags::Any),
            _ => Some(Tags::OneOf(tags)),
        })
    }

    /// Whether the tag of what is there, 0 for nothing, is meant. Weak tags are compared only where
    /// `weakly`.
    fn meet(&self, revision: u64, weakly: bool) -> bool {
        match self {
            _ if revision == 0 => false,
            Tags::Any => true,
            Tags::OneOf(tags) => {
                let own = tag(revision);
                let plain = |tag: &String| match tag.strip_prefix("W/") {
                    Some(weak) => weakly && weak == own,
                    None => *tag == own,
                };
                tags.iter().any(plain)
            }
        }
    }
}

/// What has to hold of what is there.
#[derive(Debug)]
pub(crate) struct Condition {
    matches: Option<Tags>,
    differs: Option<Tags>,
    /// The revision that the body says it was made from; 0 for none.
    pub seen: u64,
}

impl Condition {
    /// Of a request.
    pub fn of(headers: &HeaderMap) -> Result<Condition, Problem> {
        Ok(Condition {
            matches: Tags::read(headers, &header::IF_MATCH)?,
            differs: Tags::read(headers, &header::IF_NONE_MATCH)?,
            seen: 0,
        })
    }

    /// Whether nothing is asked.
    pub fn is_none(&self) -> bool {
        self.matches.is_none() && self.differs.is_none() && self.seen == 0
    }

    /// Whether whoever reads has it already.
    pub fn has(&self, revision: u64) -> bool {
        self.differs.as_ref().is_some_and(|tags| tags.meet(revision, true))
    }

    /// Refuses to write over a revision, 0 for nothing there.
    pub fn check(&self, revision: u64) -> Result<(), Problem> {
        let matches = self.matches.as_ref().is_none_or(|tags| tags.meet(revision, false));
        let differs = self.differs.as_ref().is_none_or(|tags| !tags.meet(revision, true));
        if matches && differs && (self.seen == 0 || self.seen == revision) {
            return Ok(());
        }
        Err(Problem::changed(match revision {
            0 => "it doesn't exist; read what is there, and ask again".to_owned(),
            at => format!("it is at revision {at}; read it again, and change what is there now"),
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
        operation.fails("changed");
    }
}

fn describe(operation: &mut Operation<'_>, header: &str) {
    let about = "`*`, or the ETag of what was read, in its quotes.".into();
    let schema = json!({ "type": "string", "pattern": r#"^(\*|"[0-9]{1,19}")$"# });
    operation.parameter(header, "header", &about, &schema);
}

/// The condition of a read: what has not changed is not sent again.
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
        operation.empty(304, "Nothing has changed since that ETag.");
    }
}
