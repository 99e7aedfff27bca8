//! Client for the instance metadata service (IMDSv2): identity and termination notices.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_config::imds::Client;
use aws_config::imds::client::error::ImdsError;
use aws_config::provider_config::ProviderConfig;
use aws_smithy_types::error::display::DisplayErrorContext;
use serde::Deserialize;
use tokio::sync::watch;

use super::connect::{connector, http_client};
use super::types::{CallError, Failure, Identity, Interface};
use crate::failure::ErrorMapping;
use clouds::failure::{AttemptError, Operation};
use clouds::requests::Requests;
use clouds::retry::{Pause, Policy};

/// Time limit of one attempt; IMDS is local to the instance's host, so a slow response is not
/// expected.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Operation name for errors; IMDS has paths instead of operations, and no permissions.
const GET: Operation = Operation::new("imds", "IMDS");
const DOCUMENT: &str = "/latest/dynamic/instance-identity/document";
const MACS: &str = "/latest/meta-data/network/interfaces/macs/";

/// Client for the instance metadata service.
#[derive(Clone)]
pub struct Metadata {
    client: Client,
    requests: Requests,
}

/// Notices about the end of this instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notices {
    /// Auto Scaling target lifecycle state: `InService`, `Terminated` and so on; `None` outside of
    /// a group.
    pub lifecycle: Option<String>,
    /// Spot interruption notice: `terminate`, `stop` or `hibernate`, and its time (RFC 3339).
    pub spot: Option<(String, String)>,
    /// Spot rebalance recommendation: the time at which it was issued (RFC 3339).
    pub rebalance: Option<String>,
}

impl Metadata {
    /// Returns a client for the URL `endpoint`, else the one in the environment variable
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`, else AWS's address. When `cancel` becomes true, all
    /// requests end.
    pub fn new(
        endpoint: Option<&str>,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> Result<Metadata, CallError> {
        let provider = ProviderConfig::without_region().with_http_client(http_client(connector()));
        // A single attempt: retries are made by `Requests`.
        let mut builder = Client::builder()
            .configure(&provider)
            .max_attempts(1)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT);
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint).map_err(|why| {
                let why = format!("endpoint `{endpoint}` is not a URL: {why}");
                GET.failed(Failure::Invalid, "NotSent", why).error
            })?;
        }
        let requests = Requests::new(Policy::IMDS, seed, cancel);
        Ok(Metadata { client: builder.build(), requests })
    }

    /// Returns a clone with another retry policy.
    pub fn with_policy(&self, policy: Policy) -> Metadata {
        Metadata { requests: self.requests.with_policy(policy), ..self.clone() }
    }

    /// Returns a clone with another clock for the time between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Metadata {
        Metadata { requests: self.requests.with_pause(pause), ..self.clone() }
    }

    /// Returns the text at a path; `None` if the path does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<String>, CallError> {
        let request = || async {
            match self.client.get(path).await {
                Ok(text) => Ok(Some(text.into())),
                Err(ImdsError::ErrorResponse(e)) if e.response().status().as_u16() == 404 => {
                    Ok(None)
                }
                Err(error) => Err(failed(path, &error)),
            }
        };
        self.requests.with_retries(request).await.map_err(|failed| failed.error)
    }

    async fn require(&self, path: &str) -> Result<String, CallError> {
        self.get(path).await?.ok_or_else(|| {
            let why =
                format!("no metadata at {path}: this is no EC2 instance, or the IMDS is not AWS's");
            GET.failed(Failure::Absent, "NotFound", why).error
        })
    }

    /// Reads the identity of this machine, with its network interfaces.
    pub async fn identity(&self) -> Result<Identity, CallError> {
        let document = read_document(&self.require(DOCUMENT).await?).map_err(|s| s.error)?;
        let mut interfaces = Vec::new();
        for line in self.require(MACS).await?.lines().map(str::trim).filter(|l| !l.is_empty()) {
            interfaces.push(self.interface(line.trim_end_matches('/')).await?);
        }
        interfaces.sort_by_key(|i| i.device_number);
        Ok(Identity {
            instance_id: document.instance_id,
            region: document.region,
            zone: document.availability_zone,
            account: document.account_id,
            image_id: document.image_id,
            instance_type: document.instance_type,
            interfaces,
        })
    }

    async fn interface(&self, mac_text: &str) -> Result<Interface, CallError> {
        let invalid = |name: &str, found: &str| {
            GET.malformed(format!("invalid {name} of interface {mac_text}: `{found}`")).error
        };
        let of = |name: &str| format!("{MACS}{mac_text}/{name}");
        let mac = parse_mac(mac_text).ok_or_else(|| invalid("MAC address", mac_text))?;
        let number = self.require(&of("device-number")).await?;
        let mut addresses = Vec::new();
        for name in ["local-ipv4s", "ipv6s"] {
            for text in self.get(&of(name)).await?.unwrap_or_default().split_whitespace() {
                addresses.push(text.parse::<IpAddr>().map_err(|_| invalid(name, text))?);
            }
        }
        let groups = self.get(&of("security-group-ids")).await?.unwrap_or_default();
        Ok(Interface {
            mac,
            id: self.require(&of("interface-id")).await?.trim().to_owned(),
            device_number: number.trim().parse().map_err(|_| invalid("device-number", &number))?,
            addresses,
            subnet_id: self.require(&of("subnet-id")).await?.trim().to_owned(),
            vpc_id: self.require(&of("vpc-id")).await?.trim().to_owned(),
            security_groups: groups.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// Reads the networks of an interface's subnet as address and prefix length, IPv4 first.
    pub async fn subnets(&self, interface: &Interface) -> Result<Vec<(IpAddr, u8)>, CallError> {
        let mac = interface.mac.map(|byte| format!("{byte:02x}")).join(":");
        let mut subnets = Vec::new();
        for name in ["subnet-ipv4-cidr-block", "subnet-ipv6-cidr-blocks"] {
            let found = self.get(&format!("{MACS}{mac}/{name}")).await?.unwrap_or_default();
            for text in found.split_whitespace() {
                let subnet = text.split_once('/').and_then(|(address, length)| {
                    Some((address.parse().ok()?, length.parse().ok()?))
                });
                subnets.push(subnet.ok_or_else(|| {
                    GET.malformed(format!("{name} of interface {mac} is `{text}`")).error
                })?);
            }
        }
        Ok(subnets)
    }

    /// Reads the notices about the end of this instance.
    pub async fn notices(&self) -> Result<Notices, CallError> {
        let lifecycle = self.get("/latest/meta-data/autoscaling/target-lifecycle-state").await?;
        let spot = self.get("/latest/meta-data/spot/instance-action").await?;
        let rebalance = self.get("/latest/meta-data/events/recommendations/rebalance").await?;
        Ok(Notices {
            lifecycle: lifecycle.map(|text| text.trim().to_owned()),
            spot: spot.map(|text| read_spot(&text)).transpose().map_err(|s| s.error)?,
            rebalance: rebalance
                .map(|text| read_rebalance(&text))
                .transpose()
                .map_err(|s| s.error)?,
        })
    }
}

/// Returns the error for a failed metadata request.
fn failed(path: &str, error: &ImdsError) -> AttemptError {
    let message = format!("{path}: {}", DisplayErrorContext(error));
    match error {
        ImdsError::ErrorResponse(e) => {
            let status = e.response().status().as_u16();
            match status {
                // The token has expired early; the next attempt fetches a new one.
                401 => GET.failed(Failure::Transient, "401", message),
                403 => GET.failed(Failure::Denied, "403", unanswered("token", &message)),
                _ => GET.service_error(status, "", &message),
            }
        }
        ImdsError::FailedToLoadToken(e) if e.is_dispatch_failure() => GET.failed(
            Failure::Transient,
            "NoToken",
            format!(
                "no connection to the metadata service: check that this is an EC2 instance with \
                 IMDS enabled; {message}"
            ),
        ),
        ImdsError::FailedToLoadToken(_) => {
            let forbidden = message.contains("forbidden") || message.contains("Forbidden");
            let kind = if forbidden { Failure::Denied } else { Failure::Transient };
            GET.failed(kind, "NoToken", unanswered("token", &message))
        }
        // The attempt includes the request for a token, which has the same time limit: either may
        // be the first to reach it.
        ImdsError::IoError(_) => {
            GET.failed(Failure::Transient, "NoAnswer", unanswered("answer", &message))
        }
        _ => GET.failed(Failure::Transient, "NoAnswer", message),
    }
}

fn unanswered(what: &str, cause: &str) -> String {
    format!(
        "no {what} from the metadata service: in a container its hop limit of 1 is too low (aws \
         ec2 modify-instance-metadata-options --http-put-response-hop-limit 2); otherwise IMDS is \
         disabled (--http-endpoint enabled); {cause}"
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    instance_id: String,
    region: String,
    availability_zone: String,
    account_id: String,
    #[serde(default)]
    image_id: String,
    #[serde(default)]
    instance_type: String,
}

fn read_document(text: &str) -> Result<Document, AttemptError> {
    serde_json::from_str(text)
        .map_err(|e| GET.malformed(format!("instance identity document: {e}")))
}

fn read_spot(text: &str) -> Result<(String, String), AttemptError> {
    #[derive(Deserialize)]
    struct Spot {
        action: String,
        time: String,
    }
    let spot: Result<Spot, _> = serde_json::from_str(text);
    spot.map(|s| (s.action, s.time)).map_err(|e| GET.malformed(format!("spot notice: {e}")))
}

fn read_rebalance(text: &str) -> Result<String, AttemptError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rebalance {
        notice_time: String,
    }
    let parsed: Result<Rebalance, _> = serde_json::from_str(text);
    parsed
        .map(|r| r.notice_time)
        .map_err(|e| GET.malformed(format!("rebalance recommendation: {e}")))
}

/// Parses a MAC address as AWS writes it: six hexadecimal bytes, separated by colons.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part =
            parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
        *byte = u8::from_str_radix(part?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}
