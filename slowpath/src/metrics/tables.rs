//! Metrics of the region's tables: generation, occupancy and capacity, and the NAT ports.

use std::fmt;

use ::tables::nat_port::NatPorts;
use ::tables::record::NONE;
use ::tables::region::Region;
use packet::addr::Addr;

use super::declared as metric;
use super::family::Family;
use super::traffic::TrafficCounts;
use crate::control::report::Status;
use crate::live::Live;
use crate::measurements::NatPortCounts;

/// Maximum number of port maps that a scrape reads; a map has 8 KiB.
const MAPS_PER_SCRAPE: u32 = 1024;

/// Encodes the metrics of the tables. `status` is the one that the control loop published last.
pub(super) fn encode(live: &Live, status: &Status, family: &mut Family<'_, '_>) -> fmt::Result {
    let flows = live.flows_in_use();
    family.gauge(&metric::GENERATION, f64::from(status.generation))?;
    let uses = live.shared().measurements.table_uses();
    let all = || {
        let others = uses.iter().map(|one| (one.table, u64::from(one.used), one.capacity.into()));
        std::iter::once(("flows", flows.used, flows.max)).chain(others)
    };
    family.gauges(&metric::TABLE_ENTRIES, all().map(|(table, used, _)| ([table], used as f64)))?;
    family.gauges(&metric::TABLE_CAPACITY, all().map(|(table, _, max)| ([table], max as f64)))?;
    let mut counted = live.shared().measurements.nat_ports();
    nat_ports(live.region, &mut counted, family)?;
    let hops = &status.next_hops;
    let unresolved = hops.needed.saturating_sub(hops.known);
    family.gauges(
        &metric::NEXT_HOPS,
        [(["resolved"], hops.known as f64), (["unresolved"], unresolved as f64)],
    )
}

/// Encodes the use of NAT ports: in total, and of the backend that uses the most. A backend has a
/// port map for each NAT address of its family. A backend without live flows uses no port. Of the
/// maps of the others, at most [`MAPS_PER_SCRAPE`] are read; the rest have the counts of an earlier
/// scrape.
fn nat_ports(
    region: &Region,
    counted: &mut NatPortCounts,
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    let (set, counters, ports) =
        (region.tables(region.generation()), region.counters(), NatPorts::new(region));
    let settings = set.settings();
    let locals = settings.nat.iter().take_while(|local| local.addr != Addr::UNSPECIFIED);
    let of_v4 = locals.clone().filter(|local| local.addr.is_v4()).count();
    let addresses = [locals.count() - of_v4, of_v4].map(|count| count as u32);
    let ports_per_map =
        u32::from(settings.nat_port_last.saturating_sub(settings.nat_port_first)) + 1;
    let (mut used, mut capacity, mut pass) = (0_u64, 0_u64, counted.begin(MAPS_PER_SCRAPE));
    let mut highest = (0, 0);
    for (id, backend) in set.backends().filter(|(_, backend)| backend.nat_ports != NONE) {
        let count = addresses[usize::from(backend.addr.is_v4())];
        let maps = backend.nat_ports..backend.nat_ports.saturating_add(count);
        let may_have_flows =
            !counters.counts_backend(id) || TrafficCounts::backend(&counters, id).flows > 0;
        let in_use = match may_have_flows {
            true => pass.used(id, maps, |map| ports.used(map)),
            false => 0,
        };
        used += u64::from(in_use);
        capacity += u64::from(count * ports_per_map);
        if in_use >= highest.0 {
            highest = (in_use, count * ports_per_map);
        }
    }
    family.gauges(
        &metric::NAT_PORTS,
        [(["total"], used as f64), (["highest_backend"], f64::from(highest.0))],
    )?;
    family.gauges(
        &metric::NAT_PORTS_CAPACITY,
        [(["total"], capacity as f64), (["highest_backend"], f64::from(highest.1))],
    )
}
