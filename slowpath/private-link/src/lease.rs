//! Election of one owner among several appliances: by a configured name, or by a lease at Azure.
//!
//! The lease is a TXT record in a private DNS zone that the operator names, because a record is the
//! cheapest Azure resource that is written synchronously and has an ETag. It contains the holder
//! and a renewal counter. Clocks are not compared: an appliance that sees the same record for a
//! whole period takes it over with `If-Match`, so that only one of several succeeds. All appliances
//! must be configured with the same period.
//!
//! Two appliances that both consider themselves owner do no harm: both write the same state, and an
//! outdated write fails by its ETag. The lease avoids needless conflicts.

use std::time::Duration;

use azure::arm::{Arm, Resource};
use azure::id::ResourceId;
use clouds::failure::{Failure, Setback};
use clouds::retry::Pause;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::ask;
use crate::time::Time;
use crate::turn::{Side, Standing};

/// Maximum time limit of a call, for long periods.
const BOUND: Duration = Duration::from_secs(15);
/// Name of the record in its zone.
const RECORD: &str = "_weir-lease";

/// How the owner of the objects is determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The appliance of this name; all appliances are configured with the same one.
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
    me: String,
    record: ResourceId,
    period: Duration,
    /// Content of the record, and since when it has not changed.
    seen: Option<(Content, Duration)>,
    /// When this appliance last wrote the record, while it holds the lease.
    held: Option<Duration>,
    trouble: Option<String>,
}

/// Content of the record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Content {
    holder: String,
    times: u64,
}

impl Lease {
    /// Returns the view of the appliance `me`, whose name must be unique in the fleet.
    pub fn new(me: &str, zone: &ResourceId, period: Duration) -> Lease {
        let record = zone.child("TXT", RECORD);
        Lease { me: me.to_owned(), record, period, seen: None, held: None, trouble: None }
    }

    /// Returns the interval at which the owner renews the lease and others read it: a third of the
    /// period.
    pub fn renew(&self) -> Duration {
        self.period / 3
    }

    /// Returns whether this appliance may write at `now`. The owner gives up a lease that it could
    /// not renew, before another appliance can take it over.
    pub fn standing(&self, now: Duration) -> Standing {
        if self.held.is_some_and(|at| now.saturating_sub(at) < self.period - self.renew()) {
            return Standing::Owner;
        }
        let holder = self.seen.as_ref().map(|(content, _)| content.holder.as_str());
        let owner = match (&self.trouble, holder) {
            (Some(trouble), _) => format!("an appliance that can't be told ({trouble})"),
            (None, Some(holder)) if !holder.is_empty() && holder != self.me => holder.to_owned(),
            (None, _) => "an appliance that is still to be chosen".to_owned(),
        };
        Standing::Observer { owner, heir: true }
    }

    /// Reads the lease, and takes it over or renews it if this appliance may.
    pub async fn step(&mut self, arm: &dyn Arm, pause: &dyn Pause) {
        let bound = BOUND.min(self.renew() / 2);
        let side = Side { arm, pause, bound, now: Time::default() };
        // The answer is at least as recent as this.
        let asked = pause.now();
        let trouble = self.try_step(&side, asked).await.err().map(|setback| {
            let absent = setback.error.kind == Failure::Absent;
            let zone = self.record.named("privateDnsZones").unwrap_or_default();
            match absent {
                true => format!(
                    "the zone of the lease is not there: az network private-dns zone create \
                     --subscription {} --resource-group {} --name {zone}",
                    self.record.subscription(),
                    self.record.group()
                ),
                false => setback.error.to_string(),
            }
        });
        if trouble != self.trouble
            && let Some(trouble) = &trouble
        {
            tracing::warn!("private link: the lease: {trouble}");
        }
        self.trouble = trouble;
    }

    async fn try_step(&mut self, side: &Side<'_>, asked: Duration) -> Result<(), Setback> {
        let ask = ask::TEXTS_GET.at(&self.record);
        let there = side.get(&ask).await?;
        let content = there.as_ref().map(read).unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == content => *since,
            _ => asked,
        };
        self.seen = Some((content.clone(), since));
        let old = asked.saturating_sub(since) >= self.period;
        if content.holder != self.me {
            self.held = None;
        }
        // A new record belongs to no appliance until it is a period old, because another may be
        // writing it too.
        if content.holder != self.me && !old {
            if there.is_none() {
                side.put(&ask::TEXTS_PUT.at(&self.record), &write(&content), None).await?;
            }
            return Ok(());
        }
        let wanted = Content { holder: self.me.clone(), times: content.times + 1 };
        let etag = there.as_ref().and_then(|there| there.etag.as_deref());
        let put = ask::TEXTS_PUT.at(&self.record);
        match side.put(&put, &write(&wanted), etag).await {
            Ok(_) => {
                self.seen = Some((wanted, asked));
                self.held = Some(asked);
                Ok(())
            }
            // Another appliance was faster.
            Err(setback) if setback.error.kind == Failure::Conflict => Ok(()),
            Err(setback) => Err(setback),
        }
    }
}

fn read(there: &Resource) -> Content {
    let texts = there.body["properties"]["txtRecords"][0]["value"].as_array();
    let texts = texts.into_iter().flatten().filter_map(Value::as_str);
    let mut content = Content::default();
    for text in texts {
        match text.split_once('=') {
            Some(("holder", holder)) => content.holder = holder.to_owned(),
            Some(("times", times)) => content.times = times.parse().unwrap_or_default(),
            _ => {}
        }
    }
    content
}

fn write(content: &Content) -> Value {
    let texts = [format!("holder={}", content.holder), format!("times={}", content.times)];
    json!({ "properties": { "ttl": 60, "txtRecords": [{ "value": texts }] } })
}

/// Keeps the lease and publishes the standing, until there is no receiver.
pub async fn keep(
    mut lease: Lease,
    arm: &dyn Arm,
    pause: &dyn Pause,
    told: &watch::Sender<Standing>,
) {
    loop {
        lease.step(arm, pause).await;
        let standing = lease.standing(pause.now());
        told.send_if_modified(|before| {
            let news = *before != standing;
            *before = standing;
            news
        });
        tokio::select! {
            () = pause.wait(lease.renew()) => {}
            () = told.closed() => return,
        }
    }
}
