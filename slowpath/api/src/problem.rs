//! Errors as documents: `application/problem+json` (RFC 9457), extended by the object, the invalid
//! field and its allowed values.

use std::fmt;

use axum::Json;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use state::object::{ChangeError, ErrorClass, TooOld};
use state::sources;

use crate::principal::{Listener, Principal};
use crate::reason::Reason;
use crate::role::Role;
use crate::tokens::EndedBy;

/// Media type of errors.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An error response (RFC 9457).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Type of the error, for programs: `urn:weir:invalid` and others.
    #[serde(rename = "type")]
    pub problem_type: Box<str>,
    /// Type of the error, for people.
    pub title: Box<str>,
    /// HTTP status code of the response.
    pub status: u16,
    /// What is wrong, and what to do.
    pub detail: Box<str>,
    /// The object that the error is about, if any: `Service shop/web of api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub object: Option<Box<str>>,
    /// Path of the invalid field: `spec.frontends[0].port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub field: Option<Box<str>>,
    /// Values allowed for the field, or what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub allowed: Option<Box<str>>,
    /// The allowed methods, for the `Allow` header of a 405 response.
    #[serde(skip)]
    pub(crate) methods: Option<&'static str>,
}

/// All types of errors: status code, name (after `urn:weir:` in `type`) and title.
pub(crate) const PROBLEM_TYPES: [(StatusCode, &str, &str); 22] = [
    (StatusCode::BAD_REQUEST, "request", "invalid request"),
    (StatusCode::UNAUTHORIZED, "token", "authentication required"),
    (StatusCode::FORBIDDEN, "role", "role not sufficient"),
    (StatusCode::FORBIDDEN, "foreign", "object belongs to another source"),
    (StatusCode::NOT_FOUND, "not-found", "not found"),
    (StatusCode::METHOD_NOT_ALLOWED, "method", "method not allowed"),
    (StatusCode::REQUEST_TIMEOUT, "slow", "request body too slow"),
    (StatusCode::CONFLICT, "deleting", "object is being deleted"),
    (StatusCode::CONFLICT, "not-in-force", "stored but not in force"),
    (StatusCode::CONFLICT, "missing-chunk", "preceding chunk missing"),
    (StatusCode::CONFLICT, "superseded", "superseded by a newer session"),
    (StatusCode::CONFLICT, "held", "removal must be confirmed"),
    (StatusCode::CONFLICT, "released", "objects of the source were released"),
    (StatusCode::GONE, "too-old", "revision too old"),
    (StatusCode::PRECONDITION_FAILED, "precondition-failed", "precondition failed"),
    (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "request body too large"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media", "unsupported media type"),
    (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "invalid field"),
    (StatusCode::TOO_MANY_REQUESTS, "busy", "too many requests"),
    (StatusCode::SERVICE_UNAVAILABLE, "store", "store accepts no changes"),
    (StatusCode::SERVICE_UNAVAILABLE, "store-timeout", "store did not respond in time"),
    (StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error"),
];

impl Problem {
    fn new(problem_type: &str, detail: impl Into<String>) -> Problem {
        let found = PROBLEM_TYPES.iter().find(|(_, name, _)| *name == problem_type);
        let (status, title) =
            found.map_or((StatusCode::INTERNAL_SERVER_ERROR, problem_type), |f| (f.0, f.2));
        Problem {
            problem_type: format!("urn:weir:{problem_type}").into(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into().into(),
            object: None,
            field: None,
            allowed: None,
            methods: None,
        }
    }

    /// The request can't be parsed or is not allowed in this form.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new("request", detail)
    }

    /// The requested entity does not exist.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new("not-found", detail)
    }

    /// The path has no handler for this method.
    pub(crate) fn method(method: &Method) -> Problem {
        let detail = format!("{method} is not allowed for this path; see the `Allow` header");
        Problem::new("method", detail)
    }

    /// Objects of this kind can only be read through the API.
    pub(crate) fn read_only(detail: &str) -> Problem {
        Problem { methods: Some("GET,HEAD"), ..Problem::new("method", detail) }
    }

    /// The request has no token, or an unknown one.
    pub(crate) fn token() -> Problem {
        let detail = "send `Authorization: Bearer TOKEN` with the token of api.token_file or one \
                      of api.tokens_file";
        Problem::new("token", detail)
    }

    /// The token of a login has never been in force.
    pub(crate) fn wrong_token() -> Problem {
        Problem::new("token", "the token is wrong")
    }

    /// The token was replaced, and is no longer accepted.
    pub(crate) fn replaced_token() -> Problem {
        let detail = "this token was replaced: read it again from where api.token_file is \
                      distributed, and send `Authorization: Bearer TOKEN` with the new one";
        Problem::new("token", detail)
    }

    /// The token is no longer accepted.
    pub(crate) fn ended_token(ended: &EndedBy) -> Problem {
        let (token, what) = match ended {
            EndedBy::Replaced => return Problem::replaced_token(),
            EndedBy::Revoked(name) => (name, "was revoked"),
            EndedBy::Expired(name) => (name, "has expired"),
        };
        let detail = format!("the token `{token}` {what}: ask for a new one");
        Problem::new("token", detail)
    }

    /// The token with which a stream was opened is no longer accepted.
    pub(crate) fn ended_stream() -> Problem {
        let detail = "the token of this stream was replaced, revoked, has expired or has another \
                      role: open it again, with a valid token";
        Problem::new("token", detail)
    }

    /// The caller lacks the role that the call needs.
    pub(crate) fn role(principal: &Principal, operation: &str, needed: Role) -> Problem {
        let Principal { name, role, origin } = principal;
        let remedy = match origin.listener {
            Listener::Api | Listener::Metrics => {
                format!("use a token of that role (`weir token create NAME --role {needed}`)")
            }
            Listener::Socket => {
                let key = match needed {
                    Role::Metrics | Role::Read => "control.read_group, control.operate_group or",
                    Role::Operate => "control.operate_group or",
                    Role::Admin => "",
                };
                let group = format!("{key} control.group");
                format!("use a member of {}, or root", group.trim())
            }
        };
        let detail = format!("{name} has the role {role}; {operation} needs {needed}: {remedy}");
        Problem::new("role", detail)
    }

    /// The user of a local process has no role.
    pub fn no_role(name: &str) -> Problem {
        let detail = format!(
            "{name} has no role on control.socket: add the user to control.group (role admin), \
             control.operate_group or control.read_group, or use root"
        );
        Problem::new("role", detail)
    }

    /// The source of the request has failed to authenticate too often.
    pub(crate) fn too_many_attempts(seconds: u64) -> Problem {
        let detail = format!(
            "too many requests from this address had a wrong token; try again after {seconds} s \
             with a valid token"
        );
        Problem::new("busy", detail)
    }

    /// The client sent the body of the request too slowly.
    pub(crate) fn slow(detail: impl Into<String>) -> Problem {
        Problem::new("slow", detail)
    }

    /// The object in a request of the API belongs to another source.
    pub(crate) fn foreign(source: &str) -> Problem {
        let detail = format!("only source `{source}` may change this object; omit `source`");
        Problem { field: Some("source".into()), ..Problem::new("foreign", detail) }
    }

    /// The object does not have the revision that the request's condition requires.
    pub(crate) fn precondition_failed(detail: impl Into<String>) -> Problem {
        Problem::new("precondition-failed", detail)
    }

    /// The body does not have the media type `allowed`.
    pub(crate) fn media(allowed: &str) -> Problem {
        Problem::new("media", format!("send the body with `Content-Type: {allowed}`"))
    }

    /// The body has more than `max` bytes.
    pub(crate) fn too_large(max: usize) -> Problem {
        Problem::new("too-large", format!("the body may have at most {max} bytes"))
    }

    /// The write is stored, but an object is not in force for the reason `why`.
    pub(crate) fn not_in_force(object: String, why: String) -> Problem {
        Problem { object: Some(object.into()), ..Problem::new("not-in-force", why) }
    }

    /// An internal error.
    pub fn internal(error: impl ToString) -> Problem {
        Problem::new("internal", error.to_string())
    }

    /// The store no longer has the changes since a revision, or does not have the revision yet.
    pub(crate) fn too_old(detail: impl Into<String>) -> Problem {
        Problem::new("too-old", detail)
    }

    /// Returns the error as an extension of its response, for the audit log.
    fn reason(&self) -> Reason {
        let name = self.problem_type.strip_prefix("urn:weir:").unwrap_or_default();
        Reason { problem: name.into(), text: self.to_string().into() }
    }

    fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Formats as `Service shop/web of api: spec.mss: 9461 is out of range; allowed: 0 to 9460`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.object, &self.field].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.detail)?;
        match &self.allowed {
            Some(allowed) => write!(f, "; {allowed}"),
            None => Ok(()),
        }
    }
}

impl From<TooOld> for Problem {
    fn from(old: TooOld) -> Problem {
        Problem::too_old(old.to_string())
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Problem {
        let problem_type = match error.class {
            ErrorClass::Invalid => "invalid",
            ErrorClass::NotFound => "not-found",
            ErrorClass::Conflict => "precondition-failed",
            ErrorClass::Deleting => "deleting",
            ErrorClass::Held => "held",
            ErrorClass::Disk | ErrorClass::Damaged => "store",
            ErrorClass::TimedOut => "store-timeout",
        };
        let some = |text: &String| (!text.is_empty()).then(|| text.as_str().into());
        Problem {
            object: error.object.as_ref().map(|key| key.to_string().into()),
            field: some(&error.field),
            allowed: some(&error.remedy),
            ..Problem::new(problem_type, error.fault)
        }
    }
}

impl From<sources::Error> for Problem {
    fn from(error: sources::Error) -> Problem {
        use sources::Error as E;
        let (problem_type, field, object) = match &error {
            E::Invalid(invalid) => return ChangeError::clone(invalid).into(),
            E::Name(_) | E::NeverBegun { .. } | E::NoSession { .. } | E::NotHeld { .. } => {
                ("not-found", None, None)
            }
            E::Held(_) => ("held", None, None),
            E::Reserved { .. } => ("foreign", None, None),
            E::Released { .. } => ("released", None, None),
            E::Lease { .. } => ("invalid", Some("lease_s"), None),
            E::Revision { .. } => ("invalid", Some("revision"), None),
            E::Superseded { .. } => ("superseded", None, None),
            E::Sessions { .. } => ("busy", None, None),
            E::MissingChunk { .. } => ("missing-chunk", None, None),
            E::Chunk { .. } | E::Session { .. } => ("too-large", None, None),
            E::ForeignSource { object, .. } => ("foreign", Some("source"), Some(object)),
            E::Kind { object } => ("invalid", Some("kind"), Some(object)),
            E::DuplicateObject { object } => ("invalid", Some("name"), Some(object)),
        };
        Problem {
            field: field.map(Into::into),
            object: object.map(|key| key.to_string().into()),
            ..Problem::new(problem_type, error.to_string())
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, methods) = (self.code(), self.methods);
        let reason = self.reason();
        let mut response = (code, Json(self)).into_response();
        response.extensions_mut().insert(reason);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(PROBLEM_JSON));
        if code == StatusCode::UNAUTHORIZED {
            let bearer = header::HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(methods) = methods {
            headers.insert(header::ALLOW, header::HeaderValue::from_static(methods));
        }
        response
    }
}
