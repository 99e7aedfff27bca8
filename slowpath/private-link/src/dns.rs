//! DNS names that point to the endpoint: private zones, records, and links to the network.
//!
//! A zone may contain records of other objects, people and programs. A zone is therefore created
//! without the object's tag and is not changed if it exists. It is deleted if the fleet created it
//! and it has no links and no records left. Records and links have the object's own tags.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::{ArmRequest, WriteOutcome};
use azure::id::ResourceId;
use clouds::failure::AttemptError;
use serde_json::{Value, json};

use crate::context::{State, busy};
use crate::errors::{OrStop, Outcome, Stop, is_link_conflict};
use crate::names;
use crate::object::{Aspect, ImmutableEndpoint, ImmutableSpec, Reason, Step, Zone, ZoneStatus};
use crate::operations;
use crate::round::{DRIFT_INTERVAL, Event, RoundState};

/// Time to live of the records, in seconds.
const TTL: u32 = 300;
/// Interval at which a network linked to another zone of the same name is checked again.
const ELSEWHERE_RECHECK: Duration = Duration::from_secs(60 * 60);

fn error(failed: AttemptError) -> Stop {
    Stop::failed(Aspect::Names, Reason::AzureError, &failed)
}

/// Adds the records and links that are about to be created to the status. Returns true if any of
/// them is new.
pub(crate) fn record_intent(round: &mut RoundState<'_>, immutable: &ImmutableSpec) -> bool {
    let (Some(endpoint), Some(spec)) = (&immutable.endpoint, &round.object.spec.endpoint) else {
        return false;
    };
    let (subscription, group) = (endpoint.id.subscription(), endpoint.id.group());
    let mut changed = false;
    for zone in &spec.zones {
        let id = ResourceId::network(subscription, group, "privateDnsZones", &zone.name);
        let link = id.child("virtualNetworkLinks", &names::link(&round.object.name, zone));
        let zone_status =
            round.status.endpoint.zones.entry(zone.name.to_ascii_lowercase()).or_insert(
                ZoneStatus { id, links: Vec::new(), records: Vec::new(), elsewhere: None },
            );
        for record in &zone.records {
            if !zone_status.records.contains(record) {
                zone_status.records.push(record.clone());
                changed = true;
            }
        }
        if !zone_status.links.contains(&link) {
            zone_status.links.push(link);
            changed = true;
        }
    }
    changed
}

/// Performs the next step. Returns the delay until the next check if nothing is left to do.
pub(crate) async fn reconcile(
    round: &mut RoundState<'_>,
    endpoint: &ImmutableEndpoint,
    address: Ipv4Addr,
) -> Outcome<Duration> {
    let spec = round.object.spec.endpoint.as_ref();
    let zones: Vec<Zone> = spec.map(|spec| spec.zones.clone()).unwrap_or_default();
    remove_undesired(round, &zones).await?;
    for zone in &zones {
        let Some(zone_status) = round.status.endpoint.zones.get(&zone.name.to_ascii_lowercase())
        else {
            continue;
        };
        let id = zone_status.id.clone();
        ensure_zone(round, &id).await?;
        for record in &zone.records {
            ensure_record(round, &id, record, address).await?;
        }
        let link = id.child("virtualNetworkLinks", &names::link(&round.object.name, zone));
        ensure_link(round, &id, &link, &endpoint.network).await?;
    }
    if !zones.is_empty() {
        let message = format!("the records of {} zones point to {address}", zones.len());
        round.set_condition(Aspect::Names, (true, Reason::AzureSuccess), &message);
    }
    Continue(DRIFT_INTERVAL)
}

/// Creates the zone if it does not exist.
async fn ensure_zone(round: &mut RoundState<'_>, id: &ResourceId) -> Outcome<()> {
    let client = round.context.endpoint_client();
    match client.get(&operations::ZONES_GET.at(id)).await.or_stop(error)? {
        Some(existing) if State::of(&existing.body) == State::Busy => {
            return Break(busy(Aspect::Names, id.name(), &existing.body));
        }
        Some(_) => return Continue(()),
        None => {}
    }
    let tags = names::shared_tags(&round.context.settings.fleet, &round.object.spec);
    let body = json!({ "location": "global", "tags": tags, "properties": {} });
    let outcome = client.put(&operations::ZONES_PUT.at(id), &body, None).await.or_stop(error)?;
    round.events.push(Event::note("ZoneCreated", format!("{} is being created", id.name())));
    client.track(&mut round.status.endpoint.running, Step::WriteZone, outcome)
}

/// Ensures that a name has this address and no other. A record that Weir did not write for this
/// object is not changed: the round stops unless that record has exactly this address already.
async fn ensure_record(
    round: &mut RoundState<'_>,
    zone: &ResourceId,
    record: &str,
    address: Ipv4Addr,
) -> Outcome<()> {
    let client = round.context.endpoint_client();
    let id = zone.child("A", record);
    let existing = client.get(&operations::RECORDS_GET.at(&id)).await.or_stop(error)?;
    let etag = existing.as_ref().and_then(|existing| existing.etag.clone());
    let existing = existing.map_or(Value::Null, |existing| existing.body["properties"].clone());
    let list = existing["aRecords"].as_array().map(Vec::as_slice).unwrap_or_default();
    let points = list.len() == 1 && list[0]["ipv4Address"] == json!(address);
    let own = is_own(round, &existing["metadata"]);
    if points && (!own || existing["ttl"] == json!(TTL)) {
        return Continue(());
    }
    if !existing.is_null() && !own {
        let message = format!(
            "{record} in zone {} does not point to {address} alone and was not written by Weir; \
             delete that record, or remove it from the object",
            zone.name()
        );
        return Break(Stop::blocked(Aspect::Names, Reason::NotOurs, message));
    }
    let tags = names::tags(&round.context.settings.fleet, &round.object.name, &round.object.spec);
    let list = json!([{ "ipv4Address": address }]);
    let properties = json!({ "ttl": TTL, "metadata": tags, "aRecords": list });
    let body = json!({ "properties": properties });
    client.put(&operations::RECORDS_PUT.at(&id), &body, etag.as_deref()).await.or_stop(error)?;
    Continue(())
}

fn is_own(round: &RoundState<'_>, tags: &Value) -> bool {
    names::belongs_to_object(tags, &round.context.settings.fleet, &round.object.name)
}

/// Links the zone to the network. Does nothing if the zone has a link to the network already, of
/// which Azure allows only one, or if the network was found linked to another zone of that name
/// within [`ELSEWHERE_RECHECK`].
async fn ensure_link(
    round: &mut RoundState<'_>,
    zone: &ResourceId,
    link: &ResourceId,
    network: &ResourceId,
) -> Outcome<()> {
    let client = round.context.endpoint_client();
    let links = operations::ZONE_LINKS_LIST.at(format!("{zone}/virtualNetworkLinks"));
    let links = client.list(&links).await.or_stop(error)?;
    let points = |existing: &Value| {
        let to = existing["properties"]["virtualNetwork"]["id"].as_str().unwrap_or_default();
        ResourceId::parse(to).is_ok_and(|to| to == *network)
    };
    if let Some(existing) = links.iter().find(|existing| points(existing)) {
        return match State::of(existing) {
            State::Busy => Break(busy(Aspect::Names, link.name(), existing)),
            _ => Continue(()),
        };
    }
    let named = |existing: &&Value| {
        existing["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(link.name()))
    };
    if links.iter().find(named).is_some_and(|existing| !is_own(round, &existing["tags"])) {
        let message =
            format!("{link} links another network and was not created by Weir; delete it");
        return Break(Stop::blocked(Aspect::Names, Reason::NotOurs, message));
    }
    if is_linked_elsewhere(round, zone) {
        return Continue(());
    }
    let tags = names::tags(&round.context.settings.fleet, &round.object.name, &round.object.spec);
    let properties = json!({ "virtualNetwork": { "id": network }, "registrationEnabled": false });
    let body = json!({ "location": "global", "tags": tags, "properties": properties });
    match client.put(&operations::ZONE_LINKS_PUT.at(link), &body, None).await {
        Ok(outcome) => client.track(&mut round.status.endpoint.running, Step::WriteZone, outcome),
        Err(failed) if is_link_conflict(&failed) => {
            note_linked_elsewhere(round, zone.name());
            Continue(())
        }
        Err(failed) => Break(error(failed)),
    }
}

/// Polls the long operation of the consumer side. If the operation links a zone and Azure finds
/// that the network is linked to another zone of that name, this is noted and the round continues.
pub(crate) async fn poll_operation(round: &mut RoundState<'_>) -> Outcome<()> {
    let running = round.status.endpoint.running.as_ref();
    let resource = running.and_then(|running| ResourceId::parse(&running.handle.resource).ok());
    let client = round.context.endpoint_client();
    match client.poll_running(&mut round.status.endpoint.running).await {
        Break(stop) if stop.reason == Reason::LinkedElsewhere => {
            let zone = resource.as_ref().and_then(|id| id.named("privateDnsZones"));
            zone.into_iter().for_each(|zone| note_linked_elsewhere(round, zone));
            Continue(())
        }
        outcome => outcome,
    }
}

/// Notes that the network is linked to another zone of that name. That link is assumed to be
/// intended.
fn note_linked_elsewhere(round: &mut RoundState<'_>, zone: &str) {
    let message =
        format!("the network is already linked to another zone {zone}; that link is kept");
    round.events.push(Event::note("ZoneLinkedElsewhere", message));
    if let Some(zone_status) = round.status.endpoint.zones.get_mut(&zone.to_ascii_lowercase()) {
        zone_status.elsewhere = Some(round.context.now);
    }
}

/// Returns true if the network was found linked to another zone of that name within
/// [`ELSEWHERE_RECHECK`].
fn is_linked_elsewhere(round: &RoundState<'_>, zone: &ResourceId) -> bool {
    let zone_status = round.status.endpoint.zones.get(&zone.name().to_ascii_lowercase());
    let since = zone_status.and_then(|zone_status| zone_status.elsewhere);
    since.is_some_and(|since| round.context.now < since.after(ELSEWHERE_RECHECK))
}

/// Removes zones, records and links that are no longer desired.
async fn remove_undesired(round: &mut RoundState<'_>, desired: &[Zone]) -> Outcome<()> {
    for (name, zone_status) in round.status.endpoint.zones.clone() {
        let Some(zone) = desired.iter().find(|zone| zone.name.eq_ignore_ascii_case(&name)) else {
            remove(round, &name).await?;
            continue;
        };
        for record in zone_status.records.iter().filter(|record| !zone.records.contains(record)) {
            delete_record(round, &zone_status.id, record).await?;
            if let Some(zone_status) = round.status.endpoint.zones.get_mut(&name) {
                zone_status.records.retain(|existing| existing != record);
            }
        }
        let keep =
            zone_status.id.child("virtualNetworkLinks", &names::link(&round.object.name, zone));
        for link in zone_status.links.iter().filter(|link| **link != keep) {
            delete_link(round, link).await?;
            if let Some(zone_status) = round.status.endpoint.zones.get_mut(&name) {
                zone_status.links.retain(|existing| existing != link);
            }
        }
    }
    Continue(())
}

/// Removes the object's records and links from a zone, and the zone itself if the fleet
/// created it and it is then empty.
pub(crate) async fn remove(round: &mut RoundState<'_>, name: &str) -> Outcome<()> {
    let Some(zone_status) = round.status.endpoint.zones.get(name).cloned() else {
        return Continue(());
    };
    for record in &zone_status.records {
        delete_record(round, &zone_status.id, record).await?;
    }
    for link in &zone_status.links {
        delete_link(round, link).await?;
    }
    if is_removable(round, &zone_status.id).await? {
        delete(round, operations::ZONES_DELETE.at(&zone_status.id)).await?;
    }
    round.status.endpoint.zones.remove(name);
    Continue(())
}

/// Removes the record of a name if Weir wrote it for this object.
async fn delete_record(round: &mut RoundState<'_>, zone: &ResourceId, record: &str) -> Outcome<()> {
    let client = round.context.endpoint_client();
    let id = zone.child("A", record);
    let existing = client.get(&operations::RECORDS_GET.at(&id)).await.or_stop(error)?;
    if existing.is_some_and(|existing| is_own(round, &existing.body["properties"]["metadata"])) {
        client.delete(&operations::RECORDS_DELETE.at(&id)).await.or_stop(error)?;
    }
    Continue(())
}

/// Removes a link if Weir created it for this object.
async fn delete_link(round: &mut RoundState<'_>, link: &ResourceId) -> Outcome<()> {
    let existing = round
        .context
        .endpoint_client()
        .get(&operations::ZONE_LINKS_GET.at(link))
        .await
        .or_stop(error)?;
    match existing {
        Some(existing) if is_own(round, &existing.body["tags"]) => {
            delete(round, operations::ZONE_LINKS_DELETE.at(link)).await
        }
        _ => Continue(()),
    }
}

/// Returns true if the fleet created the zone and it has no links and no records, except for the
/// SOA record that Azure creates.
async fn is_removable(round: &mut RoundState<'_>, zone: &ResourceId) -> Outcome<bool> {
    let client = round.context.endpoint_client();
    let Some(existing) = client.get(&operations::ZONES_GET.at(zone)).await.or_stop(error)? else {
        return Continue(false);
    };
    if !names::belongs_to_fleet(&existing.body["tags"], &round.context.settings.fleet) {
        return Continue(false);
    }
    let records =
        client.list(&operations::RECORDS_LIST.at(format!("{zone}/ALL"))).await.or_stop(error)?;
    let others = |record: &Value| {
        let kind = record["type"].as_str().unwrap_or_default();
        !kind.to_ascii_uppercase().ends_with("/SOA")
    };
    let links = client
        .list(&operations::ZONE_LINKS_LIST.at(format!("{zone}/virtualNetworkLinks")))
        .await
        .or_stop(error)?;
    Continue(links.is_empty() && !records.iter().any(others))
}

/// Deletes a zone or a link, and stores the handle of the operation.
async fn delete(round: &mut RoundState<'_>, request: ArmRequest) -> Outcome<()> {
    let client = round.context.endpoint_client();
    let outcome: WriteOutcome = client.delete(&request).await.or_stop(error)?;
    client.track(&mut round.status.endpoint.running, Step::WriteZone, outcome)
}
