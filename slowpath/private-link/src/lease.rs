//! One owner of several appliances: by name, or by a lease that lies at Azure.
//!
//! The lease is a TXT record in a private DNS zone that the operator names: the cheapest thing at
//! Azure that is written at once and has an ETag to compare. It says who holds it and how often
//! that one has renewed it. Nobody compares clocks: whoever sees the same record for a whole period
//! takes it over, with `If-Match`, so that one of many does. All have to be told the same period.
//!
//! Two that both think they are the owner do no harm: both write the same, and a write that was
//! overtaken fails by its ETag. The lease keeps them out of each other's way.

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

/// A call takes no longer, however long the period.
const BOUND: Duration = Duration::from_secs(15);
/// The record's name in its zone.
const RECORD: &str = "_weir-lease";

/// Who of several appliances looks after the objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// The one of this name; all are told the same.
    Named(String),
    /// Whoever holds the lease.
    Lease {
        /// The private DNS zone in which it lies. It has to be there.
        zone: ResourceId,
        /// For so long the same record means a living owner.
        period: Duration,
    },
}

/// One appliance's view of the lease.
#[derive(Clone, Debug)]
pub struct Lease {
    me: String,
    record: ResourceId,
    period: Duration,
    /// What the record was when it last changed, and since when it has been that.
    seen: Option<(Content, Duration)>,
    /// When the record was last written by us, as long as it is ours.
    held: Option<Duration>,
    trouble: Option<String>,
}

/// What the record says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Content {
    holder: String,
    times: u64,
}

impl Lease {
    /// Of an appliance by its name, which no other one of the fleet has.
    pub fn new(me: &str, zone: &ResourceId, period: Duration) -> Lease {
        let record = zone.child("TXT", RECORD);
        Lease { me: me.to_owned(), record, period, seen: None, held: None, trouble: None }
    }

    /// The owner renews so often, and others look so often.
    pub fn renew(&self) -> Duration {
        self.period / 3
    }

    /// Whether we may write, at `now`. A lease that could not be renewed in time is lost before
    /// another one takes it.
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

    /// Looks, and takes or renews it where it is ours to.
    pub async fn step(&mut self, arm: &dyn Arm, pause: &dyn Pause) {
        let bound = BOUND.min(self.renew() / 2);
        let side = Side { arm, pause, bound, now: Time::default() };
        // What is asked now can't be younger than this when it is answered.
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
        // One that was just made is not ours before it is old: somebody may be writing it as well.
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
            // Another one was faster.
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

/// Keeps the lease, and tells whoever listens how we stand, until nobody does.
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
