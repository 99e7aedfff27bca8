//! Responses and errors in Resource Manager's format, and access to JSON members.

use serde_json::{Value, json};

pub use crate::answer::ServiceError;

/// A response.
#[derive(Clone, PartialEq, Debug)]
pub struct AzureResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers in addition to the usual ones.
    pub headers: Vec<(&'static str, String)>,
    /// Body, if there is one.
    pub body: Option<Value>,
}

impl AzureResponse {
    /// Returns a response with a body.
    pub fn of(status: u16, body: Value) -> AzureResponse {
        AzureResponse { status, headers: Vec::new(), body: Some(body) }
    }

    /// Returns a response without a body.
    pub fn empty(status: u16) -> AzureResponse {
        AzureResponse { status, headers: Vec::new(), body: None }
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Adds a header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> AzureResponse {
        self.headers.push((name, value.into()));
        self
    }
}

impl From<ServiceError> for AzureResponse {
    fn from(error: ServiceError) -> AzureResponse {
        AzureResponse::of(error.status, error_body(&error))
    }
}

/// Result of an operation.
pub type ServiceResult<T> = Result<T, ServiceError>;

/// Returns an error with status, code and message.
pub fn fail<T>(status: u16, code: &str, message: impl Into<String>) -> ServiceResult<T> {
    Err(ServiceError { status, code: code.into(), message: message.into() })
}

/// Returns the error for a reference from the resource `from` to the absent resource `id`.
pub fn missing<T>(id: &str, from: &str) -> ServiceResult<T> {
    let why = format!(
        "Resource {id} referenced by resource {from} was not found. Please make sure that the \
         referenced resource exists, and that both resources are in the same region."
    );
    fail(400, "InvalidResourceReference", why)
}

/// Formats an error as Resource Manager does.
pub fn error_body(error: &ServiceError) -> Value {
    json!({ "error": { "code": error.code, "message": error.message, "details": [] } })
}

/// Returns the string at a JSON pointer; empty if there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list at a JSON pointer; empty if there is none.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns a list in `properties`; a missing list is created.
pub fn list_mut<'a>(value: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    let properties = object(object_member(value, "properties"));
    let member = properties.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if !member.is_array() {
        *member = Value::Array(Vec::new());
    }
    match member {
        Value::Array(list) => list,
        _ => unreachable!("set to an array above"),
    }
}

/// Returns a member; a missing member is created as an empty object.
pub fn object_member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    object(value).entry(name).or_insert_with(|| json!({}))
}

/// Returns the members of an object; any other value is replaced by an empty object.
pub fn object(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("set to an object above"),
    }
}

/// Sets a member, or removes it if `to` is `None`.
pub fn put(value: &mut Value, name: &str, to: Option<Value>) {
    match to {
        Some(to) => drop(object(value).insert(name.to_owned(), to)),
        None => drop(object(value).remove(name)),
    }
}

/// Sets members that are missing.
pub fn defaults<const N: usize>(value: &mut Value, members: [(&str, Value); N]) {
    for (name, default) in members {
        object(value).entry(name).or_insert(default);
    }
}
