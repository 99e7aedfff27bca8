//! The parsed request, and the operation name by which it is matched and recorded.

use serde_json::Value;

use crate::azure::kind::Kind;
use crate::azure::path::Path;

/// A parsed request.
#[derive(Clone, Debug, Default)]
pub struct ParsedRequest {
    /// Method, `GET` for instance.
    pub method: String,
    /// Decoded path.
    pub path: String,
    /// Decoded query parameters.
    pub query: Vec<(String, String)>,
    /// Headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// JSON body; the fields of a form body as a JSON object.
    pub body: Value,
    /// Base URL for links, `https://localhost:PORT`.
    pub base: String,
}

impl ParsedRequest {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns the operation name of a request, for example `LIST loadBalancers` or `POST token`, by
/// which fault rules and recorded calls identify it.
pub fn operation(method: &str, path: &str) -> String {
    if path.ends_with("/oauth2/v2.0/token") {
        return format!("{method} token");
    }
    if path.to_ascii_lowercase().ends_with("/providers/microsoft.authorization/permissions") {
        return format!("{method} permissions");
    }
    let Some(path) = Path::parse(path) else { return format!("{method} {path}") };
    let types = Kind::of(&path).map_or_else(|| path.types(), |kind| kind.types.to_owned());
    match method {
        "GET" if !path.is_item() => format!("LIST {types}"),
        _ => format!("{method} {}", types.strip_prefix("locations/").unwrap_or(&types)),
    }
}
