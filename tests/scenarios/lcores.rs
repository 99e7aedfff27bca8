//! Two polling lcores with one flow table: answers arrive on another queue than their requests.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tables::counters::{ArmCounter, Counters, VerdictCounter};
use tables::region::Region;
use tests::lab::LabError;
use tests::lab::client::{Client, Load};
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::Settings;
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

/// Enough connections that some have their answers on the lcore of their requests and some on the
/// other: each case has a probability of one half.
const CONNECTIONS: usize = 40;

/// The counters of one lcore.
#[derive(Debug)]
struct Page {
    /// Packets received by arm: from gateways, from backends.
    rx: [u64; 2],
    /// Packets from clients to backends.
    nat: u64,
    /// Packets from backends to clients.
    answers: u64,
    /// Packets returned to their gateway.
    returned: u64,
}

impl Page {
    fn of(counters: &Counters<'_>, lcore: u32) -> Option<Page> {
        let page = counters.lcore(lcore)?;
        Some(Page {
            rx: [0, 1].map(|arm| page.arm_count(arm, ArmCounter::RxPackets)),
            nat: page.verdict_count(VerdictCounter::Nat),
            answers: page.verdict_count(VerdictCounter::Answer),
            returned: page.verdict_count(VerdictCounter::Return),
        })
    }
}

fn pages(counters: &Counters<'_>) -> Vec<Page> {
    (0..2).filter_map(|n| Page::of(counters, n)).collect()
}

/// Returns the lcore whose counter increased most.
fn busier(before: &[Page], after: &[Page], count: fn(&Page) -> u64) -> Option<usize> {
    (0..after.len()).max_by_key(|n| count(&after[*n]) - count(&before[*n]))
}

/// Returns how many of `connections` connections had answers and requests on different lcores.
fn crossing(lab: &Lab, counters: &Counters<'_>, connections: usize) -> Result<usize, LabError> {
    let mut crossing = 0;
    for _ in 0..connections {
        let before = pages(counters);
        let web = SocketAddr::from((FRONTEND, 80));
        let load = Load { workers: 1, per_connection: 10, lengths: vec![10], ..Load::new(web, 10) };
        let stats = Client::start(&lab.aws[0], load)?.finish()?;
        assert!(stats.right == 10 && stats.failed == 0 && stats.connections == 1, "{stats}");
        let after = pages(counters);
        let requested = busier(&before, &after, |page| page.nat);
        let answered = busier(&before, &after, |page| page.answers);
        crossing += usize::from(requested != answered);
    }
    Ok(crossing)
}

/// The kernel distributes the frames to the packet sockets of a port by a hash: of the outer
/// packet at the ingress, of the translated one at the egress. The two are independent, so that
/// about half of all flows have their answers on the other lcore.
#[test]
fn directions_of_a_flow_may_be_on_different_lcores() -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    // Both CPUs run an lcore, which sleeps when idle, because the lab needs the CPUs too.
    let settings = Settings { lcores: vec![0, 1], ..Settings::default() };
    let all = [service(&lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let mut weir = Weir::start(&lab, &settings, &all)?;
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let region = Region::open(&lab.folder.shared("region"))?;
    let crossing = crossing(&lab, &region.counters(), CONNECTIONS)?;
    println!("{crossing} of {CONNECTIONS} connections had their answers at the other lcore");
    assert!(crossing > 0, "none of {CONNECTIONS} connections");
    let traffic = Traffic::start(&lab, Duration::from_millis(5))?;
    traffic.wait_for_responses(1_500)?;
    traffic.wait_for_returned(300)?;
    let clients = traffic.finish()?;
    for (name, stats) in &clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
    let report = gateway.stop()?;
    assert!(report.clean() && report.returned > 0 && report.answered > 0, "{report}");
    let (totals, frames) = at_rest(&lab, &mut weir, &before, &wires)?;
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!((frames.to_weir, frames.from_weir), (totals.rx, totals.tx));

    let pages = pages(&region.counters());
    assert_eq!(pages.len(), 2);
    for page in &pages {
        println!("{page:?}");
        let Page { rx, nat, answers, returned } = page;
        let all = [rx[0], rx[1], *nat, *answers, *returned];
        assert!(all.into_iter().all(|packets| packets > 500), "{page:?}");
    }
    weir.stop()?;
    Ok(())
}
