//! TLS with the emulator's own certificate authority, for clients that verify certificates.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto, pki_types};
use tokio_rustls::server::TlsStream;

/// Creates a certificate for these names and an authority that signs it. Returns a server
/// configuration with the certificate, and the authority's certificate in PEM. The authority is
/// separate, because clients reject a server certificate that is its own authority.
pub fn server_config(names: &[String]) -> Result<(Arc<ServerConfig>, String)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::OrganizationName, "Weir azure-emulator");
    let key = KeyPair::generate().map_err(Error::other)?;
    let ca = params.self_signed(&key).map_err(Error::other)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().map_err(Error::other)?;
    let leaf = CertificateParams::new(names.to_vec()).map_err(Error::other)?;
    let leaf = leaf.signed_by(&key, &issuer).map_err(Error::other)?;
    let key = pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|b| b.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key))
        .map_err(Error::other)?;
    Ok((Arc::new(config), ca))
}

/// A listener for connections after their TLS handshake. Handshakes run concurrently, so that an
/// unfinished one delays no other connection.
pub struct Listener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Listener {
    /// Accepts connections on a socket.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>) -> Result<Listener> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(64);
        let acceptor = TlsAcceptor::from(config);
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = sender.send((stream, from)).await;
                    }
                });
            }
        });
        Ok(Listener { address, ready })
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.address)
    }
}
