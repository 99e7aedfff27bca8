//! DNS names that point to the endpoint: private zones, records, and links to the network.
//!
//! A zone may contain records of other objects, people and programs. A zone is therefore created
//! with the fleet's tag only, is not changed if it exists, and is deleted with the last record in
//! it. Records and links have the object's own tags.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::{Ask, Begun};
use azure::id::ResourceId;
use clouds::failure::Setback;
use serde_json::{Value, json};

use crate::ask;
use crate::course::{Course, DRIFT, Event};
use crate::errors::{OrStop, Outcome, Stop, overlaps};
use crate::names;
use crate::object::{Aspect, Fixed, FixedEndpoint, Reason, Step, Zone, ZoneStatus};
use crate::turn::{State, busy};

/// Time to live of the records, in seconds.
const TTL: u32 = 300;
/// Interval at which a network linked to another zone of the same name is checked again.
const ELSEWHERE: Duration = Duration::from_secs(60 * 60);

fn error(setback: Setback) -> Stop {
    Stop::failed(Aspect::Names, Reason::AzureError, &setback)
}

/// Records in the status which records and links are about to be created. Returns true if there are
/// new ones.
pub(crate) fn note(course: &mut Course<'_>, fixed: &Fixed) -> bool {
    let (Some(endpoint), Some(spec)) = (&fixed.endpoint, &course.object.spec.endpoint) else {
        return false;
    };
    let (subscription, group) = (endpoint.id.subscription(), endpoint.id.group());
    let mut news = false;
    for zone in &spec.zones {
        let id = ResourceId::network(subscription, group, "privateDnsZones", &zone.name);
        let link = id.child("virtualNetworkLinks", &names::link(&course.object.name, zone));
        let noted =
            course.status.endpoint.zones.entry(zone.name.to_ascii_lowercase()).or_insert(
                ZoneStatus { id, links: Vec::new(), records: Vec::new(), elsewhere: None },
            );
        for record in &zone.records {
            if !noted.records.contains(record) {
                noted.records.push(record.clone());
                news = true;
            }
        }
        if !noted.links.contains(&link) {
            noted.links.push(link);
            news = true;
        }
    }
    news
}

/// Performs the next step. Returns when to check again if nothing is left to do.
pub(crate) async fn keep(
    course: &mut Course<'_>,
    endpoint: &FixedEndpoint,
    address: Ipv4Addr,
) -> Outcome<Duration> {
    let spec = course.object.spec.endpoint.as_ref();
    let zones: Vec<Zone> = spec.map(|spec| spec.zones.clone()).unwrap_or_default();
    forget(course, &zones).await?;
    for zone in &zones {
        let Some(noted) = course.status.endpoint.zones.get(&zone.name.to_ascii_lowercase()) else {
            continue;
        };
        let id = noted.id.clone();
        made(course, &id).await?;
        for record in &zone.records {
            lead(course, &id, record, address).await?;
        }
        let link = id.child("virtualNetworkLinks", &names::link(&course.object.name, zone));
        linked(course, &id, &link, &endpoint.network).await?;
    }
    if !zones.is_empty() {
        let message = format!("{} zones lead to {address}", zones.len());
        course.tell(Aspect::Names, (true, Reason::AzureSuccess), &message);
    }
    Continue(DRIFT)
}

/// Creates the zone if it does not exist.
async fn made(course: &mut Course<'_>, id: &ResourceId) -> Outcome<()> {
    let side = course.turn.endpoint();
    match side.get(&ask::ZONES_GET.at(id)).await.or_stop(error)? {
        Some(there) if State::of(&there.body) == State::Busy => {
            return Break(busy(Aspect::Names, id.name(), &there.body));
        }
        Some(_) => return Continue(()),
        None => {}
    }
    let tags = names::shared_tags(&course.turn.settings.fleet, &course.object.spec);
    let body = json!({ "location": "global", "tags": tags, "properties": {} });
    let begun = side.put(&ask::ZONES_PUT.at(id), &body, None).await.or_stop(error)?;
    course.events.push(Event::note("ZoneCreated", format!("{} is being made", id.name())));
    side.begun(&mut course.status.endpoint.running, Step::WriteZone, begun)
}

/// Points a name to the address, as its only one.
async fn lead(
    course: &mut Course<'_>,
    zone: &ResourceId,
    record: &str,
    address: Ipv4Addr,
) -> Outcome<()> {
    let side = course.turn.endpoint();
    let id = zone.child("A", record);
    let there = side.get(&ask::RECORDS_GET.at(&id)).await.or_stop(error)?;
    let etag = there.as_ref().and_then(|there| there.etag.clone());
    let there = there.map_or(Value::Null, |there| there.body["properties"].clone());
    let list = there["aRecords"].as_array().map(Vec::as_slice).unwrap_or_default();
    let leads = list.len() == 1 && list[0]["ipv4Address"] == json!(address);
    let ours = is_ours(course, &there["metadata"]);
    if leads && (!ours || there["ttl"] == json!(TTL)) {
        return Continue(());
    }
    if !there.is_null() && !ours {
        let message = format!(
            "{record} of {} leads elsewhere, and Weir did not write it; delete that record, or \
             leave it out of the object",
            zone.name()
        );
        return Break(Stop::mend(Aspect::Names, Reason::NotOurs, message));
    }
    let tags = names::tags(&course.turn.settings.fleet, &course.object.name, &course.object.spec);
    let list = json!([{ "ipv4Address": address }]);
    let properties = json!({ "ttl": TTL, "metadata": tags, "aRecords": list });
    let body = json!({ "properties": properties });
    side.put(&ask::RECORDS_PUT.at(&id), &body, etag.as_deref()).await.or_stop(error)?;
    Continue(())
}

fn is_ours(course: &Course<'_>, tags: &Value) -> bool {
    names::made_for(tags, &course.turn.settings.fleet, &course.object.name)
}

/// Links the zone to the network unless any link does so already, since Azure allows only one.
async fn linked(
    course: &mut Course<'_>,
    zone: &ResourceId,
    link: &ResourceId,
    network: &ResourceId,
) -> Outcome<()> {
    let side = course.turn.endpoint();
    let links = ask::ZONE_LINKS_LIST.at(format!("{zone}/virtualNetworkLinks"));
    let links = side.list(&links).await.or_stop(error)?;
    let leads = |there: &Value| {
        let to = there["properties"]["virtualNetwork"]["id"].as_str().unwrap_or_default();
        ResourceId::parse(to).is_ok_and(|to| to == *network)
    };
    if let Some(there) = links.iter().find(|there| leads(there)) {
        return match State::of(there) {
            State::Busy => Break(busy(Aspect::Names, link.name(), there)),
            _ => Continue(()),
        };
    }
    let named = |there: &&Value| {
        there["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(link.name()))
    };
    if links.iter().find(named).is_some_and(|there| !is_ours(course, &there["tags"])) {
        let message = format!("{link} links another network, and Weir did not make it; delete it");
        return Break(Stop::mend(Aspect::Names, Reason::NotOurs, message));
    }
    if known_elsewhere(course, zone) {
        return Continue(());
    }
    let tags = names::tags(&course.turn.settings.fleet, &course.object.name, &course.object.spec);
    let properties = json!({ "virtualNetwork": { "id": network }, "registrationEnabled": false });
    let body = json!({ "location": "global", "tags": tags, "properties": properties });
    match side.put(&ask::ZONE_LINKS_PUT.at(link), &body, None).await {
        Ok(begun) => side.begun(&mut course.status.endpoint.running, Step::WriteZone, begun),
        Err(setback) if overlaps(&setback) => {
            elsewhere(course, zone.name());
            Continue(())
        }
        Err(setback) => Break(error(setback)),
    }
}

/// Polls the long operation of this side. Azure may detect only during the link operation that the
/// network is linked to another zone of that name.
pub(crate) async fn settle(course: &mut Course<'_>) -> Outcome<()> {
    let about = course.status.endpoint.running.as_ref();
    let about = about.and_then(|running| ResourceId::parse(&running.handle.resource).ok());
    let side = course.turn.endpoint();
    match side.settle(&mut course.status.endpoint.running).await {
        Break(stop) if stop.reason == Reason::LinkedElsewhere => {
            let zone = about.as_ref().and_then(|id| id.named("privateDnsZones"));
            zone.into_iter().for_each(|zone| elsewhere(course, zone));
            Continue(())
        }
        settled => settled,
    }
}

/// Notes that the network is linked to another zone of that name, which is taken as intended.
fn elsewhere(course: &mut Course<'_>, zone: &str) {
    let message = format!("the network knows another zone {zone} already, which stays");
    course.events.push(Event::note("ZoneLinkedElsewhere", message));
    if let Some(noted) = course.status.endpoint.zones.get_mut(&zone.to_ascii_lowercase()) {
        noted.elsewhere = Some(course.turn.now);
    }
}

fn known_elsewhere(course: &Course<'_>, zone: &ResourceId) -> bool {
    let noted = course.status.endpoint.zones.get(&zone.name().to_ascii_lowercase());
    let since = noted.and_then(|noted| noted.elsewhere);
    since.is_some_and(|since| course.turn.now < since.after(ELSEWHERE))
}

/// Removes zones, records and links that are no longer desired.
async fn forget(course: &mut Course<'_>, wanted: &[Zone]) -> Outcome<()> {
    for (name, noted) in course.status.endpoint.zones.clone() {
        let Some(zone) = wanted.iter().find(|zone| zone.name.eq_ignore_ascii_case(&name)) else {
            remove(course, &name).await?;
            continue;
        };
        for record in noted.records.iter().filter(|record| !zone.records.contains(record)) {
            unlead(course, &noted.id, record).await?;
            if let Some(noted) = course.status.endpoint.zones.get_mut(&name) {
                noted.records.retain(|there| there != record);
            }
        }
        let keep = noted.id.child("virtualNetworkLinks", &names::link(&course.object.name, zone));
        for link in noted.links.iter().filter(|link| **link != keep) {
            unlink(course, link).await?;
            if let Some(noted) = course.status.endpoint.zones.get_mut(&name) {
                noted.links.retain(|there| there != link);
            }
        }
    }
    Continue(())
}

/// Removes the object's records and links from a zone, and the zone itself if it is then empty.
pub(crate) async fn remove(course: &mut Course<'_>, name: &str) -> Outcome<()> {
    let Some(noted) = course.status.endpoint.zones.get(name).cloned() else { return Continue(()) };
    for record in &noted.records {
        unlead(course, &noted.id, record).await?;
    }
    for link in &noted.links {
        unlink(course, link).await?;
    }
    if is_last(course, &noted.id).await? {
        delete(course, ask::ZONES_DELETE.at(&noted.id)).await?;
    }
    course.status.endpoint.zones.remove(name);
    Continue(())
}

/// Removes the object's record of a name.
async fn unlead(course: &mut Course<'_>, zone: &ResourceId, record: &str) -> Outcome<()> {
    let side = course.turn.endpoint();
    let id = zone.child("A", record);
    let there = side.get(&ask::RECORDS_GET.at(&id)).await.or_stop(error)?;
    if there.is_some_and(|there| is_ours(course, &there.body["properties"]["metadata"])) {
        side.delete(&ask::RECORDS_DELETE.at(&id)).await.or_stop(error)?;
    }
    Continue(())
}

async fn unlink(course: &mut Course<'_>, link: &ResourceId) -> Outcome<()> {
    let there = course.turn.endpoint().get(&ask::ZONE_LINKS_GET.at(link)).await.or_stop(error)?;
    match there {
        Some(there) if is_ours(course, &there.body["tags"]) => {
            delete(course, ask::ZONE_LINKS_DELETE.at(link)).await
        }
        _ => Continue(()),
    }
}

/// Returns true if the fleet created the zone and it is empty, except for the SOA record that Azure
/// creates.
async fn is_last(course: &mut Course<'_>, zone: &ResourceId) -> Outcome<bool> {
    let side = course.turn.endpoint();
    let Some(there) = side.get(&ask::ZONES_GET.at(zone)).await.or_stop(error)? else {
        return Continue(false);
    };
    if !names::made_by(&there.body["tags"], &course.turn.settings.fleet) {
        return Continue(false);
    }
    let records = side.list(&ask::RECORDS_LIST.at(format!("{zone}/ALL"))).await.or_stop(error)?;
    let others = |record: &Value| {
        let kind = record["type"].as_str().unwrap_or_default();
        !kind.to_ascii_uppercase().ends_with("/SOA")
    };
    let links = side
        .list(&ask::ZONE_LINKS_LIST.at(format!("{zone}/virtualNetworkLinks")))
        .await
        .or_stop(error)?;
    Continue(links.is_empty() && !records.iter().any(others))
}

/// Deletes a zone or a link, and stores the handle of the operation.
async fn delete(course: &mut Course<'_>, ask: Ask) -> Outcome<()> {
    let side = course.turn.endpoint();
    let begun: Begun = side.delete(&ask).await.or_stop(error)?;
    side.begun(&mut course.status.endpoint.running, Step::WriteZone, begun)
}
