//! Routes and their descriptions: one declaration adds a handler to the router and its operation to
//! the OpenAPI document.
//!
//! The arguments and the response of a handler describe themselves ([`Describe`]): parameters,
//! bodies, status codes, schemas and possible errors. A declaration adds the summary and the errors
//! that are specific to the operation.

use axum::Json;
use axum::extract::{Extension, State};
use axum::handler::Handler;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, NoContent, Response};
use axum::routing::MethodRouter;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use state::object::{Kind, schema};
use state::show::Table;

use crate::access::{Access, Call, Calls};
use crate::problem::{PROBLEM_JSON, PROBLEM_TYPES, Problem};

/// Media type of all bodies but errors, streams and patches.
pub(crate) const JSON: &str = "application/json";

/// Types of errors that every operation may return.
const COMMON_PROBLEMS: [&str; 4] = ["request", "token", "role", "not-found"];

/// Description of status 202.
pub(crate) const STILL_APPLYING: &str =
    "Stored, but not yet in force when `wait` elapsed, or not yet deleted because of finalizers.";

/// An argument or the response of a handler, which adds itself to the description of an operation.
pub(crate) trait Describe {
    fn describe(operation: &mut Operation<'_>);
}

/// A handler whose arguments and response describe themselves. `Arguments` is the tuple of their
/// types: it tells the implementations for different numbers of arguments apart.
pub(crate) trait Described<Arguments> {
    fn describe(operation: &mut Operation<'_>);
}

/// Implements [`Described`] for handlers with this number of arguments that return a response or a
/// [`Problem`].
macro_rules! described {
    ($($argument:ident)*) => {
        impl<F, Answer, Good, $($argument),*> Described<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Answer,
            Answer: Future<Output = Result<Good, Problem>>,
            Good: Describe,
            $($argument: Describe,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($argument::describe(operation);)*
                Good::describe(operation);
            }
        }
    };
}
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
described!(A B C D E);
described!(A B C D E G);

/// Declaration of an operation.
pub(crate) struct Declaration {
    /// HTTP method in lower case.
    pub method: &'static str,
    /// Operation ID. [`Subject::fill`] replaces its placeholders, as those of the summary.
    pub id: String,
    /// What the operation does, and the role that it needs.
    pub access: Access,
    pub summary: &'static str,
    pub detail: &'static str,
    /// Description of the successful response.
    pub good: &'static str,
    /// Types of errors beyond those of the arguments.
    pub problems: Vec<&'static str>,
    /// Adds the description derived from the handler's types.
    pub types: fn(&mut Operation<'_>),
    /// Adds what the types don't express: responses whose schemas depend on the path.
    pub more: fn(&mut Operation<'_>),
}

/// A handler and its declaration.
pub(crate) struct Route<S> {
    pub handler: MethodRouter<S>,
    pub declaration: Declaration,
}

impl<S> Route<S> {
    pub fn new(
        method: &'static str,
        handler: MethodRouter<S>,
        types: fn(&mut Operation<'_>),
        (access, id): (Access, &str),
        summary: &'static str,
    ) -> Route<S> {
        let (id, problems) = (id.to_owned(), COMMON_PROBLEMS.to_vec());
        let (detail, good) = ("", "");
        let more: fn(&mut Operation<'_>) = |_| {};
        let declaration =
            Declaration { method, id, access, summary, detail, good, problems, types, more };
        Route { handler, declaration }
    }

    /// Sets the description of the successful response.
    pub fn good(mut self, good: &'static str) -> Route<S> {
        self.declaration.good = good;
        self
    }

    /// Sets the description of the operation, beside its summary.
    pub fn detail(mut self, detail: &'static str) -> Route<S> {
        self.declaration.detail = detail;
        self
    }

    /// Adds types of errors.
    pub fn fails(mut self, problems: &[&'static str]) -> Route<S> {
        self.declaration.problems.extend(problems);
        self
    }

    /// Sets [`Declaration::more`].
    pub fn with(mut self, more: fn(&mut Operation<'_>)) -> Route<S> {
        self.declaration.more = more;
        self
    }
}

macro_rules! methods {
    ($($method:ident)*) => { $(
        /// Declares an operation of this HTTP method.
        pub(crate) fn $method<S, H, T, A>(
            handler: H,
            access: Access,
            id: &str,
            summary: &'static str,
        ) -> Route<S>
        where
            S: Clone + Send + Sync + 'static,
            H: Handler<T, S> + Described<A>,
            T: 'static,
        {
            let handler = axum::routing::$method(handler);
            Route::new(stringify!($method), handler, H::describe, (access, id), summary)
        }
    )* };
}
methods!(get put post patch delete);

/// Routes below `/v1`, each with its path.
pub(crate) struct Routes<S>(Vec<(String, Route<S>)>);

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Returns an empty set of routes.
    pub fn new() -> Routes<S> {
        Routes(Vec::new())
    }

    /// Adds the operations of a path.
    pub fn add(mut self, path: &str, routes: impl IntoIterator<Item = Route<S>>) -> Routes<S> {
        self.0.extend(routes.into_iter().map(|route| (path.to_owned(), route)));
        self
    }

    pub fn merge(mut self, other: Routes<S>) -> Routes<S> {
        self.0.extend(other.0);
        self
    }

    /// Wraps all handlers in a layer, which may respond with the error `problem`.
    pub fn layer(
        self,
        problem: &'static str,
        layer: impl Fn(MethodRouter<S>) -> MethodRouter<S>,
    ) -> Routes<S> {
        let wrap = |(path, route): (String, Route<S>)| {
            let route = route.fails(&[problem]);
            (path, Route { handler: layer(route.handler), ..route })
        };
        Routes(self.0.into_iter().map(wrap).collect())
    }

    /// Returns the calls, each with its role check, and the declarations with their paths.
    pub fn into_parts(self) -> (Calls<S>, Vec<(String, Declaration)>) {
        let (mut calls, mut declared) = (Calls::default(), Vec::new());
        for (path, Route { handler, declaration }) in self.0 {
            let Declaration { method, id, access, .. } = &declaration;
            calls = calls.add(Call::new(method, &path, id, *access), handler);
            declared.push((path, declaration));
        }
        (calls, declared)
    }
}

/// What a path is about. The OpenAPI document describes the paths of objects once for each kind,
/// and those of tables once for each table.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Kind(Kind),
    Table(Table),
    Other,
}

impl Subject {
    /// Returns all subjects of a path.
    pub fn all(path: &str) -> Vec<Subject> {
        match path {
            _ if path.contains("{kind}") => Kind::ALL.iter().copied().map(Subject::Kind).collect(),
            _ if path.contains("{table}") => Table::ALL.map(Subject::Table).into(),
            _ => vec![Subject::Other],
        }
    }

    /// Replaces the placeholders of a path or a text with this subject's names.
    pub fn fill(self, text: &str) -> String {
        match self {
            Subject::Kind(kind) => {
                text.replace("{kind}", kind.plural()).replace("{Kind}", kind.as_str())
            }
            Subject::Table(table) => text.replace("{table}", table.name()),
            Subject::Other => text.to_owned(),
        }
    }
}

/// An operation under construction.
pub(crate) struct Operation<'d> {
    pub subject: Subject,
    pub generator: &'d mut SchemaGenerator,
    declaration: &'d Declaration,
    problems: Vec<&'static str>,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
    /// The subject does not support this operation.
    is_unsupported: bool,
}

impl<'d> Operation<'d> {
    /// Returns the OpenAPI operation for this subject, or none if the subject doesn't support it.
    pub fn of(
        declaration: &'d Declaration,
        subject: Subject,
        generator: &'d mut SchemaGenerator,
    ) -> Option<Value> {
        let mut operation = Operation {
            subject,
            generator,
            declaration,
            problems: declaration.problems.clone(),
            parameters: Vec::new(),
            body: None,
            responses: Map::new(),
            is_unsupported: false,
        };
        (declaration.types)(&mut operation);
        (declaration.more)(&mut operation);
        (!operation.is_unsupported).then(|| operation.finish())
    }

    fn finish(mut self) -> Value {
        let is_described = self.responses.keys().any(|status| status.starts_with('2'));
        debug_assert!(is_described, "{}: no success response is described", self.declaration.id);
        let problem = self.generator.subschema_for::<Problem>();
        for (status, name, title) in PROBLEM_TYPES {
            if !self.problems.contains(&name) {
                continue;
            }
            let content = json!({ PROBLEM_JSON: { "schema": problem } });
            let new = || json!({ "description": "", "content": content });
            let response = self.responses.entry(status.as_str()).or_insert_with(new);
            let before = response["description"].as_str().unwrap_or_default();
            let between = if before.is_empty() { "" } else { "; " };
            response["description"] = format!("{before}{between}{title}").into();
        }
        self.responses.sort_keys();
        let mut all = json!({
            "operationId": self.subject.fill(&self.declaration.id),
            "summary": self.subject.fill(self.declaration.summary),
            "x-weir-role": self.declaration.access.role(),
            "parameters": self.parameters,
            "responses": self.responses,
        });
        if !self.declaration.detail.is_empty() {
            all["description"] = self.declaration.detail.into();
        }
        if let Some(body) = self.body {
            all["requestBody"] = body;
        }
        all
    }

    /// Marks the operation as a write, which a read-only kind does not support.
    pub fn writes(&mut self) {
        self.is_unsupported =
            matches!(self.subject, Subject::Kind(kind) if kind.read_only_reason().is_some());
    }

    /// Adds a type of error.
    pub fn fails(&mut self, problem: &'static str) {
        self.problems.push(problem);
    }

    /// Adds a response without content, and returns it so that the caller can add to it.
    pub fn empty(&mut self, status: u16, about: &str) -> &mut Value {
        let response = self.responses.entry(status.to_string()).or_insert_with(|| json!({}));
        *response = json!({ "description": about });
        response
    }

    /// Adds a JSON response.
    pub fn content(&mut self, status: u16, about: &str, schema: Value) -> &mut Value {
        let response = self.empty(status, about);
        response["content"] = json!({ JSON: { "schema": schema } });
        response
    }

    /// Adds the successful JSON response, with the description of the declaration.
    fn good(&mut self, status: u16, schema: Value) -> &mut Value {
        self.content(status, self.declaration.good, schema)
    }

    /// Adds a JSON response with an ETag.
    pub fn with_etag(&mut self, status: u16, about: &str, schema: Value) -> &mut Value {
        let response = self.content(status, about, schema);
        let etag = json!({ "type": "string", "pattern": "^\"[0-9]+\"$" });
        response["headers"] = json!({ "ETag": { "schema": etag } });
        response
    }

    /// Adds a response that is the object which the path names, with its ETag.
    pub fn object(&mut self, status: u16, about: &str) {
        let schema = self.of_subject();
        self.with_etag(status, about, schema);
    }

    /// Sets the request body.
    pub fn body(&mut self, media: &str, is_required: bool, schema: Value) {
        let content = json!({ media: { "schema": schema } });
        self.body = Some(json!({ "required": is_required, "content": content }));
    }

    /// Returns the schema of the kind that the path names.
    pub fn of_subject(&mut self) -> Value {
        match self.subject {
            Subject::Kind(kind) => self.of_kind(kind),
            Subject::Table(_) | Subject::Other => json!({ "type": "object" }),
        }
    }

    /// Returns a reference to the schema of a kind.
    pub fn of_kind(&mut self, kind: Kind) -> Value {
        if !self.generator.definitions().contains_key(kind.as_str()) {
            let schema = schema(kind, self.generator);
            self.generator.definitions_mut().insert(kind.to_string(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{kind}") })
    }

    /// Returns the schema of a type, or a reference to it.
    pub fn of_type<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().into()
    }

    /// Adds the fields of a type as parameters.
    pub fn parameters<T: JsonSchema>(&mut self, location: &str) {
        let mut schema = Value::from(T::json_schema(self.generator));
        let fields = schema["properties"].as_object_mut().map(std::mem::take);
        for (name, mut schema) in fields.unwrap_or_default() {
            let about = schema["description"].take();
            if let Some(map) = schema.as_object_mut() {
                map.retain(|_, value| !value.is_null());
                // The schema of an optional field permits its type or null. A parameter is omitted
                // rather than null: keep the field's type only.
                let one = map.get("type").and_then(|all| all.get(0)).cloned();
                map.extend(one.map(|one| ("type".to_owned(), one)));
            }
            self.parameter(&name, location, &about, &schema);
        }
    }

    /// Adds a parameter. Path parameters are required.
    pub fn parameter(&mut self, name: &str, location: &str, about: &Value, schema: &Value) {
        let mut parameter =
            json!({ "name": name, "in": location, "description": about, "schema": schema });
        if location == "path" {
            parameter["required"] = true.into();
        }
        self.parameters.push(parameter);
    }
}

impl<S> Describe for State<S> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T> Describe for Extension<T> {
    fn describe(_: &mut Operation<'_>) {}
}

/// The response depends on the path and is described by the declaration.
impl Describe for Response {
    fn describe(_: &mut Operation<'_>) {}
}

impl Describe for NoContent {
    fn describe(operation: &mut Operation<'_>) {
        operation.empty(204, operation.declaration.good);
    }
}

impl<T: JsonSchema> Describe for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.of_type::<T>();
        operation.good(200, schema);
    }
}

/// A 201 response with the path of what was created.
pub(crate) struct Created<T> {
    pub path: String,
    pub body: T,
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let location = [(header::LOCATION, self.path)];
        (StatusCode::CREATED, location, Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Describe for Created<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.of_type::<T>();
        let response = operation.good(201, schema);
        response["headers"] = json!({ "Location": { "schema": { "type": "string" } } });
    }
}

/// A response to a stored change: 202 if it was still being applied when `wait` elapsed, else 200.
pub(crate) struct Stored<T> {
    /// The change is in force, or the request did not wait for that.
    pub in_force: bool,
    pub body: T,
}

impl<T: Serialize> IntoResponse for Stored<T> {
    fn into_response(self) -> Response {
        let status = if self.in_force { StatusCode::OK } else { StatusCode::ACCEPTED };
        (status, Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Describe for Stored<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.of_type::<T>();
        operation.good(200, schema.clone());
        operation.content(202, STILL_APPLYING, schema);
    }
}

/// One page of a list.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Page<T> {
    /// Revision of the listed state. A watch that begins at it misses no change.
    pub revision: u64,
    pub items: Vec<T>,
    /// Value of `continue` for the next page; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

impl Page<Value> {
    /// Returns the schema of a page with items of this schema.
    pub fn of(operation: &mut Operation<'_>, item: Value) -> Value {
        let mut page = operation.of_type::<Self>();
        page["properties"]["items"]["items"] = item;
        page
    }
}
