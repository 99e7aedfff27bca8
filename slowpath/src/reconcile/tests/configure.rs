//! Tests of changes of the configuration at run time, by the file or by the cloud: applied,
//! rejected, drained.

use super::*;
use config::checked::VxlanEnd;
use tables::record::TUNNEL_RETIRED;

/// A second gateway.
const SECOND: &str =
    "\n[[gateway]]\nname = \"two\"\nkind = \"aws\"\nport = 6082\nsources = [\"10.0.1.64/28\"]\n";

/// Writes the configuration file: [`CONFIG`] with one text replaced and another one appended.
fn write(fixture: &Fixture, (from, to): (&str, &str), appended: &str) -> PathBuf {
    let path = fixture.services.with_file_name("weir.toml");
    let text = CONFIG.replace(from, to);
    let text = format!("services = {:?}\n{text}{appended}", fixture.services);
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    path
}

/// Replaces nothing in [`CONFIG`].
const SAME: (&str, &str) = ("", "");

/// Starts a loop that watches its configuration file, with one backend in force.
fn start(name: &str, appended: &str) -> (Fixture, Reconcile<'static>, Arc<Shared>) {
    let mut fixture = Fixture::new(name);
    let path = write(&fixture, SAME, appended);
    fixture.config = Arc::new(config::load(Some(&path), &[]).unwrap());
    fixture.file = Some(path);
    let (mut reconcile, shared) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(shared.status_now().config_file.error, None);
    (fixture, reconcile, shared)
}

/// Returns id, port and number of sources of the tunnels, and whether they are retired.
fn tunnels(region: &Region) -> Vec<(u32, u16, u8, bool)> {
    let set = region.tables(region.generation());
    let tunnels =
        set.tunnels().map(|(id, t)| (id, t.port, t.source_count, t.flags & TUNNEL_RETIRED != 0));
    tunnels.collect()
}

#[test]
fn the_gateways_idle_timeout_overrides_the_file() {
    let (mut fixture, mut reconcile, shared) = start("idle", "");
    let before = ids(fixture.region);
    let idle = |fixture: &Fixture| {
        let set = fixture.region.tables(fixture.region.generation());
        set.settings().timeouts.tcp_established_s
    };
    assert_eq!(idle(&fixture), 350);
    shared.follow_tcp_idle(Duration::from_secs(900));
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(idle(&fixture), 900);
    write(&fixture, SAME, "[flows]\ntcp_established_s = 77\nudp_s = 99\n");
    fixture.pass(1000, &mut reconcile, None);
    let set = fixture.region.tables(fixture.region.generation());
    assert_eq!((idle(&fixture), set.settings().timeouts.udp_s), (900, 99));
    shared.follow_tcp_idle(Duration::from_secs(60));
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!((idle(&fixture), ids(fixture.region)), (60, before));
    assert_eq!(shared.status_now().config_file.error, None);
}

/// An Azure gateway, with two VXLAN tunnels.
const AZURE: &str = "\n[[gateway]]\nname = \"two\"\nkind = \"azure\"\nsources = \"10.0.1.64/28\"\n";

/// Returns port, VNI, gateway number and scope of the tunnels, and whether they are retired.
fn wires(region: &Region) -> Vec<(u16, u32, u16, u64, bool)> {
    let set = region.tables(region.generation());
    let vxlan = set.tunnels().filter(|(_, tunnel)| tunnel.scope_key != 0);
    let wire = |t: &tables::record::Tunnel| {
        (t.port, t.vni, t.gateway, t.scope_key, t.flags & TUNNEL_RETIRED != 0)
    };
    vxlan.map(|(_, tunnel)| wire(tunnel)).collect()
}

#[test]
fn follows_changed_pool_ports_and_vnis_and_flows_keep_their_scope() {
    let (mut fixture, mut reconcile, shared) = start("pool", AZURE);
    let before = ids(fixture.region);
    let file = [(10_801, 801, 1, 801, false), (10_800, 800, 1, 801, false)];
    assert_eq!(wires(fixture.region), file);
    let end = |port, vni| VxlanEnd { port, vni };
    let follow = |external, internal| {
        shared.follow_tunnels([("two".to_owned(), (external, internal))].into());
    };
    follow(end(2001, 901), end(2000, 900));
    fixture.pass(1000, &mut reconcile, None);
    let moved = wires(fixture.region);
    let retired = file.map(|(port, vni, gateway, scope, _)| (port, vni, gateway, scope, true));
    assert_eq!(moved[..2], retired, "packets in flight still match");
    assert_eq!(moved[2..], [(2001, 901, 1, 801, false), (2000, 900, 1, 801, false)]);
    assert_eq!(ids(fixture.region), before);
    // The file is read again: the values reported by the pool stay in force.
    write(&fixture, SAME, &format!("{AZURE}[flows]\nudp_s = 99\n"));
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(wires(fixture.region), moved);
    // Only one tunnel changes, and a gateway that does not exist is ignored.
    shared.follow_tunnels(
        [
            ("two".to_owned(), (end(2001, 901), end(2000, 902))),
            ("three".to_owned(), (end(1, 1), end(2, 2))),
        ]
        .into(),
    );
    fixture.pass(1000, &mut reconcile, None);
    let existing = wires(fixture.region);
    let now: Vec<_> = existing.iter().filter(|wire| !wire.4).map(|wire| (wire.0, wire.1)).collect();
    assert_eq!(now, [(2001, 901), (2000, 902)]);
    assert!(existing.iter().all(|wire| (wire.2, wire.3) == (1, 801)), "{existing:?}");
    assert_eq!(shared.status_now().config_file.error, None);
}

#[test]
fn a_gateway_and_a_timeout_change_without_a_restart() {
    let (mut fixture, mut reconcile, shared) = start("live", "");
    let before = ids(fixture.region);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 1, false)]);
    let wider = ("[\"10.0.1.0/24\"]", "[\"10.0.1.0/24\", \"10.0.9.0/24\"]");
    write(
        &fixture,
        wider,
        "[flows]\ntcp_established_s = 77\n[punt]\nplain_no_service = \"punt\"\n",
    );
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(shared.status_now().config_file.error, None);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 2, false)]);
    let set = fixture.region.tables(fixture.region.generation());
    assert_eq!(set.settings().timeouts.tcp_established_s, 77);
    assert_eq!(set.settings().plain_no_service, 2);
    assert_eq!(ids(fixture.region), before, "services keep their ids");
    // An added comment is no change.
    let at = fixture.region.generation();
    write(
        &fixture,
        wider,
        "[flows]\n# AWS\ntcp_established_s = 77\n[punt]\nplain_no_service = \"punt\"\n",
    );
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(fixture.region.generation(), at);
}

#[test]
fn a_change_that_needs_a_restart_is_rejected_with_its_key() {
    let (mut fixture, mut reconcile, shared) = start("fixed", "");
    let at = fixture.region.generation();
    write(&fixture, ("net_null0", "net_null8"), SECOND);
    fixture.pass(1000, &mut reconcile, None);
    let error = shared.status_now().config_file.error.unwrap();
    assert!(
        error.contains("weir.toml:7: ingress.device = \"net_null8\"")
            && error.contains("restart the data plane and slowpath"),
        "{error}"
    );
    assert_eq!(fixture.region.generation(), at, "nothing of the file is applied");
    // An unknown key is rejected. A valid file is accepted after that.
    write(&fixture, SAME, "[flows]\nudp = 3\n");
    fixture.pass(1000, &mut reconcile, None);
    let error = shared.status_now().config_file.error.unwrap();
    assert!(error.contains("flows.udp") && error.contains("unknown key"), "{error}");
    write(&fixture, SAME, SECOND);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(shared.status_now().config_file.error, None);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 1, false), (1, 6082, 1, false)]);
}

#[test]
fn a_removed_gateway_drains_also_over_a_restart() {
    let (mut fixture, mut reconcile, _) = start("leave", SECOND);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 1, false), (1, 6082, 1, false)]);
    let path = write(&fixture, SAME, "");
    fixture.pass(60_000, &mut reconcile, None);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 1, false), (1, 6082, 1, true)]);
    let names = reconcile.plane.tunnel_names();
    assert_eq!(names, [(0, "aws".to_owned()), (1, "two, retired".to_owned())]);
    drop(reconcile);
    fixture.config = Arc::new(config::load(Some(&path), &[]).unwrap());
    let (mut reconcile, _) = fixture.start();
    fixture.pass(290_000, &mut reconcile, None);
    assert_eq!(
        tunnels(fixture.region).len(),
        2,
        "its drain period starts anew with the new process"
    );
    fixture.pass(20_000, &mut reconcile, None);
    assert_eq!(tunnels(fixture.region), [(0, 6081, 1, false)]);
}

#[test]
fn dependent_services_and_configuration_are_applied_together() {
    let (mut fixture, mut reconcile, shared) = start("pair", "");
    // Without NAT addresses the service can't be served.
    let without = ("addresses = [\"10.0.2.10\"]", "addresses = []");
    write(&fixture, without, "");
    fixture.pass(1000, &mut reconcile, None);
    assert!(shared.status_now().config_file.error.is_some());
    // The default table size of the new configuration applies to the services written with it.
    let at = fixture.region.generation();
    write(&fixture, SAME, "[tables]\nmaglev_size = 509\n");
    let text = "[[service]]\nname = \"default/web\"\nmode = \"nat\"\n\
                frontends = [{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}]\n\
                backends = [{address = \"10.0.2.11\"}, {address = \"10.0.2.12\"}]\n";
    fixture.write(text);
    fixture.pass(1000, &mut reconcile, None);
    let status = shared.status_now();
    assert_eq!((status.config_file.error, status.services_file.error), (None, None));
    let set = fixture.region.tables(fixture.region.generation());
    assert!(fixture.region.generation() > at);
    assert_eq!(set.services().next().unwrap().1.slots.count, 509);
}

#[test]
fn a_reload_reads_the_configuration_without_delay() {
    let (mut fixture, mut reconcile, shared) = start("order", "");
    write(&fixture, SAME, SECOND);
    shared.reload();
    fixture.pass(100, &mut reconcile, None);
    assert_eq!(tunnels(fixture.region).len(), 2, "without waiting until the file is stable");
}
