//! Whom https probes believe: the authorities of a file, or anybody.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// How long a file of authorities is remembered; one that is replaced is believed after that.
const REMEMBERED: Duration = Duration::from_secs(60);

type Made = Result<Arc<ClientConfig>, String>;

/// Configurations by file of authorities.
#[derive(Debug, Default)]
pub struct Believed(HashMap<Option<PathBuf>, (Instant, Made)>);

impl Believed {
    /// How to believe the authorities of a file, or anybody; or what is wrong with the file.
    pub fn by(&mut self, authorities: Option<&PathBuf>, now: Instant) -> Made {
        let key = authorities.cloned();
        let known = self.0.get(&key).filter(|(at, _)| now < *at + REMEMBERED);
        if let Some((_, made)) = known {
            return made.clone();
        }
        let made = make(authorities.map(PathBuf::as_path));
        self.0.insert(key, (now, made.clone()));
        made
    }
}

fn make(authorities: Option<&Path>) -> Made {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut made = match authorities {
        Some(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
        None => {
            let anybody = Arc::new(Anybody(provider));
            builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        }
    };
    // Each probe sees the certificate: a session that is resumed would not.
    made.resumption = Resumption::disabled();
    Ok(Arc::new(made))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |e| {
        let file = file.display();
        format!("can't read the authorities in {file}: {e}; write a PEM file, or verify = false")
    };
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(file).map_err(|e| wrong(e.to_string()))? {
        // Old bundles hold some that nobody can use any more; the others count.
        let _ = roots.add(one.map_err(|e| wrong(e.to_string()))?);
    }
    if roots.is_empty() {
        Err(wrong("there is no certificate in it".to_owned()))
    } else {
        Ok(roots)
    }
}

/// Takes any certificate; that the other end has its key is still asked for.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
