//! The page for browsers on the addresses of the API: login, sessions, and the headers that confine
//! it. The appliance supplies its content ([`Page`]): calls, files and the login form.
//!
//! ```text
//!   request --> host.rs: 421 for a host name that is not permitted
//!     |-> GET /login, files of the page      without session
//!     |-> POST /login    token --> session (sessions.rs), cookie
//!     |-> POST /logout   ends it
//!     '-> calls of the page: cookie --> session --> principal with the role `read`
//! ```
//! A cookie is accepted here only, never below `/v1`, so that another site that makes a browser
//! send a request can change nothing. A login with a wrong token uses up the budget of its source,
//! like an API request (auth_failures.rs).

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::FormRejection;
use axum::extract::{DefaultBodyLimit, Extension, Form, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{AppendHeaders, Html, IntoResponse, Response};
use axum::routing::{get, post};
use listeners::Connection;
use serde::Deserialize;

use crate::access::Calls;
use crate::audit::{Audit, Entry};
use crate::auth_failures::AuthFailures;
use crate::credentials::Credentials;
use crate::host::Hosts;
use crate::principal::{Listener, Origin, Principal};
use crate::problem::Problem;
use crate::role::Role;
use crate::sessions::Sessions;
use crate::tokens::{UNKNOWN, Verdict};

/// Name of the cookie with TLS. Browsers accept the prefix only with `Secure`, with `Path=/`, and
/// without a domain.
const SECURE_COOKIE: &str = "__Host-weir-session";
/// Name of the cookie without TLS, on loopback.
const COOKIE: &str = "weir-session";
/// Maximum size of the login form in bytes.
const MAX_FORM: usize = 4096;

/// Headers of every response: browsers load content of this origin only, run no inline scripts, do
/// not show the page within other sites, and store nothing.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The page as the appliance supplies it.
pub struct Page {
    /// Calls that need a session; `GET /` is among them.
    pub calls: Calls<()>,
    /// Files that the login form needs too, such as the style sheet.
    pub files: Router,
    /// Returns the login form as HTML, with the reason why the previous login failed, if it did.
    pub login: fn(Option<&str>) -> String,
    /// Host names of `api.hosts`, in lower case.
    pub hosts: Vec<String>,
}

/// The page with its sessions. Clones share them.
#[derive(Clone)]
pub struct Browser {
    pages: Router,
    files: Router,
    login: fn(Option<&str>) -> String,
    hosts: Arc<[String]>,
    sessions: Arc<Sessions>,
}

impl From<Page> for Browser {
    fn from(page: Page) -> Browser {
        Browser {
            pages: page.calls.into_router(),
            files: page.files,
            login: page.login,
            hosts: page.hosts.into(),
            sessions: Arc::default(),
        }
    }
}

/// Resources with which logins are checked, limited and recorded.
#[derive(Clone)]
pub(crate) struct LoginChecks {
    pub credentials: Arc<Credentials>,
    pub auth_failures: Arc<AuthFailures>,
    pub audit: Audit,
}

/// State of the handlers.
#[derive(Clone)]
struct Site {
    login: fn(Option<&str>) -> String,
    sessions: Arc<Sessions>,
    checks: LoginChecks,
    hosts: Hosts,
}

impl Browser {
    /// Returns the routes for an address of the API.
    pub(crate) fn routes(&self, checks: LoginChecks) -> Router {
        let credentials = Some(Arc::clone(&checks.credentials));
        let hosts = Hosts { names: Arc::clone(&self.hosts), credentials };
        let sessions = Arc::clone(&self.sessions);
        let site = Site { login: self.login, sessions, checks, hosts };
        let pages = self.pages.clone().layer(from_fn_with_state(site.clone(), require_session));
        let confine = from_fn_with_state(site.clone(), confine);
        Router::new()
            .route("/login", get(form).post(login))
            .route("/logout", post(logout))
            .layer(DefaultBodyLimit::max(MAX_FORM))
            .with_state(site)
            .merge(pages)
            .merge(self.files.clone())
            .layer(confine)
    }
}

impl Site {
    fn cookie_name(&self) -> &'static str {
        match self.checks.credentials.uses_tls(Listener::Api) {
            true => SECURE_COOKIE,
            false => COOKIE,
        }
    }

    /// Returns a `Set-Cookie` header with the ID of a session; `None` removes the cookie.
    fn cookie(&self, id: Option<&str>) -> (HeaderName, String) {
        let name = self.cookie_name();
        let secure = if name == SECURE_COOKIE { "; Secure" } else { "" };
        let end = if id.is_none() { "; Max-Age=0" } else { "" };
        let id = id.unwrap_or_default();
        let cookie = format!("{name}={id}; HttpOnly; SameSite=Strict; Path=/{secure}{end}");
        (header::SET_COOKIE, cookie)
    }

    /// Returns the IDs of the request's session cookies. Other cookies of the host are ignored.
    fn ids<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h str> {
        let name = self.cookie_name();
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';'));
        pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the login form with the reason why the login failed. The connection is closed, like
    /// that of an API request with a wrong token.
    fn failed(&self, problem: &Problem) -> Response {
        let status = StatusCode::from_u16(problem.status).unwrap_or_default();
        let form = Html((self.login)(Some(&problem.detail)));
        (status, [(header::CONNECTION, "close")], form).into_response()
    }
}

/// Rejects requests for foreign host names, and adds the headers to all responses.
async fn confine(State(site): State<Site>, request: Request, next: Next) -> Response {
    let mut response = match site.hosts.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::MISDIRECTED_REQUEST, why).into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Passes requests of a session on, with the role `read`. Others are redirected to the login form.
async fn require_session(
    State(site): State<Site>,
    Extension(connection): Extension<Connection>,
    mut request: Request,
    next: Next,
) -> Response {
    let now = Instant::now();
    let name = site.ids(request.headers()).find_map(|id| site.sessions.find(id, now));
    let Some(name) = name else { return see("/login").into_response() };
    connection.trust();
    let origin = origin(&connection);
    request.extensions_mut().insert(Principal { name, role: Role::Read, origin });
    next.run(request).await
}

fn origin(connection: &Connection) -> Origin {
    Origin { listener: Listener::Api, source: connection.source.to_string().into() }
}

fn see(path: &'static str) -> (StatusCode, [(HeaderName, &'static str); 1]) {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)])
}

/// `GET /login`.
async fn form(State(site): State<Site>) -> Html<String> {
    Html((site.login)(None))
}

/// The login form. It has no `Debug`, since it contains a token.
#[derive(Deserialize)]
struct Login {
    token: String,
}

/// `POST /login`.
async fn login(
    State(site): State<Site>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    form: Result<Form<Login>, FormRejection>,
) -> Response {
    if is_cross_site(&headers) {
        return site.failed(&Problem::bad_request("the form was sent by another site"));
    }
    let LoginChecks { credentials, auth_failures, audit } = &site.checks;
    let (source, now) = (connection.source, Instant::now());
    if let Some(wait) = auth_failures.wait(source, now) {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let response = site.failed(&Problem::too_many_attempts(seconds));
        return ([(header::RETRY_AFTER, seconds.to_string())], response).into_response();
    }
    let Ok(Form(Login { token })) = form else {
        return site.failed(&Problem::bad_request("the form has no token"));
    };
    let origin = origin(&connection);
    let (who, problem, logged) = match credentials.check_token(token.trim().as_bytes(), now) {
        Verdict::Accepted { name, role, ended, .. } if role >= Role::Read => {
            // An earlier session ends, because the new cookie replaces its cookie.
            site.ids(&headers).for_each(|id| site.sessions.close(id));
            return match site.sessions.open(Arc::clone(&name), ended, now) {
                Ok(id) => {
                    tracing::info!(
                        event = "page_login",
                        token = %name,
                        %source,
                        "logged in to the page"
                    );
                    (AppendHeaders([site.cookie(Some(&id))]), see("/")).into_response()
                }
                Err(error) => site.failed(&Problem::internal(error)),
            };
        }
        Verdict::Accepted { name, role, .. } => {
            let principal = Principal { name, role, origin: origin.clone() };
            let problem = Problem::role(&principal, "the page", Role::Read);
            (principal.name, problem, Some(1))
        }
        Verdict::Ended(by) => {
            (by.name().into(), Problem::ended_token(&by), auth_failures.outdated(source, now))
        }
        Verdict::Unknown => {
            (UNKNOWN.into(), Problem::wrong_token(), auth_failures.failed(source, now))
        }
    };
    // As for API requests, a wrong token is recorded only if it is logged, so that the limits of
    // the log bound both. A role that does not suffice is always recorded.
    if let Some(times) = logged {
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, Uri::from_static("/login"));
        let mut entry = Entry::new((&who, None, &origin), "authenticate", &request);
        entry.times = times;
        entry.denied(&problem);
        audit.record_rejected(entry).await;
    }
    site.failed(&problem)
}

/// `POST /logout`.
async fn logout(State(site): State<Site>, headers: HeaderMap) -> Response {
    if is_cross_site(&headers) {
        return StatusCode::BAD_REQUEST.into_response();
    }
    site.ids(&headers).for_each(|id| site.sessions.close(id));
    (AppendHeaders([site.cookie(None)]), see("/login")).into_response()
}

/// Returns whether the browser reports that a page of another origin sent the request. The header
/// `Origin` is not used, because with the page's referrer policy browsers send `null`.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}
