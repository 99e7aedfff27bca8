//! Requests signed by Weir itself, for services of which it uses a handful of operations and whose
//! SDKs take minutes and gigabytes of memory to compile.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_smithy_types::byte_stream::error::Error as ByteStreamError;
use aws_smithy_types::error::display::DisplayErrorContext;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::failure::{RETRY_AFTER, retry_after};
use super::types::Failure;
use crate::failure::ErrorMapping;
use clouds::failure::{AttemptError, Operation};

/// Credentials are refreshed if they expire within this time.
const REFRESH_BEFORE_EXPIRY: Duration = Duration::from_secs(300);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Body of a request.
#[derive(Clone, Debug)]
pub enum RequestBody {
    /// A form; the response is XML. Members are sent in order.
    Form {
        /// API version of the service: a date, `2016-11-15` for instance.
        version: &'static str,
        /// Members other than `Action` and `Version`.
        members: Vec<(String, String)>,
    },
    /// JSON in request and response.
    Json {
        /// Prefix of the operation in the `X-Amz-Target` header.
        prefix: &'static str,
        /// The JSON body.
        body: serde_json::Value,
    },
}

/// Reads a body to its end; `None` if it is longer than [`MAX_RESPONSE_BYTES`]. Bytes are counted
/// as they arrive, because a chunked response states no length in its header.
async fn collect(body: SdkBody) -> Result<Option<Vec<u8>>, ByteStreamError> {
    let mut stream = ByteStream::new(body);
    let mut all = Vec::new();
    while let Some(chunk) = stream.try_next().await? {
        if all.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Ok(None);
        }
        all.extend_from_slice(&chunk);
    }
    Ok(Some(all))
}

/// Client for requests that Weir signs itself.
#[derive(Clone, Debug)]
pub struct SignedClient {
    /// HTTP connector, shared with the SDKs.
    pub connector: SharedHttpConnector,
    /// Credentials, shared with the SDKs.
    pub credentials: SharedCredentialsProvider,
    /// Region, `eu-central-1` for instance.
    pub region: String,
    /// One endpoint for all services, if configured (`AWS_ENDPOINT_URL`).
    pub endpoint: Option<String>,
}

impl SignedClient {
    /// Makes one attempt and returns the body of a successful response.
    pub async fn send(
        &self,
        operation: Operation,
        body_spec: &RequestBody,
    ) -> Result<String, AttemptError> {
        let credentials = self.credentials.provide_credentials().await;
        let credentials = credentials.map_err(|why| operation.without_credentials(&why))?;
        let request = self.request(operation, body_spec, credentials, SystemTime::now())?;
        let no_answer = |why: String| operation.failed(Failure::Transient, "NoAnswer", why);
        let mut response = self
            .connector
            .call(request)
            .await
            .map_err(|e| no_answer(DisplayErrorContext(&e).to_string()))?;
        let status = response.status();
        let after = retry_after(response.headers().get(RETRY_AFTER));
        let body = std::mem::replace(response.body_mut(), SdkBody::empty());
        let body = collect(body).await;
        let body = body.map_err(|e| no_answer(DisplayErrorContext(&e).to_string()))?;
        let Some(body) = body else {
            return Err(operation.malformed(format!("longer than {MAX_RESPONSE_BYTES} bytes")));
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(body);
        }
        let (code, message) = match body_spec {
            RequestBody::Form { .. } => xml_error(&body),
            RequestBody::Json { .. } => json_error(&body),
        };
        Err(AttemptError { after, ..operation.service_error(status.as_u16(), &code, &message) })
    }

    /// Returns the request, signed for the time `now`.
    fn request(
        &self,
        operation: Operation,
        body_spec: &RequestBody,
        credentials: Credentials,
        now: SystemTime,
    ) -> Result<aws_smithy_runtime_api::client::orchestrator::HttpRequest, AttemptError> {
        let invalid = |why: String| operation.failed(Failure::Invalid, "NotSent", why);
        let url = self.url(operation.service);
        let (kind, target, body) = match body_spec {
            RequestBody::Form { version, members } => {
                let first = [("Action", operation.name), ("Version", *version)];
                let members = members.iter().map(|(k, v)| (k.as_str(), v.as_str()));
                let form = first.into_iter().chain(members);
                let member =
                    |(k, v): (&str, &str)| format!("{}={}", percent_encode(k), percent_encode(v));
                let body: Vec<String> = form.map(member).collect();
                ("application/x-www-form-urlencoded; charset=utf-8", None, body.join("&"))
            }
            RequestBody::Json { prefix, body } => {
                let target = format!("{prefix}.{}", operation.name);
                ("application/x-amz-json-1.1", Some(target), body.to_string())
            }
        };
        let uri: http::Uri =
            url.parse().map_err(|e| invalid(format!("endpoint `{url}` is not a URL: {e}")))?;
        let host = uri.authority().map_or("", |a| a.as_str()).to_owned();
        let mut headers = vec![("content-type", kind), ("host", host.as_str())];
        headers.extend(target.as_deref().map(|target| ("x-amz-target", target)));
        let mut request = http::Request::post(&url);
        for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            request = request.header(*name, *value);
        }
        let request = request.body(SdkBody::from(body.as_str()));
        let mut request = request.map_err(|e| invalid(e.to_string()))?;
        let identity = credentials.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(operation.service)
            .time(now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|e| invalid(e.to_string()))?;
        let bytes = SignableBody::Bytes(body.as_bytes());
        let signable = SignableRequest::new("POST", &url, headers.into_iter(), bytes);
        let signed = signable.and_then(|s| sign(s, &params.into()));
        let (instructions, _) =
            signed.map_err(|e| invalid(DisplayErrorContext(&e).to_string()))?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        request.try_into().map_err(|e| invalid(format!("{e}")))
    }

    fn url(&self, service: &str) -> String {
        if let Some(endpoint) = &self.endpoint {
            return format!("{}/", endpoint.trim_end_matches('/'));
        }
        let domain = match self.region.starts_with("cn-") {
            true => "amazonaws.com.cn",
            false => "amazonaws.com",
        };
        format!("https://{service}.{}.{domain}/", self.region)
    }
}

/// Members of a form request (AWS query and EC2 query protocols).
#[derive(Default, Debug)]
pub struct Members(Vec<(String, String)>);

impl Members {
    /// Adds one member.
    pub fn with(mut self, name: &str, value: impl ToString) -> Members {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a list: `name.1`, `name.2` and so on.
    pub fn list<T: ToString>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Members {
        for (n, value) in values.into_iter().enumerate() {
            self.0.push((format!("{name}.{}", n + 1), value.to_string()));
        }
        self
    }

    /// Adds an EC2 filter.
    pub fn filter(self, name: &str, values: &[&str]) -> Members {
        let is_filter = |key: &str| key.starts_with("Filter.") && key.ends_with(".Name");
        let n = self.0.iter().filter(|(key, _)| is_filter(key)).count() + 1;
        self.with(&format!("Filter.{n}.Name"), name).list(&format!("Filter.{n}.Value"), values)
    }

    /// Returns a form request with these members.
    pub fn into_body(self, version: &'static str) -> RequestBody {
        RequestBody::Form { version, members: self.0 }
    }
}

/// The characters to percent-encode: all but the unreserved ones (RFC 3986 section 2.3), as SigV4
/// requires.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// Parses an XML response.
pub fn xml<T: DeserializeOwned>(operation: Operation, body: &str) -> Result<T, AttemptError> {
    // Nearly all members are optional, so without this check an HTML page of a proxy would parse as
    // an empty response.
    if !body.contains(&format!("<{}Response", operation.name)) {
        return Err(operation.malformed(excerpt(body)));
    }
    quick_xml::de::from_str(body).map_err(|e| operation.malformed(e))
}

/// Parses a JSON response.
pub fn json<T: DeserializeOwned>(operation: Operation, body: &str) -> Result<T, AttemptError> {
    serde_json::from_str(body).map_err(|e| operation.malformed(e))
}

/// Returns code and message of an XML error: `<Response><Errors><Error>` of EC2, or
/// `<ErrorResponse><Error>` of other services.
pub fn xml_error(body: &str) -> (String, String) {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "PascalCase", default)]
    struct ErrorBody {
        code: String,
        message: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "PascalCase", default)]
    struct Errors {
        error: ErrorBody,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "PascalCase", default)]
    struct Answer {
        errors: Errors,
        error: ErrorBody,
    }
    let answer: Answer = quick_xml::de::from_str(body).unwrap_or_default();
    let error = [answer.errors.error, answer.error].into_iter().find(|s| !s.code.is_empty());
    error.map_or_else(|| (String::new(), excerpt(body)), |s| (s.code, s.message))
}

/// Returns code and message of a JSON error: `{"__type": "...#Code", "message": "..."}`.
pub fn json_error(body: &str) -> (String, String) {
    let answer: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let member = |name: &str| answer.get(name).and_then(|v| v.as_str());
    let Some(kind) = member("__type") else { return (String::new(), excerpt(body)) };
    let code = kind.rsplit('#').next().unwrap_or_default().to_owned();
    (code, member("message").or(member("Message")).unwrap_or_default().to_owned())
}

/// Returns the beginning of a body that is not in the service's format, a proxy's page for
/// instance: at most 120 characters.
fn excerpt(body: &str) -> String {
    body.chars().filter(|c| !c.is_control()).take(120).collect()
}

/// A credentials provider that caches credentials until five minutes before they expire, for the
/// SDKs and for the requests that Weir signs itself.
#[derive(Debug)]
pub struct CachedCredentials {
    /// The underlying provider.
    pub source: SharedCredentialsProvider,
    /// The cached credentials.
    pub last: Mutex<Option<Credentials>>,
}

impl CachedCredentials {
    async fn get(&self) -> Result<Credentials, CredentialsError> {
        let mut last = self.last.lock().await;
        let soon = SystemTime::now() + REFRESH_BEFORE_EXPIRY;
        if let Some(cached) = last.as_ref().filter(|c| c.expiry().is_none_or(|e| e > soon)) {
            return Ok(cached.clone());
        }
        let fresh = self.source.provide_credentials().await?;
        *last = Some(fresh.clone());
        Ok(fresh)
    }
}

impl ProvideCredentials for CachedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.get())
    }
}

#[cfg(test)]
mod tests;
