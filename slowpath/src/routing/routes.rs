//! BGP documents of the API (`/v1/bgp/...`) and of the control socket (`/bgp/...`).

use std::sync::Arc;
use std::time::Instant;

use announce::select;
use announce::told::{Asked, PeerRow, PolicyRow, RouteRow, Standing, Which};
use api::{Document, Nothing, Problem};
use bgp::peer::State;
use bgp::speaker::told::Told;
use serde_json::{Map, Value};

use super::Desk;
use crate::live::Live;

/// Returns the documents; none before BGP has started.
pub fn documents(live: &Arc<Live>) -> Vec<Document> {
    let Some(desk) = live.routers() else { return Vec::new() };
    let (standing, peers, details) = (desk.clone(), desk.clone(), desk.clone());
    let (available, advertised, policies) = (desk.clone(), desk.clone(), desk.clone());
    let live = Arc::clone(live);
    vec![
        Document::new(
            "bgp",
            "How BGP stands: which policy is carried out, how many sessions are up, what is wrong.",
            move |_: &Nothing| Ok(standing.standing(&live)),
        ),
        Document::new(
            "bgp/peers",
            "BGP neighbors, one row for each and each of its families.",
            move |_: &Nothing| -> Result<Vec<PeerRow>, Problem> {
                Ok(peers.announcer.lock().peer_rows(Instant::now()))
            },
        ),
        Document::new(
            "bgp/peers/detail",
            "All that is known of BGP neighbors (`peers`: what was agreed on, timers, what was \
             said last, messages, BFD), of listeners (`listeners`), and why no BFD runs where it \
             should (`bfd_trouble`).",
            move |_: &Nothing| details.details(),
        ),
        Document::new(
            "bgp/routes/available",
            "Routes that BGP neighbors shall have, whether their sessions are up or not.",
            move |asked: &Asked| available.routes(Which::Available, asked),
        ),
        Document::new(
            "bgp/routes/advertised",
            "Routes that BGP neighbors have from us.",
            move |asked: &Asked| advertised.routes(Which::Advertised, asked),
        ),
        Document::new(
            "bgp/policies",
            "What is said of which routes to which BGP neighbors, and what becomes of theirs.",
            move |_: &Nothing| -> Result<Vec<PolicyRow>, Problem> {
                Ok(policies.announcer.lock().policy_rows())
            },
        ),
    ]
}

impl Desk {
    fn standing(&self, live: &Live) -> Standing {
        let wanted = live.wanted();
        let policies = select::heard(&wanted.objects, &wanted.precedence).len();
        let counts = self.counts.lock().clone();
        self.announcer.lock().standing(Instant::now(), &counts, policies)
    }

    fn routes(&self, which: Which, asked: &Asked) -> Result<Vec<RouteRow>, Problem> {
        let routes = self.announcer.lock().routes(Instant::now(), which, asked);
        routes.map_err(|refused| match refused.is_absent() {
            true => Problem::absent(refused.to_string()),
            false => Problem::request(refused.to_string()),
        })
    }

    fn details(&self) -> Result<Map<String, Value>, Problem> {
        match serde_json::to_value(self.sockets.report(Instant::now())) {
            Ok(Value::Object(report)) => Ok(report),
            other => Err(Problem::broken(format!("no report of BGP: {other:?}"))),
        }
    }

    /// Returns the state of BGP in one line for `weir status`; empty if there are no neighbors and
    /// no errors.
    pub fn line(&self) -> String {
        let report = self.sockets.report(Instant::now());
        let is_up = |told: &&Told| told.peer.state == State::Established;
        let (up, all) = (report.peers.iter().filter(is_up).count(), report.peers.len());
        let error = self.counts.lock().error.clone();
        match (all, error.as_str()) {
            (0, error) => error.to_owned(),
            (all, "") => format!("{up} of {all} sessions established"),
            (all, error) => format!("{up} of {all} sessions established; {error}"),
        }
    }
}
