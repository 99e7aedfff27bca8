//! Calls with their roles: the only way to add a handler to a router of the API, of the metrics or
//! of the control socket. `authorize` runs before each handler: it rejects callers without the
//! role, and records changes and rejected callers in the audit log.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use state::object::Kind;

use crate::audit::{Audit, Entry, Notes};
use crate::principal::Principal;
use crate::problem::Problem;
use crate::reason::Reason;
use crate::role::Role;

/// A call: its method and path, and the role that it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// HTTP method in lower case.
    pub method: &'static str,
    /// Path with parameters in braces, relative to where the router is nested.
    pub path: String,
    /// Identifier of the operation, as in the audit log.
    pub operation: String,
    /// Role that the caller needs.
    pub role: Role,
    /// Whether the call changes something: then it is recorded in the audit log.
    pub is_change: bool,
}

/// What a call does: whether it reads or changes, and the role that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The call reads.
    Read(Role),
    /// The call changes something, and is recorded in the audit log.
    Change(Role),
    /// The call changes no object, and is repeated by its clients: it is not recorded.
    Unrecorded(Role),
}

impl Access {
    /// Returns the role that the call needs.
    pub fn role(self) -> Role {
        match self {
            Access::Read(role) | Access::Change(role) | Access::Unrecorded(role) => role,
        }
    }
}

impl Call {
    /// Creates the call of a method and path.
    pub fn new(method: &'static str, path: &str, operation: &str, access: Access) -> Call {
        let is_change = matches!(access, Access::Change(_));
        let (path, operation) = (path.to_owned(), operation.to_owned());
        Call { method, path, operation, role: access.role(), is_change }
    }

    /// Returns the identifier of the operation for a path, with the kind of its object.
    fn operation_at(&self, path: &str) -> String {
        let kind = path.split("/objects/").nth(1).and_then(|rest| rest.split('/').next());
        let kind = kind.and_then(|kind| kind.parse::<Kind>().ok());
        self.operation.replace("{Kind}", kind.map_or("Object", Kind::as_str))
    }
}

/// A router whose handlers all need a role.
pub struct Calls<S> {
    router: Router<S>,
    calls: Vec<Call>,
}

impl<S: Clone + Send + Sync + 'static> Default for Calls<S> {
    fn default() -> Calls<S> {
        Calls { router: Router::new(), calls: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Calls<S> {
    /// Adds the handler of a call.
    pub fn add(mut self, call: Call, handler: MethodRouter<S>) -> Calls<S> {
        let check = from_fn_with_state(Arc::new(call.clone()), authorize);
        self.router = self.router.route(&call.path, handler.route_layer(check));
        self.calls.push(call);
        self
    }

    /// Adds all calls of another router.
    pub fn merge(mut self, other: Calls<S>) -> Calls<S> {
        self.router = self.router.merge(other.router);
        self.calls.extend(other.calls);
        self
    }

    /// Supplies the state of the handlers.
    pub fn with_state<T>(self, state: S) -> Calls<T> {
        Calls { router: self.router.with_state(state), calls: self.calls }
    }

    /// Returns the calls, in the order in which they were added.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the router.
    pub fn into_router(self) -> Router<S> {
        self.router
    }
}

/// Rejects a request without the role of the call, and passes any other on. The handler runs in a
/// task of its own, so that a change is recorded even if its client disconnects.
async fn authorize(State(call): State<Arc<Call>>, mut request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let Some(principal) = extensions.get::<Principal>().cloned() else {
        // A listener without authentication would be a defect: no request is passed on.
        return Problem::internal("the request has no identity").into_response();
    };
    let audit = extensions.get::<Audit>().cloned().unwrap_or_default();
    let is_permitted = principal.role >= call.role;
    if is_permitted && !call.is_change {
        return next.run(request).await;
    }
    let operation = call.operation_at(request.uri().path());
    let caller = (&*principal.name, Some(principal.role), &principal.origin);
    let mut entry = Entry::new(caller, &operation, &request);
    if !is_permitted {
        let problem = Problem::role(&principal, &operation, call.role);
        entry.denied(&problem);
        audit.record_rejected(entry).await;
        return problem.into_response();
    }
    let notes = Notes::default();
    request.extensions_mut().insert(notes.clone());
    let work = async move {
        let response = next.run(request).await;
        let reason = response.extensions().get::<Reason>();
        if notes.add_to(&mut entry, response.status(), reason) {
            match entry.is_rejected() {
                true => audit.record_rejected(entry).await,
                false => audit.record(entry).await,
            }
        }
        response
    };
    match tokio::spawn(work).await {
        Ok(response) => response,
        Err(error) => Problem::internal(error).into_response(),
    }
}
