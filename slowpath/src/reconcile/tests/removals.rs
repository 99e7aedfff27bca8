//! Tests of services files of which nothing is applied: one that would remove too much, and a first
//! one that the region rejects.

use super::*;
use crate::sources::file_sources;
use state::sources::removals;
use state::store::WriteRequest;

fn services(reconcile: &Reconcile<'_>) -> Vec<String> {
    let tables = reconcile.desired.writer.tables();
    tables.services().map(|service| service.name.to_string()).collect()
}

/// A services file with another service than that of [`Fixture::backends`].
const OTHER: &str = "[[service]]\nname = \"default/other\"\nmode = \"nat\"\n\
                     frontends = [{address = \"203.0.113.9\", port = 80, protocol = \"tcp\"}]\n";

#[test]
fn an_emptied_file_is_held_until_confirmed_or_restored() {
    let mut fixture = Fixture::new("emptied");
    let (mut reconcile, shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    let at = fixture.region.generation();
    for text in ["", "# nothing\n", OTHER] {
        fixture.write(text);
        fixture.pass(1000, &mut reconcile, Some(&mut lcore));
        let why = shared.status_now().services_file.error.unwrap();
        assert!(why.contains("is held") && why.contains("all 2 objects"), "{why}");
        assert_eq!(
            (services(&reconcile), fixture.region.generation()),
            (vec!["default/web".into()], at)
        );
        assert!(able(&shared).able);
    }
    let held = |fixture: &Fixture| {
        let objects = fixture.store.objects();
        removals::held(&objects).map(|(source, _)| source.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(held(&fixture), ["file"]);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert_eq!((shared.status_now().services_file.error, held(&fixture)), (None, vec![]));

    fixture.write(OTHER);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    let now = SystemTime::UNIX_EPOCH;
    let confirmed = removals::confirm(&file_sources()[0], &fixture.store.objects(), now);
    let (_, answer) = fixture.store.request(WriteRequest::new(confirmed.unwrap().1, now));
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert!(answer.blocking_recv().unwrap().is_ok());
    assert_eq!((services(&reconcile), held(&fixture)), (vec!["default/other".to_owned()], vec![]));
    assert_eq!(shared.status_now().services_file.error, None);
}

#[test]
fn a_first_file_rejected_by_the_region_is_rolled_back() {
    let mut fixture = Fixture::new("back-to-nothing");
    let (mut reconcile, shared) = fixture.start();
    let tunnels = (1..=20).map(|vni| {
        format!(
            "[[service]]\nname = \"t{vni}\"\nmode = \"tunnel\"\ntunnel = \"vxlan\"\nvni = {vni}\n\
             frontends = [{{address = \"203.0.113.2\", port = {vni}, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.0.2.12\"}}]\n"
        )
    });
    fixture.write(&tunnels.collect::<String>());
    fixture.pass(1000, &mut reconcile, None);
    let why = shared.status_now().services_file.error.unwrap();
    assert!(why.contains("tunnels") && services(&reconcile).is_empty(), "{why}");
    let files = file_sources();
    let objects = fixture.store.objects();
    assert_eq!(objects.all().filter(|object| files.contains(&object.source)).count(), 0);
}
