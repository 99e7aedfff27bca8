//! Signatures by AWS's published test vector, encoding of requests, errors in each format and their
//! classes, and the URLs of services.

use super::*;
use crate::failure::{ErrorMapping, THROTTLING, TRANSIENT, TRANSIENT_STATUS, classify};

const REPLACE: Operation = Operation::new("ec2", "ReplaceRoute");

#[test]
fn the_published_test_vector_is_reproduced() {
    // post-x-www-form-urlencoded of AWS's test suite for Signature Version 4.
    let identity = Credentials::new(
        "AKIDEXAMPLE",
        "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        None,
        None,
        "vector",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("service")
        .time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160))
        .settings(SigningSettings::default())
        .build()
        .unwrap()
        .into();
    let headers =
        [("content-type", "application/x-www-form-urlencoded"), ("host", "example.amazonaws.com")];
    let body = SignableBody::Bytes(b"Param1=value1");
    let url = "https://example.amazonaws.com/";
    let request = SignableRequest::new("POST", url, headers.into_iter(), body).unwrap();
    let (_, signature) = sign(request, &params).unwrap().into_parts();
    assert_eq!(signature, "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
}

#[tokio::test]
async fn a_body_is_read_up_to_the_maximum_length_and_rejected_beyond() {
    let of = |bytes: usize| collect(SdkBody::from(vec![b'x'; bytes]));
    assert_eq!(
        of(MAX_RESPONSE_BYTES).await.unwrap().map(|all| all.len()),
        Some(MAX_RESPONSE_BYTES)
    );
    assert_eq!(of(MAX_RESPONSE_BYTES + 1).await.unwrap(), None);
}

#[test]
fn form_members_are_numbered_and_percent_encoded() {
    let members = Members::default()
        .with("A", "a b&=+/~*é")
        .filter("vpc-id", &["vpc-1"])
        .filter("tag:x", &["1", "2"])
        .list("InstanceId", ["i-1", "i-2"]);
    let RequestBody::Form { members, .. } = members.into_body("2016-11-15") else {
        panic!("no form")
    };
    let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    let expected = "A Filter.1.Name Filter.1.Value.1 Filter.2.Name Filter.2.Value.1 \
                  Filter.2.Value.2 InstanceId.1 InstanceId.2";
    assert_eq!(keys.join(" "), expected);
    assert_eq!(percent_encode(&members[0].1).to_string(), "a%20b%26%3D%2B%2F~%2A%C3%A9");
}

#[test]
fn errors_are_read_in_each_format() {
    let ec2 = "<?xml version=\"1.0\"?><Response><Errors><Error><Code>A.B</Code><Message>m &amp; n\
               </Message></Error></Errors><RequestID>x</RequestID></Response>";
    assert_eq!(xml_error(ec2), ("A.B".into(), "m & n".into()));
    let query = "<ErrorResponse xmlns=\"http://x/\"><Error><Type>Sender</Type><Code>C</Code>\
                 <Message>d</Message></Error></ErrorResponse>";
    assert_eq!(xml_error(query), ("C".into(), "d".into()));
    assert_eq!(xml_error("<html>a page</html>").0, "");
    let json = r#"{"__type":"com.amazonaws.ssm#InvalidInstanceId","Message":"e"}"#;
    assert_eq!(json_error(json), ("InvalidInstanceId".into(), "e".into()));
    assert_eq!(json_error("gone"), (String::new(), "gone".into()));
}

#[test]
fn error_codes_and_statuses_are_classified() {
    for code in THROTTLING {
        assert_eq!(classify(400, code), Failure::Throttled, "{code}");
    }
    assert_eq!(classify(503, "RequestLimitExceeded"), Failure::Throttled);
    assert_eq!(classify(429, ""), Failure::Throttled);
    for code in TRANSIENT {
        assert_eq!(classify(400, code), Failure::Transient, "{code}");
    }
    for status in TRANSIENT_STATUS {
        assert_eq!(classify(status, "Whatever"), Failure::Transient, "{status}");
    }
    assert_eq!(classify(400, "TargetGroupNotFound"), Failure::Absent);
    assert_eq!(classify(400, "InvalidInstanceID.NotFound"), Failure::Absent);
    assert_eq!(classify(400, "InvalidTarget"), Failure::Invalid);
    assert_eq!(classify(501, ""), Failure::Invalid);
    for code in ["UnauthorizedOperation", "Client.UnauthorizedOperation"] {
        let denied = REPLACE.service_error(400, code, "You are not").error;
        assert_eq!(denied.kind, Failure::Denied, "{code}");
        assert!(denied.message.contains("allow ec2:ReplaceRoute in the policy"), "{denied}");
    }
    for code in ["SignatureDoesNotMatch", "Client.AuthFailure"] {
        let unauthenticated = REPLACE.service_error(400, code, "").error;
        assert_eq!(unauthenticated.kind, Failure::Denied, "{code}");
        assert!(unauthenticated.message.contains("and its clock"), "{unauthenticated}");
    }
}

#[test]
fn the_url_follows_service_region_and_configured_endpoint() {
    let signed = |region: &str, endpoint: Option<&str>| SignedClient {
        connector: crate::connect::connector(),
        credentials: SharedCredentialsProvider::new(Credentials::new("a", "b", None, None, "t")),
        region: region.into(),
        endpoint: endpoint.map(str::to_owned),
    };
    let url = signed("eu-west-1", None).url("ec2");
    assert_eq!(url, "https://ec2.eu-west-1.amazonaws.com/");
    assert_eq!(signed("cn-north-1", None).url("ssm"), "https://ssm.cn-north-1.amazonaws.com.cn/");
    assert_eq!(signed("eu-west-1", Some("http://[::1]:1/")).url("ec2"), "http://[::1]:1/");
}
