//! TLS with a certification authority of its own, as clients that verify want it.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto, pki_types};
use tokio_rustls::server::TlsStream;

/// A certificate for these names, and the authority that signed it, as PEM. It takes both: clients
/// refuse a leaf that is its own authority.
pub fn made(names: &[String]) -> Result<(Arc<ServerConfig>, String)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::OrganizationName, "Weir's stand-in for Azure");
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

/// Connections whose handshake is over. Handshakes go on side by side, and one that never ends
/// holds up nobody.
pub struct Listener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Listener {
    /// On a socket.
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
