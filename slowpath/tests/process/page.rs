//! Tests of the page for browsers: sessions, the host check, headers, and what it shows.

use std::net::TcpStream;
use std::process::Command;

use api::Role;
use api::named_tokens::{TokenLine, hash};
use patience::{check, eventually, ports::free_port};
use serde_json::Value;

use crate::api::write_certificate;
use crate::appliance::{Answer, Folder, Running};
use crate::bgp::Polling;
use crate::generation;

/// An appliance with the page on loopback. It has no TLS unless its section `[api]` configures it.
struct Site {
    folder: Folder,
    _slowpath: Running,
    url: String,
}

/// Returns a line of the tokens file for the token `{name}-token-0123456789`.
fn line(name: &str, role: Role) -> String {
    let hash = hash(token(name).as_bytes());
    TokenLine { name: name.to_owned(), role, hash, expires: None }.text() + "\n"
}

fn token(name: &str) -> String {
    format!("{name}-token-0123456789")
}

impl Site {
    fn new(name: &str) -> Site {
        let folder = Folder::new(name);
        let (port, path) = (free_port(), folder.path.display().to_string());
        let api = format!(
            "[api]\nlisten = \"127.0.0.1:{port}\"\ntokens_file = \"{path}/tokens\"\n\
             hosts = [\"Weir.Example\"]\n"
        );
        Site::with(folder, &api, &format!("http://127.0.0.1:{port}"), port)
    }

    fn with(folder: Folder, api: &str, url: &str, port: u16) -> Site {
        let roles = [Role::Admin, Role::Read, Role::Metrics];
        let lines: String = roles.iter().map(|role| line(role.as_str(), *role)).collect();
        folder.write("tokens", &lines);
        folder.write("weir.toml", &(folder.config() + api));
        let slowpath = folder.slowpath();
        folder.until(&["status"], |s| generation(s) > 0);
        eventually("the API", || {
            check(TcpStream::connect(("127.0.0.1", port)).is_ok(), || folder.log())
        });
        Site { folder, _slowpath: slowpath, url: url.to_owned() }
    }

    /// Sends a request with these options of curl.
    fn ask(&self, path: &str, options: &[&str]) -> Answer {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--insecure", "--max-time", "20"]);
        let out = curl.args(options).arg(format!("{}{path}", self.url)).output().unwrap();
        assert!(out.status.success(), "{path}: {out:?}");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        Answer::read(&text).unwrap_or_else(|| panic!("{path}: {text}"))
    }

    fn login(&self, token: &str) -> Answer {
        self.ask("/login", &["--data-urlencode", &format!("token={token}")])
    }

    /// Logs in, and returns the header with the cookie.
    fn session(&self, name: &str) -> String {
        let answer = self.login(&token(name));
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        format!("Cookie: other=1; {}", cookie.split(';').next().unwrap())
    }

    fn with_cookie(&self, path: &str, cookie: &str) -> Answer {
        self.ask(path, &["--header", cookie])
    }

    fn audit(&self) -> Vec<Value> {
        let out = self.folder.weir(&["audit", "--json"]);
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

/// Asserts that a response redirects to the login form.
fn assert_login(answer: &Answer) {
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{answer:?}");
}

#[test]
fn the_page_needs_a_session_and_a_session_only_reads() {
    let site = Site::new("page-session");
    for path in ["/", "/live", "/flows", "/?service=x"] {
        assert_login(&site.ask(path, &[]));
        assert_login(&site.with_cookie(path, "Cookie: weir-session=00"));
        // A token cannot be used instead of a session, as a bearer token or as a cookie.
        let bearer = format!("Authorization: Bearer {}", token("read"));
        assert_login(&site.ask(path, &["--header", &bearer]));
        assert_login(&site.with_cookie(path, &format!("Cookie: weir-session={}", token("read"))));
    }
    let form = site.ask("/login", &[]);
    assert!(form.status == 200 && form.body.contains("type=\"password\""), "{form:?}");
    for (path, media) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let file = site.ask(path, &[]);
        assert!(file.header("content-type").unwrap().starts_with(media), "{path}: {file:?}");
    }

    let answer = site.login(&token("admin"));
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/");
    let id = pair.strip_prefix("weir-session=").unwrap();
    assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{cookie}");
    let cookie = format!("Cookie: {pair}");
    let page = site.with_cookie("/", &cookie);
    for part in ["weir-p", "not able", "default/web", "<bdi>admin</bdi>", "203.0.113.1:80/tcp"] {
        assert!(page.body.contains(part), "{part}: {page:?}");
    }
    assert!(site.with_cookie("/live", &cookie).body.starts_with("<main id=\"main\">"));
    assert!(site.with_cookie("/?service=nothing", &cookie).body.contains("No service has such"));
    assert!(site.with_cookie("/flows?client=192.0.2.1", &cookie).body.contains("0 flows"));
    let wrong = site.with_cookie("/flows?client=web", &cookie);
    assert!(wrong.status == 400 && wrong.body.contains("client web: invalid"), "{wrong:?}");

    // The session of an admin's token changes nothing, and reads nothing of the API.
    for (method, path) in [("POST", "/"), ("DELETE", "/"), ("PUT", "/live"), ("POST", "/flows")] {
        let answer = site.ask(path, &["--request", method, "--header", &cookie]);
        assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
    }
    for path in ["/v1/objects/services", "/v1/audit", "/v1/tokens", "/v1/openapi.json"] {
        assert_eq!(site.with_cookie(path, &cookie).status, 401, "{path}");
    }
    assert_eq!(site.with_cookie("/other", &cookie).status, 404);
    assert_eq!(site.ask("/v1/objects/service/a/b", &["-X", "PUT", "-H", &cookie]).status, 401);

    let from_elsewhere = ["--request", "POST", "--header", "Sec-Fetch-Site: cross-site"];
    let options = [&from_elsewhere[..], &["--header", &cookie]].concat();
    assert_eq!(site.ask("/logout", &options).status, 400);
    assert_eq!(site.with_cookie("/", &cookie).status, 200);
    let own = ["--request", "POST", "--header", "Sec-Fetch-Site: same-origin", "-H", &cookie];
    let out = site.ask("/logout", &own);
    assert_login(&out);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    assert_login(&site.with_cookie("/", &cookie));
    assert!(!site.folder.log().contains(id), "the log has no id of a session");
}

#[test]
fn failed_logins_are_recorded_and_limited() {
    let site = Site::new("page-login");
    let cross = ["--header", "Sec-Fetch-Site: same-site", "--data", "token=x"];
    assert_eq!(site.ask("/login", &cross).status, 400);
    assert_eq!(site.ask("/login", &["--data", "other=x"]).status, 400);
    assert_eq!(site.ask("/login", &["--data", &"x".repeat(5000)]).status, 400);
    let metrics = site.login(&token("metrics"));
    assert!(metrics.status == 403 && metrics.body.contains("the page needs read"), "{metrics:?}");
    let wrong = site.login("<script>not a token</script>");
    assert_eq!(wrong.status, 401, "{wrong:?}");
    assert!(wrong.body.contains("the token is wrong") && !wrong.body.contains("not a token"));
    assert_eq!(wrong.header("connection"), Some("close"));
    let denied: Vec<Value> = site.audit();
    let denied: Vec<_> = denied.iter().filter(|entry| entry["request"] == "POST /login").collect();
    let facts = |entry: &Value| (entry["who"].clone(), entry["status"].as_u64().unwrap());
    let facts: Vec<_> = denied.iter().map(|entry| facts(entry)).collect();
    assert_eq!(facts, [("metrics".into(), 403), ("unknown".into(), 401)], "{denied:?}");
    assert!(denied.iter().all(|entry| entry["outcome"] == "denied"), "{denied:?}");

    let cookie = site.session("read");
    eventually("the limit of wrong tokens", || {
        let answer = site.login("wrong");
        check(answer.status == 429, || format!("{answer:?}"))
    });
    let limited = site.login(&token("read"));
    assert_eq!(limited.status, 429, "also the right token waits: {limited:?}");
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(site.with_cookie("/", &cookie).status, 200, "sessions go on");
    assert!(!site.folder.log().contains("not a token"));
}

#[test]
fn requests_that_browsers_send_by_themselves_do_not_use_up_the_budget() {
    let site = Site::new("page-budget");
    for _ in 0..6 {
        for path in ["/favicon.ico", "/apple-touch-icon.png", "/.well-known/x", "/v1"] {
            let answer = site.ask(path, &[]);
            let close = answer.header("connection");
            assert_eq!((answer.status, close), (404, Some("close")), "{path}");
        }
        for path in ["/v1/objects/services", "/v1/other"] {
            let answer = site.ask(path, &["--header", "Sec-Fetch-Site: cross-site"]);
            assert_eq!(answer.status, 401, "{path}: {answer:?}");
        }
    }
    // A wrong token is not even read outside of the API.
    for _ in 0..12 {
        assert_eq!(site.ask("/other", &["--header", "Authorization: Bearer no"]).status, 404);
    }
    site.session("read");
    let bearer = format!("Authorization: Bearer {}", token("read"));
    assert_eq!(site.ask("/v1/objects/services", &["--header", &bearer]).status, 200);
    // Guesses still count.
    let wrong = ["--header", "Authorization: Bearer wrong"];
    assert_eq!(site.ask("/v1/objects/services", &wrong).status, 401);
    eventually("the limit of wrong tokens", || {
        let answer = site.ask("/v1/objects/services", &wrong);
        check(answer.status == 429, || format!("{answer:?}"))
    });
}

#[test]
fn a_session_ends_with_its_token() {
    let site = Site::new("page-revoked");
    let (read, admin) = (site.session("read"), site.session("admin"));
    assert_eq!(site.with_cookie("/", &read).status, 200);
    site.folder.write("tokens", &line("admin", Role::Admin));
    eventually("the end of the session", || {
        let answer = site.with_cookie("/", &read);
        check(answer.status == 303, || format!("{answer:?}"))
    });
    assert_eq!(site.with_cookie("/", &admin).status, 200, "the other session lasts");
    assert!(site.login(&token("read")).body.contains("was revoked"));
}

#[test]
fn foreign_host_names_are_rejected_and_every_response_is_confined() {
    let site = Site::new("page-host");
    let cookie = site.session("read");
    for path in ["/", "/login", "/page.js", "/live", "/logout"] {
        let options = ["--header", "Host: evil.example", "--header", &cookie];
        let answer = site.ask(path, &options);
        assert_eq!(answer.status, 421, "{path}: {answer:?}");
        assert!(answer.body.contains("`evil.example`") && answer.body.contains("api.hosts"));
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    let options = ["--header", "Host: evil.example", "--data-urlencode"];
    let login = site.ask("/login", &[&options[..], &["token=read-token-0123456789"]].concat());
    assert_eq!((login.status, login.header("set-cookie")), (421, None), "{login:?}");
    for host in ["weir.example:1", "localhost", "192.0.2.7:443", "[2001:db8::1]"] {
        let host = format!("Host: {host}");
        assert_eq!(site.ask("/", &["--header", &host, "--header", &cookie]).status, 200, "{host}");
    }
    // Clients of the API send a token, which no browser sends by itself.
    let bearer = format!("Authorization: Bearer {}", token("read"));
    let options = ["--header", "Host: other.example", "--header", &bearer];
    assert_eq!(site.ask("/v1/objects/services", &options).status, 200);

    for (path, status) in [("/", 200), ("/login", 200), ("/page.css", 200), ("/logout", 405)] {
        let answer = site.with_cookie(path, &cookie);
        assert_eq!(answer.status, status, "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert_eq!(
            policy,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path} {name}");
        }
    }
    assert!(site.ask("/", &[]).header("content-security-policy").is_some(), "also a redirect");
}

#[test]
fn with_tls_the_cookie_is_secure() {
    let folder = Folder::new("page-tls");
    let (port, path) = (free_port(), folder.path.display().to_string());
    folder.write("token", "0123456789abcdefXYZ\n");
    let api = write_certificate(&folder, port) + &format!("tokens_file = \"{path}/tokens\"\n");
    let site = Site::with(folder, &api, &format!("https://localhost:{port}"), port);
    let answer = site.login("0123456789abcdefXYZ");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-weir-session="), "{cookie}");
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/; Secure"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert!(site.with_cookie("/", &cookie).body.contains("<bdi>token_file</bdi>"));
    // The cookie's name without TLS is not accepted: any page without TLS could have set it.
    let plain = cookie.replace("__Host-", "");
    assert_login(&site.with_cookie("/", &plain));
}

#[test]
fn hostile_texts_are_escaped_and_changes_have_their_duration() {
    let site = Site::new("page-texts");
    let cookie = site.session("read");
    let _lcore = Polling::start(&site.folder);
    let service = r#"{"spec":{"mode":"nat","frontends":[{"address":"203.0.113.77","port":80,
                      "protocol":"tcp"}]}}"#;
    let json = [("content-type", "application/json")];
    let put = site.folder.request("PUT", "/v1/objects/service/shop/page?wait=10s", &json, service);
    assert_eq!(put.status, 201, "{put:?}");
    eventually("the change with its time", || {
        let page = site.with_cookie("/", &cookie);
        let row = page.body.split("<tr>").find(|row| row.contains("services/shop/page"));
        check(row.is_some_and(|row| row.contains(" ms<") && row.contains("uid=")), || {
            format!("{page:?}")
        })
    });
    // Names of services that are not valid reach the page in the error of their file.
    let hostile = "<script>x()</script>\\\"'><img src=y>\\u202e\\u001b[31m";
    site.folder
        .write("services.toml", &format!("[[service]]\nname = \"{hostile}\"\nmode = \"nat\"\n"));
    let search = "/flows?service=%3Cscript%3Ex()%3C/script%3E%22%E2%80%AE&client=%22%3E%3Cimg%3E";
    eventually("the rejected file", || {
        let page = site.with_cookie("/", &cookie);
        check(page.body.contains("was rejected"), || format!("{page:?}"))
    });
    for path in ["/", "/live", search, "/?service=%3Cscript%3Ex()%3C/script%3E%E2%80%AE%1B"] {
        let page = site.with_cookie(path, &cookie);
        assert!(page.body.contains("&lt;script&gt;x()"), "{path}: {page:?}");
        for bad in ["<script>x", "<img", "\u{202e}", "\u{1b}"] {
            assert!(!page.body.contains(bad), "{path} {bad:?}: {page:?}");
        }
    }
}
