//! What each page shows, from the data that slowpath returned.

mod appliance;
mod lcores;
mod services;
mod sessions;
mod traffic;

use super::data::Data;
use super::page::{Content, Kind, Page, View};

/// Returns the initial order of a page: the index of the column with packets or drops per second,
/// and `true` for the largest first. Returns `None` if the rows have no such rate.
pub fn first_order(kind: &Kind) -> Option<(usize, bool)> {
    let columns = match kind {
        Kind::View(View::Overview | View::Services) => services::SERVICES,
        Kind::View(View::Backends) => services::ALL_BACKENDS,
        Kind::Service(_) => services::BACKENDS,
        Kind::View(View::Drops) => traffic::DROPS,
        _ => return None,
    };
    let rate = columns.iter().position(|column| ["PKT/S", "DROP/S"].contains(&column.title));
    rate.map(|column| (column, true))
}

/// Returns the content of a page.
pub fn content(data: &Data, page: &Page) -> Content {
    let extra = data.extra(&page.query());
    let mut content = match &page.kind {
        Kind::View(View::Overview) => appliance::overview(data),
        Kind::View(View::Services) => services::all(data),
        Kind::View(View::Backends) => services::all_backends(data, extra),
        Kind::View(View::Flows) => traffic::flows(data, extra),
        Kind::View(View::Drops) => traffic::drops(data),
        Kind::View(View::Lcores) => lcores::all(data),
        Kind::View(View::Bgp) => sessions::bgp(extra),
        Kind::View(View::Cloud) => appliance::cloud(data, extra),
        Kind::Service(name) => services::one(data, name, extra),
        Kind::Backend { service, id, address } => {
            services::backend(data, service, (*id, address), extra)
        }
        Kind::Flow(flow) => traffic::flow(flow, extra),
        Kind::Drop { arm, reason } => traffic::drop(data, arm, reason),
        Kind::Lcore(id) => lcores::one(data, *id),
        Kind::Nic(arm) => lcores::nic(data, arm),
        Kind::Neighbor { .. } => sessions::neighbor(extra),
    };
    content.arrange(page);
    content
}
