//! Connections to AWS and to the metadata of the instance.

use std::time::Duration;

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpConnectorSettings, SharedHttpClient, SharedHttpConnector, http_client_fn,
};

/// A connection that is not there after so long will not come.
pub(super) const CONNECT: Duration = Duration::from_secs(3);

/// Connections for SDKs, metadata and ourselves: TLS by rustls and ring, the system's roots.
pub fn connector() -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).build();
    let builder = Connector::builder().connector_settings(settings);
    SharedHttpConnector::new(builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).build())
}

/// The same as the SDKs want it.
pub fn http_client(connector: SharedHttpConnector) -> SharedHttpClient {
    http_client_fn(move |_, _| connector.clone())
}
