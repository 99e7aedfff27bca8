//! Tests of parsing certificates and keys.

use std::time::Duration;

use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;

fn at(text: &str) -> SystemTime {
    config::rfc3339::parse(text).unwrap()
}

/// Returns a certificate that is valid from the start of a year to the start of another, and its
/// key, as PEM.
fn pair(from: i32, until: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn parse(certificate: &str, key: &str) -> Result<Option<Validity>, IdentityError> {
    Identity::parse((certificate.as_bytes(), key.as_bytes()), "api.tls_cert")
        .map(|identity| identity.validity)
}

#[test]
fn validity_is_read_from_both_forms_of_time() {
    // Years from 2050 on are written as GeneralizedTime.
    let (certificate, key) = pair(2020, 2051);
    let (from, until) = (at("2020-01-01T00:00:00Z"), at("2051-01-01T00:00:00Z"));
    let validity = Validity { from, until };
    assert_eq!(parse(&certificate, &key), Ok(Some(validity)));
    let (certificate, key) = pair(1999, 2049);
    let found = parse(&certificate, &key).unwrap().unwrap();
    assert_eq!((found.from, found.until), (at("1999-01-01T00:00:00Z"), at("2049-01-01T00:00:00Z")));

    assert_eq!(validity.warning(from), None);
    assert_eq!(validity.warning(until), None);
    let second = Duration::from_secs(1);
    let early = validity.warning(from - second).unwrap();
    assert!(early.contains("not valid before 2020-01-01T00:00:00Z"), "{early}");
    let late = validity.warning(until + second).unwrap();
    assert!(late.contains("expired at 2051-01-01T00:00:00Z"), "{late}");
}

#[test]
fn errors_name_the_file_at_fault_and_never_the_key() {
    let (certificate, key) = pair(2020, 2040);
    let (other_certificate, other_key) = pair(2020, 2040);
    let mismatch = parse(&certificate, &other_key).unwrap_err();
    assert!(matches!(&mismatch, IdentityError::Key(text) if text.contains("not the private key")));
    assert!(matches!(parse(&other_certificate, &key), Err(IdentityError::Key(_))));
    assert!(parse(&format!("{certificate}{other_certificate}"), &key).is_ok(), "leaf first");

    let damaged_key = key.replacen('M', "MMMM", 1);
    for wrong in ["", "secret", &damaged_key, &certificate] {
        let error = parse(&certificate, wrong).unwrap_err();
        let IdentityError::Key(text) = &error else { panic!("{wrong:?}: {error:?}") };
        assert!(text.contains("private key") && !text.contains("MMMM"), "{text}");
    }
    let (begin, rest) = certificate.split_at(certificate.find('\n').unwrap() + 1);
    let damaged = format!("{begin}AAAA{rest}");
    for wrong in ["", "text", &key, &damaged, &certificate[..certificate.len() / 2]] {
        let error = parse(wrong, &key).unwrap_err();
        assert!(matches!(error, IdentityError::Certificate(_)), "{wrong:?}: {error:?}");
    }
}

#[test]
fn impossible_times_are_rejected() {
    let parsed = |tag, text: &str| time(tag, text.as_bytes());
    assert_eq!(parsed(UTC_TIME, "491231235959Z"), Some(at("2049-12-31T23:59:59Z")));
    assert_eq!(parsed(UTC_TIME, "700101000000Z"), Some(SystemTime::UNIX_EPOCH));
    assert_eq!(parsed(GENERALIZED_TIME, "20500101000000Z"), Some(at("2050-01-01T00:00:00Z")));
    let offset = "491231235959+0100";
    for wrong in ["491331235959Z", "4912312359Z", "491231235959", offset, "é", "Z", ""] {
        assert_eq!(parsed(UTC_TIME, wrong), None, "{wrong}");
    }
    assert_eq!(parsed(SEQUENCE, "491231235959Z"), None);
}

proptest! {
    #[test]
    fn validity_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0..400_usize,
    ) {
        let _ = validity(&bytes);
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let der = made.cert.der();
        let _ = validity(&der[..cut.min(der.len())]);
    }
}

#[test]
fn names_are_those_of_the_certificate_with_wildcards() {
    let key = KeyPair::generate().unwrap();
    let names = ["weir.example", "*.fleet.example"].map(str::to_owned);
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem();
    let identity = (certificate.as_bytes(), key.serialize_pem());
    let identity = Identity::parse((identity.0, identity.1.as_bytes()), "api.tls_cert");
    let Ok(identity) = identity else { panic!("the certificate is valid") };
    for name in ["weir.example", "a.fleet.example"] {
        assert!(identity.is_named(name), "{name}");
    }
    for name in ["example", "evil.example", "fleet.example", "a.b.fleet.example", "", "a b"] {
        assert!(!identity.is_named(name), "{name}");
    }
}
