//! The way to Azure's services: TLS by rustls and ring, no redirects, answers of bounded length.

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
use clouds::failure::{Failure, Operation, Setback};

use crate::failure::{Refused, chain};

/// A connection that is not there after so long will not come.
const CONNECT: Duration = Duration::from_secs(5);
/// No answer that we ask for is longer: a page of a list has at most some hundred resources.
const LONGEST_ANSWER: u64 = 16 << 20;

/// What came instead of a connection's settings.
pub(crate) const SETTINGS: Operation = Operation::new("the settings of [azure]", "Settings");

/// Connections to services.
#[derive(Clone, Debug)]
pub(crate) struct Wire(reqwest::Client);

impl Wire {
    /// To those whose certificate the system's roots vouch for, or more roots (PEM). Proxies are
    /// used as `HTTPS_PROXY` and `NO_PROXY` say.
    pub fn to_services(roots: Option<&str>) -> Result<Wire, Setback> {
        // Whoever was first decides for the process; there is no other than ring in it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut more = Vec::new();
        if let Some(pem) = roots {
            let read = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
            more = read.map_err(|why| {
                let why = format!("the extra roots are no certificates in PEM: {why}");
                SETTINGS.failed(Failure::Invalid, "NoRoots", why)
            })?;
        }
        Wire::built(reqwest::Client::builder().https_only(true).tls_certs_merge(more))
    }

    /// To the metadata service of the machine's own host: plain HTTP, and never by a proxy.
    pub fn to_host() -> Result<Wire, Setback> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Wire::built(reqwest::Client::builder().no_proxy().tls_certs_only([]))
    }

    fn built(builder: reqwest::ClientBuilder) -> Result<Wire, Setback> {
        // A redirect would take the token, or the metadata's header, to somebody else.
        let builder = builder.redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT);
        builder.build().map(Wire).map_err(|why| {
            let why = format!(
                "no TLS: {}; install ca-certificates, or set SSL_CERT_FILE to a file of roots",
                chain(&why)
            );
            SETTINGS.failed(Failure::Invalid, "NoRoots", why)
        })
    }

    /// What the SDK's clients want: these connections, and one attempt, for asking again is ours.
    pub fn options(&self) -> ClientOptions {
        ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(Transport::new(Arc::new(self.clone()))),
            ..ClientOptions::default()
        }
    }

    /// The SDK's pipeline over these connections.
    pub fn pipeline(&self, policies: Vec<Arc<dyn Policy>>) -> Pipeline {
        let (name, version) = (Some("weir"), option_env!("CARGO_PKG_VERSION"));
        Pipeline::new(name, version, self.options(), Vec::new(), policies, None)
    }
}

/// Sends a request once; whatever its status, the answer is one.
pub(crate) async fn send(
    pipeline: &Pipeline,
    operation: Operation,
    request: &mut Request,
) -> Result<RawResponse, Setback> {
    let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
    let told = pipeline.send(&Context::new(), request, Some(options)).await;
    told.map_err(|error| operation.unanswered(&error))
}

#[async_trait]
impl HttpClient for Wire {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let unsent = |why: &dyn std::error::Error| {
            Error::with_message(ErrorKind::Other, format!("the request can't be sent: {why}"))
        };
        let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes());
        let method = method.map_err(|why| unsent(&why))?;
        let mut ours = self.0.request(method, request.url().clone());
        for (name, value) in request.headers().iter() {
            ours = ours.header(name.as_str(), value.as_str());
        }
        if let Body::Bytes(bytes) = request.body() {
            ours = ours.body(bytes.clone());
        }
        let broken = |why: reqwest::Error| Error::with_message(ErrorKind::Io, chain(&why));
        let mut answer = ours.send().await.map_err(broken)?;
        let mut headers = Headers::new();
        for (name, value) in answer.headers() {
            // A value that is no text is as good as none.
            if let Ok(value) = value.to_str() {
                let name = HeaderName::from(name.as_str().to_owned());
                headers.insert(name, HeaderValue::from(value.to_owned()));
            }
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > LONGEST_ANSWER {
                let why = format!("it is longer than {LONGEST_ANSWER} bytes");
                return Err(Error::with_message(ErrorKind::DataConversion, why));
            }
        }
        Ok(AsyncRawResponse::from_bytes(answer.status().as_u16().into(), headers, body))
    }
}
