//! Election of one owner among several appliances: by a configured name, or by a lease at Azure.
//!
//! The lease is a TXT record in a private DNS zone that the operator names, because a record is the
//! cheapest Azure resource that is written synchronously and has an ETag. It contains the holder
//! and a renewal counter. Clocks are not compared: an appliance that sees the same record for a
//! whole period takes it over with `If-Match`, so that only one of several succeeds. All appliances
//! must be configured with the same period.
//!
//! Two appliances that both consider themselves owner do no harm: both write the same state, and an
//! update of a service, subnet or record that another appliance has changed since it was read fails
//! by its ETag. The lease avoids needless conflicts.

use std::time::Duration;

use azure::arm::{Arm, Resource};
use azure::id::ResourceId;
use clouds::failure::{AttemptError, Failure};
use clouds::retry::Pause;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::context::{Role, SideClient};
use crate::operations;
use crate::time::Time;

/// Time limit of a call; a sixth of the lease period if that is shorter.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Name of the record in its zone.
const RECORD: &str = "_weir-lease";

/// How the owner of the objects is determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The appliance of this name; all appliances are configured with the same name.
    Named(String),
    /// The holder of the lease.
    Lease {
        /// Private DNS zone of the lease; it has to exist.
        zone: ResourceId,
        /// Time without a renewal after which the lease may be taken over.
        period: Duration,
    },
}

/// One appliance's view of the lease.
#[derive(Clone, Debug)]
pub struct Lease {
    appliance: String,
    record: ResourceId,
    period: Duration,
    /// Content of the record as last read or written, and since when it has not changed, on the
    /// clock of [`Pause`].
    observed: Option<(Content, Duration)>,
    /// Start of the step in which this appliance last wrote the record as holder, on the same
    /// clock; `None` if another appliance holds the lease.
    renewed_at: Option<Duration>,
    error: Option<String>,
}

/// Content of the record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Content {
    holder: String,
    renewals: u64,
}

impl Lease {
    /// Returns the view of this appliance, whose name must be unique in the fleet.
    pub fn new(appliance: &str, zone: &ResourceId, period: Duration) -> Lease {
        let record = zone.child("TXT", RECORD);
        Lease {
            appliance: appliance.to_owned(),
            record,
            period,
            observed: None,
            renewed_at: None,
            error: None,
        }
    }

    /// Returns the interval at which the owner renews the lease and others read it: a third of the
    /// period.
    pub fn renewal_interval(&self) -> Duration {
        self.period / 3
    }

    /// Returns whether this appliance may write at `now`. The owner gives up a lease that it has
    /// not renewed for two thirds of the period, before another appliance can take it over.
    pub fn role(&self, now: Duration) -> Role {
        if self
            .renewed_at
            .is_some_and(|at| now.saturating_sub(at) < self.period - self.renewal_interval())
        {
            return Role::Owner;
        }
        let holder = self.observed.as_ref().map(|(content, _)| content.holder.as_str());
        let owner = match (&self.error, holder) {
            (Some(error), _) => format!("an unknown appliance ({error})"),
            (None, Some(holder)) if !holder.is_empty() && holder != self.appliance => {
                holder.to_owned()
            }
            (None, _) => "an appliance yet to be elected".to_owned(),
        };
        Role::Observer { owner, candidate: true }
    }

    /// Reads the lease, and takes it over or renews it if this appliance may.
    pub async fn step(&mut self, arm: &dyn Arm, pause: &dyn Pause) {
        let timeout = CALL_TIMEOUT.min(self.renewal_interval() / 2);
        let client = SideClient { arm, pause, timeout, now: Time::default() };
        // What the step reads is at least as recent as this time.
        let started = pause.now();
        let error = self.try_step(&client, started).await.err().map(|failed| {
            let absent = failed.error.kind == Failure::Absent;
            let zone = self.record.named("privateDnsZones").unwrap_or_default();
            match absent {
                true => format!(
                    "the lease's DNS zone does not exist; create it: \
                     az network private-dns zone create \
                     --subscription {} --resource-group {} --name {zone}",
                    self.record.subscription(),
                    self.record.group()
                ),
                false => failed.error.to_string(),
            }
        });
        if error != self.error
            && let Some(error) = &error
        {
            tracing::warn!(
                event = "private_link_lease_failed",
                %error,
                "private link lease not read or renewed"
            );
        }
        self.error = error;
    }

    /// Performs a step; `started` is the time before its first call.
    async fn try_step(
        &mut self,
        client: &SideClient<'_>,
        started: Duration,
    ) -> Result<(), AttemptError> {
        let request = operations::TEXTS_GET.at(&self.record);
        let resource = client.get(&request).await?;
        let content = resource.as_ref().map(parse_content).unwrap_or_default();
        let since = match &self.observed {
            Some((observed, since)) if *observed == content => *since,
            _ => started,
        };
        self.observed = Some((content.clone(), since));
        let old = started.saturating_sub(since) >= self.period;
        if content.holder != self.appliance {
            self.renewed_at = None;
        }
        // A new record is written without a holder, because another appliance may be writing it
        // too. It can be taken over when it is a period old.
        if content.holder != self.appliance && !old {
            if resource.is_none() {
                client
                    .put(&operations::TEXTS_PUT.at(&self.record), &record_body(&content), None)
                    .await?;
            }
            return Ok(());
        }
        // Wraps, because others only see whether the record changes.
        let renewals = content.renewals.wrapping_add(1);
        let desired = Content { holder: self.appliance.clone(), renewals };
        let etag = resource.as_ref().and_then(|resource| resource.etag.as_deref());
        let put = operations::TEXTS_PUT.at(&self.record);
        match client.put(&put, &record_body(&desired), etag).await {
            Ok(_) => {
                self.observed = Some((desired, started));
                self.renewed_at = Some(started);
                Ok(())
            }
            // Another appliance has written the record first.
            Err(failed) if failed.error.kind == Failure::Conflict => Ok(()),
            Err(failed) => Err(failed),
        }
    }
}

/// Parses the content of the record; without a holder if the record names none.
fn parse_content(resource: &Resource) -> Content {
    let texts = resource.body["properties"]["txtRecords"][0]["value"].as_array();
    let texts = texts.into_iter().flatten().filter_map(Value::as_str);
    let mut content = Content::default();
    for text in texts {
        match text.split_once('=') {
            Some(("holder", holder)) => content.holder = holder.to_owned(),
            Some(("times", renewals)) => content.renewals = renewals.parse().unwrap_or_default(),
            _ => {}
        }
    }
    content
}

/// Returns the body of a record with this content.
fn record_body(content: &Content) -> Value {
    let texts = [format!("holder={}", content.holder), format!("times={}", content.renewals)];
    json!({ "properties": { "ttl": 60, "txtRecords": [{ "value": texts }] } })
}

/// Reads the lease, and acquires or renews it if possible, once per renewal interval. Publishes
/// this appliance's role until there is no receiver.
pub async fn run(mut lease: Lease, arm: &dyn Arm, pause: &dyn Pause, sender: &watch::Sender<Role>) {
    loop {
        lease.step(arm, pause).await;
        let role = lease.role(pause.now());
        sender.send_if_modified(|before| {
            let changed = *before != role;
            *before = role;
            changed
        });
        tokio::select! {
            () = pause.wait(lease.renewal_interval()) => {}
            () = sender.closed() => return,
        }
    }
}
