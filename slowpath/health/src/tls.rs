//! TLS client configurations of https probes: certificate authorities from a file, or no
//! verification.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::secret_file::{self, SecretKind};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::plan::Authorities;

/// Time for which the content of a file, or the error of reading it, is cached. A replaced file
/// takes effect after this time at the latest.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

type ConfigResult = Result<Arc<ClientConfig>, String>;

/// Error for a file that a service names, the same for every cause: see [`load_roots`].
const UNUSABLE: &str = "the service's ca_file is not usable: write a PEM file of at most 1 MiB \
    into health.ca_folder; slowpath's log has the cause";

/// Cache of client configurations by file of authorities.
#[derive(Debug, Default)]
pub struct TlsConfigs(HashMap<Option<Authorities>, (Instant, ConfigResult)>);

impl TlsConfigs {
    /// Returns the client configuration with these authorities; `None` accepts any certificate.
    /// Fails if the file of authorities is not usable.
    pub fn get(&mut self, authorities: Option<&Authorities>, now: Instant) -> ConfigResult {
        let key = authorities.cloned();
        let cached = self.0.get(&key).filter(|(at, _)| now < *at + CACHE_LIFETIME);
        if let Some((_, config)) = cached {
            return config.clone();
        }
        let config = build(authorities);
        self.0.insert(key, (now, config.clone()));
        config
    }
}

fn build(authorities: Option<&Authorities>) -> ConfigResult {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut config = match authorities {
        Some(file) => builder.with_root_certificates(load_roots(file)?).with_no_client_auth(),
        None => {
            let verifier = Arc::new(AcceptAnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    // Every probe must verify the certificate, which a resumed session would skip.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Loads the authorities of a file. For a file that a service names, the cause of an error is only
/// logged, not returned: API clients choose the name, and different errors would show them which
/// files exist.
fn load_roots(from: &Authorities) -> Result<RootCertStore, String> {
    let error_text = |cause: String| match &from.folder {
        None => {
            let file = from.file.display();
            format!(
                "cannot read the certificate authorities in {file}: {cause}; write a PEM file, or \
                 verify = false"
            )
        }
        Some(_) => {
            tracing::warn!(
                event = "health_ca_unusable",
                file = %from.file.display(),
                %cause,
                "CA file of a service not usable"
            );
            UNUSABLE.to_owned()
        }
    };
    let octets = match &from.folder {
        None => secret_file::read(&from.file, SecretKind::Pem),
        Some(folder) => secret_file::read_below(folder, &from.file, SecretKind::Pem),
    };
    let octets = octets.map_err(|error| error_text(error.cause.to_string()))?;
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(&octets) {
        // Old bundles contain certificates that cannot be used any more; the others are used.
        let _ = roots.add(one.map_err(|e| error_text(e.to_string()))?);
    }
    if roots.is_empty() {
        Err(error_text("the file contains no certificate".to_owned()))
    } else {
        Ok(roots)
    }
}

/// Accepts any certificate; the handshake signature is still verified.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
