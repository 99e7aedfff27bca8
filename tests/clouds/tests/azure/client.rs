//! A minimal client with one connection for each request.

use std::sync::Arc;

use cloud_emulators::azure::{AzureState, Emulator};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

pub const SUB: &str = "/subscriptions/00000000-0000-0000-0000-0000000000aa";
pub const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/north";
pub const VERSION: &str = "api-version=2024-05-01";

/// Path of tokens at the metadata service.
pub const TOKEN: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01";
/// Query parameter that requests a token for Resource Manager.
pub const ARM: &str = "resource=https%3A%2F%2Fmanagement.azure.com%2F";

/// A response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
    pub body: Value,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

/// The emulator and a token for it.
pub struct TestAzure {
    pub azure: Emulator,
    pub token: String,
}

pub fn network(rest: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{rest}")
}

pub fn pool(name: &str) -> String {
    network(&format!("loadBalancers/gw/backendAddressPools/{name}"))
}

async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> HttpResponse {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // The server may close the connection without a TLS close_notify.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or("0");
    let headers = lines.filter_map(|line| line.split_once(": "));
    HttpResponse {
        status: status.parse().unwrap(),
        headers: headers.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        text: body.to_owned(),
        body: serde_json::from_str(body).unwrap_or_default(),
    }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + &format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Sends a request over TLS, trusting only `ca`.
pub async fn https_request(
    url: &str,
    ca: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<HttpResponse> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let port = url.rsplit(':').next().unwrap();
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(send(stream, &request(method, target, headers, body)).await)
}

/// Sends a request without TLS.
pub async fn http_request(
    url: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    send(stream, &request(method, target, headers, body)).await
}

impl TestAzure {
    /// Starts an emulator and obtains a token.
    pub async fn of(cloud: AzureState) -> TestAzure {
        let azure = Emulator::start(cloud).await.unwrap();
        let mut test = TestAzure { azure, token: String::new() };
        test.token = test.log_in().await;
        test.azure.take_calls();
        test
    }

    pub async fn new() -> TestAzure {
        TestAzure::of(AzureState::sample()).await
    }

    /// Obtains a token for Resource Manager.
    pub async fn log_in(&self) -> String {
        let response = self.get_metadata(&format!("{TOKEN}&{ARM}")).await;
        assert_eq!(response.status, 200, "{}", response.text);
        response.body["access_token"].as_str().unwrap().to_owned()
    }

    /// Sends a request to the metadata service.
    pub async fn get_metadata(&self, target: &str) -> HttpResponse {
        http_request(&self.azure.imds, "GET", target, &[("Metadata", "true")], "").await
    }

    pub async fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let Emulator { url, ca, .. } = &self.azure;
        https_request(url, ca, method, target, headers, body).await.unwrap()
    }

    async fn with_token(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let bearer = format!("Bearer {}", self.token);
        let mut headers =
            vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        headers.extend(more);
        let target = match path.contains('?') {
            true => path.to_owned(),
            false => format!("{path}?{VERSION}"),
        };
        self.request(method, &target, &headers, body).await
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.with_token("GET", path, &[], "").await
    }

    pub async fn put(&self, path: &str, body: &Value) -> HttpResponse {
        self.with_token("PUT", path, &[], &body.to_string()).await
    }

    pub async fn put_if(&self, path: &str, body: &Value, etag: &str) -> HttpResponse {
        self.with_token("PUT", path, &[("If-Match", etag)], &body.to_string()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.with_token("POST", path, &[], &body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> HttpResponse {
        self.with_token("DELETE", path, &[], "").await
    }

    /// Follows a link from a response.
    pub async fn follow(&self, link: &str) -> HttpResponse {
        self.get(link.strip_prefix(&self.azure.url).unwrap()).await
    }
}

/// Adds an interface's first IP configuration to a pool, bypassing validation.
pub fn add_to_pool(cloud: &mut AzureState, nic: &str, pool: &str) {
    let body = &mut cloud.find_mut(nic).unwrap().body;
    let part = &mut body["properties"]["ipConfigurations"][0]["properties"];
    part["loadBalancerBackendAddressPools"] = serde_json::json!([{ "id": pool }]);
}
