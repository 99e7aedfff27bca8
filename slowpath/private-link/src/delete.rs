//! Deletion of everything that was created for an object. The consumer side and the service side
//! are deleted independently of each other, each in its own order. Absent resources count as
//! deleted. Resources created by others stay, and so does the NAT subnet, which other objects may
//! use.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::connections::{self, Decision};
use crate::context::{State, busy};
use crate::dns;
use crate::endpoint;
use crate::errors::{Cause, OrStop, Outcome, Stop};
use crate::names;
use crate::object::{Aspect, ImmutableSpec, Reason, Step};
use crate::operations;
use crate::round::{Event, RoundState};
use crate::service::is_own;

/// Performs the next step of each side. Returns the delay until the next round, or `None` if
/// nothing is left to delete.
pub(crate) async fn delete_all(round: &mut RoundState<'_>) -> Option<Duration> {
    // This is stored before anything is created: without it, nothing was created.
    let immutable = round.status.immutable.clone()?;
    let message = "the object is being deleted, with the Azure resources created for it";
    round.set_condition(Aspect::Available, (false, Reason::Deleting), message);
    for aspect in [Aspect::Paused, Aspect::ConnectionsWaiting] {
        round.status.clear_condition(aspect);
    }
    let endpoint = match round.remaining_backoff(round.status.endpoint.backoff) {
        Some(pause) => Some(pause),
        None => {
            let ended = delete_consumer_side(round, &immutable).await;
            round.status.endpoint.backoff = round.backoff_after(&ended);
            delay_of(round, ended)
        }
    };
    let service = match round.remaining_backoff(round.status.service.backoff) {
        Some(pause) => Some(pause),
        None => {
            let ended = delete_service_side(round, &immutable).await;
            round.status.service.backoff = round.backoff_after(&ended);
            delay_of(round, ended)
        }
    };
    [endpoint, service].into_iter().flatten().min()
}

/// Reports the stop of a side, and returns its delay; `None` if the side is deleted.
fn delay_of(round: &mut RoundState<'_>, outcome: Outcome<()>) -> Option<Duration> {
    let stop = outcome.break_value()?;
    round.record_stop(&stop);
    Some(stop.after)
}

/// Removes the DNS names first, then the endpoint to which they point.
async fn delete_consumer_side(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
) -> Outcome<()> {
    let Some(desired) = &immutable.endpoint else { return Continue(()) };
    let client = round.context.endpoint_client();
    dns::poll_operation(round).await?;
    let zones: Vec<String> = round.status.endpoint.zones.keys().cloned().collect();
    for zone in zones {
        dns::remove(round, &zone).await?;
    }
    round.status.clear_condition(Aspect::Names);
    let existing =
        client.get(&operations::ENDPOINTS_GET.at(&desired.id)).await.or_stop(endpoint::error)?;
    let Some(existing) = existing else { return clear_endpoint(round) };
    if !names::belongs_to_object(
        &existing.body["tags"],
        &round.context.settings.fleet,
        &round.object.name,
    ) {
        note_foreign(round, desired.id.as_str());
        return clear_endpoint(round);
    }
    if State::of(&existing.body) == State::Busy {
        return Break(busy(Aspect::Endpoint, "the private endpoint", &existing.body));
    }
    let outcome = client
        .delete(&operations::ENDPOINTS_DELETE.at(&desired.id))
        .await
        .or_stop(endpoint::error)?;
    client.track(&mut round.status.endpoint.running, Step::DeleteEndpoint, outcome)?;
    clear_endpoint(round)
}

fn clear_endpoint(round: &mut RoundState<'_>) -> Outcome<()> {
    round.status.endpoint.id = None;
    round.status.endpoint.address = None;
    round.status.clear_condition(Aspect::Endpoint);
    Continue(())
}

/// Rejects the connections before it deletes the service: Azure does not delete a service
/// in use.
async fn delete_service_side(round: &mut RoundState<'_>, immutable: &ImmutableSpec) -> Outcome<()> {
    let client = round.context.service_client();
    client.poll_running(&mut round.status.service.running).await?;
    let failed = |failed| Stop::failed(Aspect::Service, Reason::AzureError, &failed);
    let existing =
        client.get(&operations::LINK_SERVICES_GET.at(&immutable.service)).await.or_stop(failed)?;
    let Some(existing) = existing else { return clear_service(round) };
    if !is_own(round, &existing.body) {
        note_foreign(round, immutable.service.as_str());
        return clear_service(round);
    }
    if State::of(&existing.body) == State::Busy {
        return Break(busy(Aspect::Service, "the private link service", &existing.body));
    }
    let mut rejected = 0;
    for connection in connections::list(&client, &immutable.service).await.or_stop(failed)? {
        let parsed = connections::parse(&connection);
        if parsed.is_some_and(|parsed| matches!(parsed.state.as_str(), "Approved" | "Pending")) {
            let (decision, why) = (Decision::Rejected, "Weir: the service is being deleted");
            let written = connections::write_decision(
                &client,
                &immutable.service,
                &connection,
                decision,
                why,
            )
            .await;
            written.or_stop(failed)?;
            rejected += 1;
        }
    }
    if rejected > 0 {
        let message = format!("{rejected} connections rejected; the service is deleted next");
        let stop = Stop::wait(Aspect::Service, Reason::Deleting, message);
        return Break(Stop { cause: Cause::Accepted, ..stop });
    }
    let outcome = client
        .delete(&operations::LINK_SERVICES_DELETE.at(&immutable.service))
        .await
        .or_stop(failed)?;
    client.track(&mut round.status.service.running, Step::DeleteService, outcome)?;
    clear_service(round)
}

fn clear_service(round: &mut RoundState<'_>) -> Outcome<()> {
    round.status.service.id = None;
    round.status.service.alias = None;
    round.status.service.connections.clear();
    round.status.clear_condition(Aspect::Service);
    Continue(())
}

/// Reports that a resource stays because Weir did not create it for this object.
fn note_foreign(round: &mut RoundState<'_>, id: &str) {
    let message = format!("{id} is not deleted: Weir did not create it for this object");
    round.events.push(Event::note("NotDeleted", message));
}
