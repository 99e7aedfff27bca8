//! TLS certificate of a listener: parsed from PEM, checked against its private key, with its
//! validity.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// A certificate with its key, ready for handshakes.
pub(crate) struct Identity {
    /// Configuration of handshakes. It has a session cache of its own, so that sessions of a
    /// previous certificate are not resumed.
    pub(crate) acceptor: TlsAcceptor,
    /// Validity of the certificate; `None` if it has none that can be parsed.
    pub(crate) validity: Option<Validity>,
    leaf: CertificateDer<'static>,
}

/// Why certificate and key cannot be used, without any part of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum IdentityError {
    /// The certificate's file is at fault.
    Certificate(String),
    /// The key's file is at fault, or it belongs to another certificate.
    Key(String),
}

/// Period in which a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Start of the period.
    pub from: SystemTime,
    /// End of the period.
    pub until: SystemTime,
}

impl Validity {
    /// Returns a warning if the certificate is not valid at the time `now`.
    pub(crate) fn warning(self, now: SystemTime) -> Option<String> {
        let date = |time| config::rfc3339::format(time);
        if now > self.until {
            Some(format!("the certificate expired at {}; renew it", date(self.until)))
        } else if now < self.from {
            let from = date(self.from);
            Some(format!("the certificate is not valid before {from}; check this machine's clock"))
        } else {
            None
        }
    }
}

impl Identity {
    /// Parses a PEM file with a certificate and its intermediate certificates, and one with its
    /// private key. `cert_setting` is the configuration key of the certificate.
    pub(crate) fn parse(
        (certificate, key): (&[u8], &[u8]),
        cert_setting: &str,
    ) -> Result<Identity, IdentityError> {
        let of_certificate = |cause: String| IdentityError::Certificate(cause);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| of_certificate(error.to_string()))?;
        let leaf = chain.first().ok_or_else(|| {
            of_certificate("the file has no PEM certificate; write one, leaf first".to_owned())
        })?;
        let (validity, leaf) = (validity(leaf), leaf.clone().into_owned());
        // Messages of parsers could contain parts of the key.
        let unusable = |cause: &str| IdentityError::Key(cause.to_owned());
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            unusable("the file has no PEM private key; write one without a passphrase")
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let signing = provider.key_provider.load_private_key(key);
        let signing = signing.map_err(|_| {
            unusable("the private key is damaged or not of type RSA, ECDSA or Ed25519; replace it")
        })?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => {
                return Err(unusable(&format!(
                    "it is not the private key of the certificate in {cert_setting}; write both \
                     files of one pair"
                )));
            }
            Err(error) => return Err(of_certificate(error.to_string())),
        }
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| of_certificate(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        Ok(Identity { acceptor: TlsAcceptor::from(Arc::new(config)), validity, leaf })
    }

    /// Returns whether the certificate is valid for a DNS name, by that name or by a wildcard.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let (leaf, name) = (ParsedCertificate::try_from(&self.leaf), ServerName::try_from(name));
        leaf.is_ok_and(|leaf| name.is_ok_and(|name| verify_server_name(&leaf, &name).is_ok()))
    }
}

/// DER tags that occur before and in the validity of a certificate.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the validity of a certificate (RFC 5280 section 4.1): in TBSCertificate the fourth
/// element after the optional version. `None` if the certificate has another structure.
fn validity(certificate: &[u8]) -> Option<Validity> {
    let (tag, certificate, _) = element(certificate)?;
    let (tag_tbs, mut rest, _) = element(certificate)?;
    if (tag, tag_tbs) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (tag, validity, _) = element(rest)?;
    let (tag_from, from, rest) = element(validity)?;
    let (tag_until, until, _) = element(rest)?;
    let is_sequence = tag == SEQUENCE;
    is_sequence.then_some(Validity { from: time(tag_from, from)?, until: time(tag_until, until)? })
}

/// Splits the first DER element off: returns its tag, its content and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Certificates are shorter than 2^24 bytes.
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses a UTCTime (`YYMMDDHHMMSSZ`) or GeneralizedTime (`YYYYMMDDHHMMSSZ`), in the forms that RFC
/// 5280 section 4.1.2.5 allows. `None` also for times before 1970.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(text).ok()?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            (format!("{}{year}", if year < "50" { "20" } else { "19" }), rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.to_owned(), rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day, zone) = (part(0)?, part(2)?, rest.get(10..)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    config::rfc3339::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}{zone}"))
        .filter(|_| zone == "Z")
}

#[cfg(test)]
mod tests;
