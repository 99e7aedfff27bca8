//! Routes and their descriptions: one declaration gives a handler to the router and its operation
//! to the OpenAPI document.
//!
//! The arguments of a handler and its answer describe themselves ([`Describe`]): parameters,
//! bodies, status codes and schemas, and what may be wrong with them. A declaration adds the words,
//! and the problems that are of the operation itself.

use axum::extract::{Extension, State};
use axum::handler::Handler;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, NoContent, Response};
use axum::routing::MethodRouter;
use axum::{Json, Router};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};
use state::object::{Kind, schema};
use state::show::Table;

use crate::problem::{PROBLEM_JSON, Problem, SORTS};

/// The media type of all but errors, streams and patches.
pub(crate) const JSON: &str = "application/json";

/// The sorts of problems that any request may be answered with.
const ALWAYS: [&str; 3] = ["request", "token", "absent"];

/// What 202 means.
pub(crate) const COMING: &str = "It is kept, and on its way: it took longer than `wait`.";

/// An argument or an answer of a handler: it adds itself to the description of an operation.
pub(crate) trait Describe {
    fn describe(operation: &mut Operation<'_>);
}

/// A handler whose arguments and answer describe themselves.
pub(crate) trait Described<Arguments> {
    fn describe(operation: &mut Operation<'_>);
}

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

/// An operation as it is declared.
pub(crate) struct Declaration {
    pub method: &'static str,
    /// Names the operation; `{Kind}` and `{kind}` are filled in, as in the summary.
    pub id: String,
    pub summary: &'static str,
    pub detail: &'static str,
    /// What the answer means when all is well.
    pub good: &'static str,
    /// Sorts of problems beyond those of the arguments.
    pub problems: Vec<&'static str>,
    /// What the types say.
    pub types: fn(&mut Operation<'_>),
    /// What they can't say: answers whose schemas depend on the path.
    pub more: fn(&mut Operation<'_>),
}

/// A handler with its declaration.
pub(crate) struct Route<S> {
    pub handler: MethodRouter<S>,
    pub declaration: Declaration,
}

impl<S> Route<S> {
    pub fn new(
        method: &'static str,
        handler: MethodRouter<S>,
        types: fn(&mut Operation<'_>),
        id: &str,
        summary: &'static str,
    ) -> Route<S> {
        let (id, problems) = (id.to_owned(), ALWAYS.to_vec());
        let (detail, good) = ("", "");
        let more: fn(&mut Operation<'_>) = |_| {};
        let declaration = Declaration { method, id, summary, detail, good, problems, types, more };
        Route { handler, declaration }
    }

    pub fn good(mut self, good: &'static str) -> Route<S> {
        self.declaration.good = good;
        self
    }

    pub fn detail(mut self, detail: &'static str) -> Route<S> {
        self.declaration.detail = detail;
        self
    }

    pub fn fails(mut self, problems: &[&'static str]) -> Route<S> {
        self.declaration.problems.extend(problems);
        self
    }

    pub fn with(mut self, more: fn(&mut Operation<'_>)) -> Route<S> {
        self.declaration.more = more;
        self
    }
}

macro_rules! methods {
    ($($method:ident)*) => { $(
        /// Declares the operation of this method.
        pub(crate) fn $method<S, H, T, A>(handler: H, id: &str, summary: &'static str) -> Route<S>
        where
            S: Clone + Send + Sync + 'static,
            H: Handler<T, S> + Described<A>,
            T: 'static,
        {
            let handler = axum::routing::$method(handler);
            Route::new(stringify!($method), handler, H::describe, id, summary)
        }
    )* };
}
methods!(get put post patch delete);

/// Routes below `/v1`.
pub(crate) struct Routes<S> {
    pub router: Router<S>,
    /// Each with its path.
    pub declared: Vec<(String, Declaration)>,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// No routes.
    pub fn new() -> Routes<S> {
        Routes { router: Router::new(), declared: Vec::new() }
    }

    /// Adds the operations of a path.
    pub fn add(mut self, path: &str, routes: impl IntoIterator<Item = Route<S>>) -> Routes<S> {
        for Route { handler, declaration } in routes {
            self.router = self.router.route(path, handler);
            self.declared.push((path.to_owned(), declaration));
        }
        self
    }

    pub fn merge(mut self, other: Routes<S>) -> Routes<S> {
        self.router = self.router.merge(other.router);
        self.declared.extend(other.declared);
        self
    }

    /// Puts a layer over all of them, which may answer with this problem.
    pub fn layer(
        mut self,
        problem: &'static str,
        layer: impl FnOnce(Router<S>) -> Router<S>,
    ) -> Routes<S> {
        self.declared.iter_mut().for_each(|(_, one)| one.problems.push(problem));
        Routes { router: layer(self.router), ..self }
    }
}

/// What a path is about. The paths of objects and of tables are described for each of them.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Kind(Kind),
    Table(Table),
    Other,
}

impl Subject {
    /// All subjects of a path.
    pub fn all(path: &str) -> Vec<Subject> {
        match path {
            _ if path.contains("{kind}") => Kind::ALL.iter().copied().map(Subject::Kind).collect(),
            _ if path.contains("{table}") => Table::ALL.map(Subject::Table).into(),
            _ => vec![Subject::Other],
        }
    }

    /// A path or a text about this subject.
    pub fn fill(self, text: &str) -> String {
        match self {
            Subject::Kind(kind) => {
                text.replace("{kind}", kind.many()).replace("{Kind}", kind.as_str())
            }
            Subject::Table(table) => text.replace("{table}", table.name()),
            Subject::Other => text.to_owned(),
        }
    }
}

/// An operation while it is described.
pub(crate) struct Operation<'d> {
    pub subject: Subject,
    pub generator: &'d mut SchemaGenerator,
    declaration: &'d Declaration,
    problems: Vec<&'static str>,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
    /// The subject has no such operation.
    is_absent: bool,
}

impl<'d> Operation<'d> {
    /// The operation on this subject as the document has it; none where there is no such thing.
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
            answers: Map::new(),
            is_absent: false,
        };
        (declaration.types)(&mut operation);
        (declaration.more)(&mut operation);
        (!operation.is_absent).then(|| operation.finish())
    }

    fn finish(mut self) -> Value {
        let is_described = self.answers.keys().any(|status| status.starts_with('2'));
        debug_assert!(is_described, "{}: describe its answer", self.declaration.id);
        let problem = self.generator.subschema_for::<Problem>();
        for (status, sort, title) in SORTS {
            if !self.problems.contains(&sort) {
                continue;
            }
            let content = json!({ PROBLEM_JSON: { "schema": problem } });
            let new = || json!({ "description": "", "content": content });
            let answer = self.answers.entry(status.as_str()).or_insert_with(new);
            let before = answer["description"].as_str().unwrap_or_default();
            let between = if before.is_empty() { "" } else { "; " };
            answer["description"] = format!("{before}{between}{title}").into();
        }
        self.answers.sort_keys();
        let mut all = json!({
            "operationId": self.subject.fill(&self.declaration.id),
            "summary": self.subject.fill(self.declaration.summary),
            "parameters": self.parameters,
            "responses": self.answers,
        });
        if !self.declaration.detail.is_empty() {
            all["description"] = self.declaration.detail.into();
        }
        if let Some(body) = self.body {
            all["requestBody"] = body;
        }
        all
    }

    /// It changes the subject, which may be read-only.
    pub fn writes(&mut self) {
        self.is_absent = matches!(self.subject, Subject::Kind(kind) if kind.read_only().is_some());
    }

    /// A sort of problem that there may be.
    pub fn fails(&mut self, problem: &'static str) {
        self.problems.push(problem);
    }

    /// An answer without content, which may be added to it.
    pub fn empty(&mut self, status: u16, about: &str) -> &mut Value {
        let answer = self.answers.entry(status.to_string()).or_insert_with(|| json!({}));
        *answer = json!({ "description": about });
        answer
    }

    /// An answer in JSON.
    pub fn content(&mut self, status: u16, about: &str, schema: Value) -> &mut Value {
        let answer = self.empty(status, about);
        answer["content"] = json!({ JSON: { "schema": schema } });
        answer
    }

    fn good(&mut self, status: u16, schema: Value) -> &mut Value {
        self.content(status, self.declaration.good, schema)
    }

    /// An answer in JSON with an ETag.
    pub fn tagged(&mut self, status: u16, about: &str, schema: Value) -> &mut Value {
        let answer = self.content(status, about, schema);
        let etag = json!({ "type": "string", "pattern": "^\"[0-9]+\"$" });
        answer["headers"] = json!({ "ETag": { "schema": etag } });
        answer
    }

    /// The object that the path is about, with its ETag.
    pub fn object(&mut self, status: u16, about: &str) {
        let schema = self.of_subject();
        self.tagged(status, about, schema);
    }

    pub fn body(&mut self, media: &str, is_required: bool, schema: Value) {
        let content = json!({ media: { "schema": schema } });
        self.body = Some(json!({ "required": is_required, "content": content }));
    }

    /// The schema of the kind that the path is about.
    pub fn of_subject(&mut self) -> Value {
        match self.subject {
            Subject::Kind(kind) => self.of_kind(kind),
            Subject::Table(_) | Subject::Other => json!({ "type": "object" }),
        }
    }

    /// The schema of a kind.
    pub fn of_kind(&mut self, kind: Kind) -> Value {
        if !self.generator.definitions().contains_key(kind.as_str()) {
            let schema = schema(kind, self.generator);
            self.generator.definitions_mut().insert(kind.to_string(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{kind}") })
    }

    /// The schema of a type, or a reference to it.
    pub fn of_type<T: JsonSchema>(&mut self) -> Value {
        self.generator.subschema_for::<T>().into()
    }

    /// The fields of a type as parameters.
    pub fn parameters<T: JsonSchema>(&mut self, place: &str) {
        let mut schema = Value::from(T::json_schema(self.generator));
        let fields = schema["properties"].as_object_mut().map(std::mem::take);
        for (name, mut schema) in fields.unwrap_or_default() {
            let about = schema["description"].take();
            if let Some(map) = schema.as_object_mut() {
                map.retain(|_, value| !value.is_null());
                // In an address, what isn't said isn't there.
                let one = map.get("type").and_then(|all| all.get(0)).cloned();
                map.extend(one.map(|one| ("type".to_owned(), one)));
            }
            self.parameter(&name, place, &about, &schema);
        }
    }

    /// A parameter; those of a path are required.
    pub fn parameter(&mut self, name: &str, place: &str, about: &Value, schema: &Value) {
        let mut parameter =
            json!({ "name": name, "in": place, "description": about, "schema": schema });
        if place == "path" {
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

/// What it is depends on the path: the declaration says it.
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

/// Something new, and where it is.
pub(crate) struct Created<T> {
    pub path: String,
    pub body: T,
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let place = [(header::LOCATION, self.path)];
        (StatusCode::CREATED, place, Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Describe for Created<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.of_type::<T>();
        let answer = operation.good(201, schema);
        answer["headers"] = json!({ "Location": { "schema": { "type": "string" } } });
    }
}

/// A change that is kept, and in force or on its way.
pub(crate) struct Kept<T> {
    pub in_force: bool,
    pub body: T,
}

impl<T: Serialize> IntoResponse for Kept<T> {
    fn into_response(self) -> Response {
        let status = if self.in_force { StatusCode::OK } else { StatusCode::ACCEPTED };
        (status, Json(self.body)).into_response()
    }
}

impl<T: JsonSchema> Describe for Kept<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.of_type::<T>();
        operation.good(200, schema.clone());
        operation.content(202, COMING, schema);
    }
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Page<T> {
    /// Of what was read. A stream that begins here misses nothing.
    pub revision: u64,
    pub items: Vec<T>,
    /// There is more: what to write as `continue`.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

impl Page<Value> {
    /// The schema of a page of such items.
    pub fn of(operation: &mut Operation<'_>, item: Value) -> Value {
        let mut page = operation.of_type::<Self>();
        page["properties"]["items"]["items"] = item;
        page
    }
}
