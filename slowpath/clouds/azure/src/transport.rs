//! HTTP transport to Azure's services: TLS by rustls and ring, no redirects, responses of bounded
//! length.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::policies::Policy;
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, Context, HttpClient, Pipeline, PipelineSendOptions,
    RawResponse, Request, RetryOptions, Transport,
};
use clouds::failure::{AttemptError, Failure, Operation};

use crate::failure::{ClassifyError, chain};

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a response in bytes, far above that of a page of a list, which has at most
/// some hundred resources.
const MAX_RESPONSE_LENGTH: u64 = 16 << 20;

/// Operation name for errors in the client's settings.
pub(crate) const SETTINGS: Operation = Operation::new("the settings of [azure]", "Settings");

/// HTTP transport for the SDK's pipelines.
#[derive(Clone, Debug)]
pub(crate) struct HttpTransport(reqwest::Client);

impl HttpTransport {
    /// Returns a transport that accepts certificates of the system's roots and of additional roots
    /// (PEM). Proxies are used according to `HTTPS_PROXY` and `NO_PROXY`.
    pub fn to_services(roots: Option<&str>) -> Result<HttpTransport, AttemptError> {
        // The first call sets the process's provider. Later ones fail, which is ignored because the
        // provider is always ring.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut additional = Vec::new();
        if let Some(pem) = roots {
            let read = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
            additional = read.map_err(|why| {
                let why = format!("the additional roots are not PEM certificates: {why}");
                SETTINGS.failed(Failure::Invalid, "NoRoots", why)
            })?;
        }
        HttpTransport::build(
            reqwest::Client::builder().https_only(true).tls_certs_merge(additional),
        )
    }

    /// Returns a transport to the metadata service on the host: plain HTTP, never through a proxy.
    pub fn to_host() -> Result<HttpTransport, AttemptError> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        HttpTransport::build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
    }

    fn build(builder: reqwest::ClientBuilder) -> Result<HttpTransport, AttemptError> {
        // A redirect would send the token, or the metadata header, to another host.
        let builder =
            builder.redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT_TIMEOUT);
        builder.build().map(HttpTransport).map_err(|why| {
            let why = format!(
                "TLS cannot be initialized: {}; install ca-certificates, or set SSL_CERT_FILE to a \
                 file of roots",
                chain(&why)
            );
            SETTINGS.failed(Failure::Invalid, "NoRoots", why)
        })
    }

    /// Returns the options for the SDK's clients: this transport and a single attempt, because
    /// retries are made by `Requests`.
    pub fn options(&self) -> ClientOptions {
        ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(Transport::new(Arc::new(self.clone()))),
            ..ClientOptions::default()
        }
    }

    /// Returns a pipeline of the SDK with this transport.
    pub fn pipeline(&self, policies: Vec<Arc<dyn Policy>>) -> Pipeline {
        let (name, version) = (Some("weir"), option_env!("CARGO_PKG_VERSION"));
        Pipeline::new(name, version, self.options(), Vec::new(), policies, None)
    }
}

/// Sends a request once. A response with any status is returned as `Ok`.
pub(crate) async fn send(
    pipeline: &Pipeline,
    operation: Operation,
    request: &mut Request,
) -> Result<RawResponse, AttemptError> {
    let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
    let result = pipeline.send(&Context::new(), request, Some(options)).await;
    result.map_err(|error| operation.transport_error(&error))
}

#[async_trait]
impl HttpClient for HttpTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let send_error = |why: &dyn std::error::Error| {
            Error::with_message(ErrorKind::Other, format!("the request cannot be sent: {why}"))
        };
        let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes());
        let method = method.map_err(|why| send_error(&why))?;
        let mut builder = self.0.request(method, request.url().clone());
        for (name, value) in request.headers().iter() {
            builder = builder.header(name.as_str(), value.as_str());
        }
        if let Body::Bytes(bytes) = request.body() {
            builder = builder.body(bytes.clone());
        }
        let io_error = |why: reqwest::Error| Error::with_message(ErrorKind::Io, chain(&why));
        let mut response = builder.send().await.map_err(io_error)?;
        let mut headers = Headers::new();
        for (name, value) in response.headers() {
            // Values that are not text are left out.
            if let Ok(value) = value.to_str() {
                let name = HeaderName::from(name.as_str().to_owned());
                headers.insert(name, HeaderValue::from(value.to_owned()));
            }
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(io_error)? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > MAX_RESPONSE_LENGTH {
                let why = format!("longer than {MAX_RESPONSE_LENGTH} bytes");
                return Err(Error::with_message(ErrorKind::DataConversion, why));
            }
        }
        Ok(AsyncRawResponse::from_bytes(response.status().as_u16().into(), headers, body))
    }
}
