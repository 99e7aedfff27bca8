//! Deletion of everything that was created for an object: consumer side and service side each in
//! its order, independently of each other. Absent resources count as deleted; resources created by
//! others stay.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::ask;
use crate::connections::{self, Verdict};
use crate::course::{Course, Event};
use crate::dns;
use crate::endpoint;
use crate::errors::{Cause, OrStop, Outcome, Stop};
use crate::names;
use crate::object::{Aspect, Fixed, Reason, Step};
use crate::service::is_ours;
use crate::turn::{State, busy};

/// Performs the next step. Returns when to continue, or `None` if nothing is left.
pub(crate) async fn take_back(course: &mut Course<'_>) -> Option<Duration> {
    // Nothing was created before the location was stored.
    let fixed = course.status.fixed.clone()?;
    let message = "the object is deleted; what was made for it is taken back";
    course.tell(Aspect::Available, (false, Reason::Deleting), message);
    for aspect in [Aspect::Paused, Aspect::ConnectionsWaiting] {
        course.status.untell(aspect);
    }
    let endpoint = match course.held_off(course.status.endpoint.held_off) {
        Some(pause) => Some(pause),
        None => {
            let ended = consumers(course, &fixed).await;
            course.status.endpoint.held_off = course.hold_off(&ended);
            pause_of(course, ended)
        }
    };
    let service = match course.held_off(course.status.service.held_off) {
        Some(pause) => Some(pause),
        None => {
            let ended = service(course, &fixed).await;
            course.status.service.held_off = course.hold_off(&ended);
            pause_of(course, ended)
        }
    };
    [endpoint, service].into_iter().flatten().min()
}

fn pause_of(course: &mut Course<'_>, side: Outcome<()>) -> Option<Duration> {
    let stop = side.break_value()?;
    course.stopped(&stop);
    Some(stop.after)
}

/// Removes the DNS names first, then the endpoint to which they point.
async fn consumers(course: &mut Course<'_>, fixed: &Fixed) -> Outcome<()> {
    let Some(wanted) = &fixed.endpoint else { return Continue(()) };
    let side = course.turn.endpoint();
    dns::settle(course).await?;
    let zones: Vec<String> = course.status.endpoint.zones.keys().cloned().collect();
    for zone in zones {
        dns::remove(course, &zone).await?;
    }
    course.status.untell(Aspect::Names);
    let there = side.get(&ask::ENDPOINTS_GET.at(&wanted.id)).await.or_stop(endpoint::error)?;
    let Some(there) = there else { return without_endpoint(course) };
    if !names::made_for(&there.body["tags"], &course.turn.settings.fleet, &course.object.name) {
        left_alone(course, wanted.id.as_str());
        return without_endpoint(course);
    }
    if State::of(&there.body) == State::Busy {
        return Break(busy(Aspect::Endpoint, "the private endpoint", &there.body));
    }
    let begun =
        side.delete(&ask::ENDPOINTS_DELETE.at(&wanted.id)).await.or_stop(endpoint::error)?;
    side.begun(&mut course.status.endpoint.running, Step::DeleteEndpoint, begun)?;
    without_endpoint(course)
}

fn without_endpoint(course: &mut Course<'_>) -> Outcome<()> {
    course.status.endpoint.id = None;
    course.status.endpoint.address = None;
    course.status.untell(Aspect::Endpoint);
    Continue(())
}

/// Rejects the connections before it deletes the service: Azure does not delete one in use.
async fn service(course: &mut Course<'_>, fixed: &Fixed) -> Outcome<()> {
    let side = course.turn.service();
    side.settle(&mut course.status.service.running).await?;
    let failed = |setback| Stop::failed(Aspect::Service, Reason::AzureError, &setback);
    let there = side.get(&ask::LINK_SERVICES_GET.at(&fixed.service)).await.or_stop(failed)?;
    let Some(there) = there else { return without_service(course) };
    if !is_ours(course, &there.body) {
        left_alone(course, fixed.service.as_str());
        return without_service(course);
    }
    if State::of(&there.body) == State::Busy {
        return Break(busy(Aspect::Service, "the private link service", &there.body));
    }
    let mut rejected = 0;
    for connection in connections::all(&side, &fixed.service).await.or_stop(failed)? {
        let known = connections::read(&connection);
        if known.is_some_and(|known| matches!(known.state.as_str(), "Approved" | "Pending")) {
            let (verdict, why) = (Verdict::Rejected, "Weir: the service is being deleted");
            let judged = connections::judge(&side, &fixed.service, &connection, verdict, why).await;
            judged.or_stop(failed)?;
            rejected += 1;
        }
    }
    if rejected > 0 {
        let message = format!("{rejected} connections are rejected; the service goes after them");
        let stop = Stop::wait(Aspect::Service, Reason::Deleting, message);
        return Break(Stop { cause: Cause::Taken, ..stop });
    }
    let begun = side.delete(&ask::LINK_SERVICES_DELETE.at(&fixed.service)).await.or_stop(failed)?;
    side.begun(&mut course.status.service.running, Step::DeleteService, begun)?;
    without_service(course)
}

fn without_service(course: &mut Course<'_>) -> Outcome<()> {
    course.status.service.id = None;
    course.status.service.alias = None;
    course.status.service.connections.clear();
    course.status.untell(Aspect::Service);
    Continue(())
}

fn left_alone(course: &mut Course<'_>, id: &str) {
    let message = format!("{id} stays: Weir did not make it for this object");
    course.events.push(Event::note("LeftAlone", message));
}
