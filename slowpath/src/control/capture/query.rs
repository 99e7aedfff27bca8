//! Request for a capture: its parameters, checked, and the filter for the data plane.

use std::time::Duration;

use config::checked::Plane;
use serde::{Deserialize, Serialize};
use tables::capture::{
    AFTER, ANY, AddrRange, BEFORE, CaptureFilter, MAX_CAPTURES, MAX_SERVICES, MAX_SNAP, MIN_SNAP,
    REPLY, REQUEST,
};
use tables::reason::DropReason;
use tables::record::NONE;

use crate::control::flows::{End, read_protocol};
use crate::live::{Live, PublishedService};
use state::text::ARMS;

/// Default and maximum number of packets.
pub const PACKETS: (u32, u32) = (10_000, 1_000_000);
/// Default and maximum duration in seconds.
pub const SECONDS: (u32, u32) = (60, 600);
/// Default, minimum and maximum size of the file in bytes.
pub const BYTES: (u64, u64, u64) = (64 << 20, 4096, 256 << 20);
/// Default number of bytes of each frame.
pub const SNAP: u16 = 192;

/// Parameters of a capture as they are written in a query.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureQuery {
    /// Client: an address, optionally with a port, or a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Frontend: an address, optionally with a port, or a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontend: Option<String>,
    /// Name of a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Name of a drop reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_reason: Option<String>,
    /// `ingress` or `egress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// `request` or `reply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// `before` or `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Number of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Size of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of each frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap: Option<u16>,
}

/// A checked request.
#[derive(Clone, PartialEq, Debug)]
pub struct CaptureRequest {
    /// Filter for the data plane.
    pub filter: CaptureFilter,
    /// Maximum number of packets.
    pub packets: u32,
    /// Maximum duration.
    pub duration: Duration,
    /// Maximum size of the file in bytes, without the statistics.
    pub bytes: u64,
    /// The filter as text.
    pub text: String,
}

impl CaptureRequest {
    /// Returns the arms whose packets are captured.
    pub fn arms(&self) -> [bool; MAX_CAPTURES] {
        std::array::from_fn(|arm| self.filter.arm == ANY || usize::from(self.filter.arm) == arm)
    }

    /// Names these arms.
    pub fn arms_text(&self) -> &'static str {
        ARMS.get(usize::from(self.filter.arm)).copied().unwrap_or("ingress and egress")
    }
}

impl CaptureQuery {
    /// Checks the parameters, and looks up the service.
    ///
    /// # Errors
    /// Returns an error that names the parameter, as an option of `weir capture`, and what is
    /// allowed.
    pub fn check(&self, live: &Live) -> Result<CaptureRequest, String> {
        let published = live.published();
        let services = published.services(live.region);
        self.check_with(services, live.config.arms().count(), live.config.plane)
    }

    pub(super) fn check_with(
        &self,
        services: &[PublishedService],
        arms: usize,
        plane: Plane,
    ) -> Result<CaptureRequest, String> {
        let (client, client_port) = range("client", self.client.as_deref())?;
        let (frontend, frontend_port) = range("frontend", self.frontend.as_deref())?;
        let (services, service_count) = self.services(services)?;
        let snap = self.snap.unwrap_or(SNAP);
        let filter = CaptureFilter {
            client,
            frontend,
            services,
            service_count,
            client_port,
            frontend_port,
            proto: self.proto()?,
            reason: self.reason(plane)?,
            arm: choice("arm", self.arm.as_deref(), &ARMS[..arms.min(ARMS.len())])?,
            direction: choice("direction", self.direction.as_deref(), &["request", "reply"])?,
            stage: choice("stage", self.stage.as_deref(), &["before", "after"])?,
            spare: 0,
            snap: within("snap", snap, MIN_SNAP, MAX_SNAP)?,
        };
        const { assert!(REQUEST == 0 && REPLY == 1 && BEFORE == 0 && AFTER == 1) };
        // These packets leave as an ICMP error to their source.
        let answered = [DropReason::TtlExceeded as u8, DropReason::TooBigAnswered as u8, ANY];
        if !answered.contains(&filter.reason) && filter.stage == AFTER {
            return Err("--stage after: a packet that is dropped without an answer has no frame \
                        that leaves; leave out --stage, or --drop-reason"
                .to_owned());
        }
        let packets = within("count", self.count.unwrap_or(PACKETS.0), 1, PACKETS.1)?;
        let seconds = within("seconds", self.seconds.unwrap_or(SECONDS.0), 1, SECONDS.1)?;
        let bytes = within("bytes", self.bytes.unwrap_or(BYTES.0), BYTES.1, BYTES.2)?;
        let duration = Duration::from_secs(seconds.into());
        Ok(CaptureRequest { filter, packets, duration, bytes, text: self.text() })
    }

    fn services(
        &self,
        services: &[PublishedService],
    ) -> Result<([u32; MAX_SERVICES], u32), String> {
        let mut ids = [NONE; MAX_SERVICES];
        let Some(name) = &self.service else { return Ok((ids, 0)) };
        let found = services.iter().find(|one| one.service.name.as_str() == name);
        let found = found.ok_or_else(|| {
            format!("--service {name}: there is no such service; see `weir services`")
        })?;
        let count = found.ids.len();
        if count == 0 {
            return Err(format!(
                "--service {name}: the service is not in the tables of the data plane; see `weir \
                 db show frontends`"
            ));
        }
        if count > MAX_SERVICES {
            return Err(format!(
                "--service {name}: its frontends have {count} different sets of backends, and a \
                 capture has at most {MAX_SERVICES}; name one with --frontend"
            ));
        }
        ids.iter_mut().zip(&found.ids).for_each(|(to, id)| *to = *id);
        Ok((ids, count as u32))
    }

    fn proto(&self) -> Result<u8, String> {
        let Some(text) = &self.protocol else { return Ok(ANY) };
        match read_protocol(text)? {
            ANY => Err(format!(
                "--protocol {text}: the number is reserved, so no packet has it; write tcp, udp, \
                 icmp, icmpv6 or a number up to 254, or leave out --protocol for all"
            )),
            proto => Ok(proto),
        }
    }

    fn reason(&self, plane: Plane) -> Result<u8, String> {
        let Some(name) = &self.drop_reason else { return Ok(ANY) };
        let found = DropReason::ALL.iter().find(|reason| reason.name() == name);
        let found = found.ok_or_else(|| {
            format!("--drop-reason {name}: no such reason; `weir drops --all` lists them")
        })?;
        let is_unseen = match found {
            // Without its stage, a packet does not reach the one that records it.
            DropReason::PuntFull | DropReason::NicUnavailable | DropReason::StageMissing => true,
            // XDP programs find out before they record the packet.
            DropReason::TxQueueFull => plane == Plane::Dpdk,
            _ => false,
        };
        if is_unseen {
            return Err(format!(
                "--drop-reason {name}: no capture has packets of this reason, which is found \
                 after they are recorded or instead of it; see `weir drops`, and leave out \
                 --drop-reason"
            ));
        }
        Ok(*found as u8)
    }

    /// Returns the conditions as text.
    fn text(&self) -> String {
        let conditions = [
            ("client", &self.client),
            ("frontend", &self.frontend),
            ("service", &self.service),
            ("protocol", &self.protocol),
            ("drop_reason", &self.drop_reason),
            ("arm", &self.arm),
            ("direction", &self.direction),
            ("stage", &self.stage),
        ];
        let given = conditions.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let given: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
        if given.is_empty() { "all packets".to_owned() } else { given.join(" ") }
    }
}

/// Parses an end: `ADDRESS`, `ADDRESS:PORT` or `NETWORK/LENGTH`. Returns its addresses and its
/// port, 0 for any.
fn range(what: &str, text: Option<&str>) -> Result<(AddrRange, u16), String> {
    let Some(text) = text else { return Ok((AddrRange::default(), 0)) };
    let Some((addr, len)) = text.split_once('/') else {
        let end = End::read(what, text)?;
        return Ok((AddrRange::new(end.addr, 128), end.port.unwrap_or(0)));
    };
    let network = addr.parse::<std::net::IpAddr>().ok().zip(len.parse::<u8>().ok());
    let network = network.filter(|(addr, len)| *len <= if addr.is_ipv4() { 32 } else { 128 });
    let (addr, len) = network.ok_or_else(|| {
        format!("--{what} {text}: invalid network; write ADDRESS/LENGTH, such as 192.0.2.0/24")
    })?;
    let len = if addr.is_ipv4() { 96 + len } else { len };
    Ok((AddrRange::new(addr.into(), len), 0))
}

/// Returns the number of a name; [`ANY`] without one.
fn choice(what: &str, text: Option<&str>, allowed: &[&str]) -> Result<u8, String> {
    let Some(text) = text else { return Ok(ANY) };
    let found = allowed.iter().position(|name| *name == text);
    let found = found.ok_or_else(|| format!("--{what} {text}: write {}", allowed.join(" or ")))?;
    Ok(found as u8)
}

fn within<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    min: T,
    max: T,
) -> Result<T, String> {
    if value < min || value > max {
        return Err(format!("--{what} {value}: write a number from {min} to {max}"));
    }
    Ok(value)
}
