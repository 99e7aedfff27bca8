//! BGP documents of the API (`/v1/bgp/...`) and of the control socket (`/bgp/...`), and the line
//! about BGP in the status.

use std::sync::Arc;
use std::time::Instant;

use announce::select;
use announce::status::{BgpStatus, PeerRow, PolicyRow, RouteQuery, RouteRow, RouteView};
use api::{Document, NoQuery, Problem};
use bgp::peer::State;
use bgp::speaker::status::PeerSocketStatus;
use serde_json::{Map, Value};

use super::BgpState;
use crate::live::Live;

/// Returns the documents; none before BGP has started.
pub fn documents(live: &Arc<Live>) -> Vec<Document> {
    let Some(state) = live.bgp() else { return Vec::new() };
    let (status, peers, details) = (state.clone(), state.clone(), state.clone());
    let (available, advertised, policies) = (state.clone(), state.clone(), state.clone());
    let live = Arc::clone(live);
    vec![
        Document::new(
            "bgp",
            "BGP status: policy in force, number of established sessions, errors.",
            move |_: &NoQuery| Ok(status.status(&live)),
        ),
        Document::new(
            "bgp/peers",
            "BGP neighbors: one row per neighbor and address family.",
            move |_: &NoQuery| -> Result<Vec<PeerRow>, Problem> {
                Ok(peers.announcer.lock().peer_rows(Instant::now()))
            },
        ),
        Document::new(
            "bgp/peers/detail",
            "Details of BGP neighbors (`peers`: negotiated capabilities, timers, last \
             notifications, messages, BFD), of listeners (`listeners`), and why BFD does not run \
             although it is configured (`bfd_error`).",
            move |_: &NoQuery| details.details(),
        ),
        Document::new(
            "bgp/routes/available",
            "Routes to advertise to BGP neighbors, whether their sessions are up or not.",
            move |query: &RouteQuery| available.routes(RouteView::Available, query),
        ),
        Document::new(
            "bgp/routes/advertised",
            "Routes advertised to BGP neighbors.",
            move |query: &RouteQuery| advertised.routes(RouteView::Advertised, query),
        ),
        Document::new(
            "bgp/policies",
            "Route policies: which routes are advertised to which BGP neighbors, and how received \
             routes are handled.",
            move |_: &NoQuery| -> Result<Vec<PolicyRow>, Problem> {
                Ok(policies.announcer.lock().policy_rows())
            },
        ),
    ]
}

impl BgpState {
    fn status(&self, live: &Live) -> BgpStatus {
        let desired = live.desired();
        let policies = select::preferred_policies(&desired.objects, &desired.precedence).len();
        let counts = self.counts.lock().clone();
        self.announcer.lock().status(Instant::now(), &counts, policies)
    }

    fn routes(&self, view: RouteView, query: &RouteQuery) -> Result<Vec<RouteRow>, Problem> {
        let routes = self.announcer.lock().routes(Instant::now(), view, query);
        routes.map_err(|error| match error.is_absent() {
            true => Problem::not_found(error.to_string()),
            false => Problem::bad_request(error.to_string()),
        })
    }

    fn details(&self) -> Result<Map<String, Value>, Problem> {
        match serde_json::to_value(self.sockets.status(Instant::now())) {
            Ok(Value::Object(report)) => Ok(report),
            other => Err(Problem::internal(format!("BGP status is not an object: {other:?}"))),
        }
    }

    /// Returns the state of BGP in one line for `weir status`; empty if there are no neighbors and
    /// no errors.
    pub fn line(&self) -> String {
        let report = self.sockets.status(Instant::now());
        let is_up = |status: &&PeerSocketStatus| status.peer.state == State::Established;
        let (up, all) = (report.peers.iter().filter(is_up).count(), report.peers.len());
        let error = self.counts.lock().error.clone();
        match (all, error.as_str()) {
            (0, error) => error.to_owned(),
            (all, "") => format!("{up} of {all} sessions established"),
            (all, error) => format!("{up} of {all} sessions established; {error}"),
        }
    }
}
