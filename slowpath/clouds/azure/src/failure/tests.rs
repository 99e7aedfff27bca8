//! Error responses in all forms, and their classification.

use azure_core::http::headers::{HeaderName, HeaderValue};
use fastrand::Rng;

use super::*;

const LIST: Operation =
    Operation::new("Microsoft.Network/loadBalancers/read", "LoadBalancers_List");
const SCOPE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers";

fn headers(pairs: &[(&'static str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        let value = HeaderValue::from((*value).to_owned());
        headers.insert(HeaderName::from_static(name), value);
    }
    headers
}

fn answer(status: u16, pairs: &[(&'static str, &str)], body: &str) -> RawResponse {
    RawResponse::from_bytes(status.into(), headers(pairs), body.as_bytes().to_vec())
}

#[test]
fn statuses_and_codes_are_classified() {
    for (status, code, kind) in [
        (429, "", Failure::Throttled),
        (429, "SubscriptionRequestsThrottled", Failure::Throttled),
        (503, "TooManyRequests", Failure::Throttled),
        (408, "", Failure::Transient),
        (500, "InternalServerError", Failure::Transient),
        (502, "", Failure::Transient),
        (503, "ServiceUnavailable", Failure::Transient),
        (504, "GatewayTimeout", Failure::Transient),
        (0, "RetryableError", Failure::Transient),
        (409, "", Failure::Conflict),
        (409, "AnotherOperationInProgress", Failure::Conflict),
        (400, "AnotherOperationInProgress", Failure::Conflict),
        (412, "PreconditionFailed", Failure::Conflict),
        (0, "CanceledAndSupersededDueToAnotherOperation", Failure::Conflict),
        (401, "", Failure::Denied),
        (401, "ExpiredAuthenticationToken", Failure::Denied),
        (403, "AuthorizationFailed", Failure::Denied),
        (403, "LinkedAuthorizationFailed", Failure::Denied),
        // Some services use status 400, and a lock uses 409.
        (400, "LinkedAccessCheckFailed", Failure::Denied),
        (409, "ScopeLocked", Failure::Denied),
        (400, "invalid_client", Failure::Denied),
        (404, "SubscriptionNotFound", Failure::Denied),
        (400, "SubscriptionNotFound", Failure::Denied),
        (404, "", Failure::Absent),
        (404, "ResourceNotFound", Failure::Absent),
        (404, "ResourceGroupNotFound", Failure::Absent),
        (0, "NotFound", Failure::Absent),
        (400, "", Failure::Invalid),
        (400, "PrivateIPAddressNotInSubnet", Failure::Invalid),
        (409, "MissingSubscriptionRegistration", Failure::Invalid),
        (302, "", Failure::Invalid),
        (0, "Failed", Failure::Invalid),
    ] {
        assert_eq!(classify(status, code), kind, "{status} {code}");
    }
}

#[test]
fn every_error_format_is_parsed() {
    let parse = |body: &str| {
        let error = ErrorBody::read(body.as_bytes());
        (error.code, error.message)
    };
    let both = ("InUse".to_owned(), "it is in use".to_owned());
    assert_eq!(parse(r#"{"error": {"code": "InUse", "message": "it is in use"}}"#), both);
    // The form used by private link services.
    assert_eq!(parse(r#"{"code": "InUse", "message": "it is in use", "details": []}"#), both);
    let (code, message) = parse(
        r#"{"error": {"code": "Outer", "message": "no", "details": [
            {"code": "Inner", "message": "the subnet is full"}, {"code": "X", "message": "no"}]}}"#,
    );
    assert_eq!((code.as_str(), message.as_str()), ("Outer", "no; Inner: the subnet is full"));
    let (code, message) = parse(r#"{ "error": "Bad request. api-version is invalid" }"#);
    assert_eq!((code.as_str(), message.as_str()), ("", "Bad request. api-version is invalid"));
    let (code, message) =
        parse(r#"{"error": "invalid_request", "error_description": "Identity not found"}"#);
    assert_eq!((code.as_str(), message.as_str()), ("invalid_request", "Identity not found"));
    let (code, message) = parse("<html>\n\t<h1>502 Bad Gateway</h1>\r\n</html>");
    assert_eq!((code.as_str(), message.as_str()), ("", "<html> <h1>502 Bad Gateway</h1> </html>"));
    let (code, message) = parse(&format!(r#"{{"code": "C", "message": "{}"}}"#, "é ".repeat(9000)));
    assert_eq!((code.as_str(), message.chars().count()), ("C", MAX_MESSAGE_LENGTH));
    assert_eq!(parse(""), Default::default());
    assert_eq!(parse(r#"{"error": 7}"#), Default::default());
}

#[test]
fn denied_errors_name_permission_and_scope() {
    let body = |code: &str, message: &str| {
        serde_json::json!({ "error": { "code": code, "message": message } }).to_string()
    };
    let error = |body: &str| LIST.error_response(&answer(403, &[], body)).error;
    let plain = error(&body(
        "AuthorizationFailed",
        &format!(
            "The client 'c' with object id 'o' does not have authorization to perform action \
             'Microsoft.Network/loadBalancers/read' over scope '{SCOPE}' or the scope is invalid. \
             If access was recently granted, please refresh your credentials."
        ),
    ));
    assert_eq!((plain.kind, plain.code.as_str()), (Failure::Denied, "AuthorizationFailed"));
    let allow = format!("allow Microsoft.Network/loadBalancers/read on {SCOPE} in a role");
    assert!(plain.message.contains(&allow), "{plain}");
    // The first pair of a linked authorization error is what is permitted.
    let linked = error(&body(
        "LinkedAuthorizationFailed",
        &format!(
            "The client 'c' with object id 'o' has permission to perform action \
             'Microsoft.Network/networkInterfaces/write' on scope '/subscriptions/s/x'; however, \
             it does not have permission to perform action \
             'Microsoft.Network/loadBalancers/backendAddressPools/join/action' on the linked \
             scope(s) '{SCOPE}/gw/backendAddressPools/weir' or the linked scope(s) are invalid."
        ),
    ));
    let allow = format!(
        "allow Microsoft.Network/loadBalancers/backendAddressPools/join/action on \
         {SCOPE}/gw/backendAddressPools/weir"
    );
    assert!(linked.message.contains(&allow), "{linked}");
    let newer = error(&body(
        "LinkedAuthorizationFailed",
        "The client has permission to perform action 'a/write' on scope '/s'; however, it does not \
         have permission to perform action(s) 'b/join/action' on the linked scope(s) '/t' \
         (respectively) or the linked scope(s) are invalid.",
    ));
    assert!(newer.message.contains("allow b/join/action on /t in a role"), "{newer}");
    let bare = error(&body("AuthorizationFailed", "no"));
    assert!(
        bare.message.contains("allow Microsoft.Network/loadBalancers/read in a role"),
        "{bare}"
    );
    let page = error("<html>Blocked by the proxy</html>");
    assert!(page.kind == Failure::Denied && page.message.contains("Blocked by the proxy"));
    let lock = error(&body("ScopeLocked", "The scope cannot perform write operation"));
    assert!(lock.message.contains("az lock list"), "{lock}");
    let unauthenticated =
        LIST.error_response(&answer(401, &[], &body("InvalidAuthenticationToken", "no"))).error;
    assert!(
        unauthenticated.message.contains("rejected this machine's credentials"),
        "{unauthenticated}"
    );
}

#[test]
fn retry_after_is_parsed_as_seconds_or_date() {
    let now = httpdate::parse_http_date("Sun, 22 Nov 2026 18:00:00 GMT").unwrap();
    let of = |pairs: &[(&'static str, &str)]| {
        retry_after(&headers(pairs), now).map(|pause| pause.as_secs())
    };
    assert_eq!(of(&[("retry-after", "17")]), Some(17));
    assert_eq!(of(&[("retry-after", " 0 ")]), Some(0));
    assert_eq!(of(&[("retry-after", "Sun, 22 Nov 2026 18:00:25 GMT")]), Some(25));
    // The local clock is ten minutes ahead of Azure's.
    let (then, server_time) = ("Sun, 22 Nov 2026 17:50:25 GMT", "Sun, 22 Nov 2026 17:50:00 GMT");
    assert_eq!(of(&[("retry-after", then), ("date", server_time)]), Some(25));
    assert_eq!(of(&[("retry-after", server_time), ("date", then)]), Some(0));
    assert_eq!(of(&[("retry-after", "18446744073709551615")]), Some(3600));
    assert_eq!(of(&[("retry-after", "soon")]), None);
    assert_eq!(of(&[("retry-after", "-5")]), None);
    assert_eq!(of(&[]), None);
    let failed = LIST.error_response(&answer(429, &[("retry-after", "9")], ""));
    assert_eq!(
        (failed.error.kind, failed.after),
        (Failure::Throttled, Some(Duration::from_secs(9)))
    );
}

#[test]
fn redirect_is_reported_and_not_followed() {
    let failed = LIST.error_response(&answer(302, &[("location", "https://login.example/")], ""));
    assert_eq!(failed.error.kind, Failure::Invalid);
    assert!(failed.error.message.contains("https://login.example/"));
}

#[test]
fn transport_errors_are_classified() {
    let of =
        |kind| LIST.transport_error(&azure_core::Error::with_message(kind, "broken")).error.kind;
    assert_eq!(of(ErrorKind::Io), Failure::Transient);
    assert_eq!(of(ErrorKind::Connection), Failure::Transient);
    assert_eq!(of(ErrorKind::DataConversion), Failure::Invalid);
    assert_eq!(of(ErrorKind::Other), Failure::Invalid);
    let timeout = LIST.timed_out(Duration::from_secs(20));
    let through = azure_core::Error::new(ErrorKind::Other, wrapped(timeout.clone()));
    assert_eq!(LIST.transport_error(&through), timeout);
}

#[test]
fn error_parser_never_panics() {
    let valid = r#"{"error": {"code": "A", "message": "does not have 'x' action 'é' scope '",
        "details": [{"code": "B", "message": 7}, null, "x"]}}"#;
    let mut rng = Rng::with_seed(11);
    for _ in 0..20_000 {
        let mut body = valid.as_bytes().to_vec();
        for _ in 0..3 {
            let (at, byte) = (rng.usize(..body.len()), rng.u8(..));
            match byte % 3 {
                0 => body[at] = byte,
                1 => body.truncate(at.max(1)),
                _ => body.insert(at, byte),
            }
        }
        let error = ErrorBody::read(&body);
        let _ = LIST.classified(403, &error);
        let _ = missing_permission(&String::from_utf8_lossy(&body));
    }
}
