//! HTTP connections to AWS and to the instance metadata service.

use std::time::Duration;

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpConnectorSettings, SharedHttpClient, SharedHttpConnector, http_client_fn,
};

/// Time limit for establishing a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(3);

/// Returns a connector for the SDKs, IMDS and the requests that Weir signs itself: TLS by rustls
/// and ring, with the system's root certificates.
pub fn connector() -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).build();
    let builder = Connector::builder().connector_settings(settings);
    SharedHttpConnector::new(builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).build())
}

/// Wraps a connector as the HTTP client type of the SDKs.
pub fn http_client(connector: SharedHttpConnector) -> SharedHttpClient {
    http_client_fn(move |_, _| connector.clone())
}
