//! The runner with the Azure lifecycle and the real client, against the emulator: discovery,
//! joining, tunnels, reports. The emulator's clock advances only while no call is in progress,
//! unless a test sets otherwise.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::sync::atomic::Ordering;

use cloud_emulators::azure::AzureState;
use cloud_emulators::faults::{Fault, Rule};
use clouds::appliance::Ingress;
use clouds::report::Report;
use serde_json::json;
use simulation::TemporaryFile;

mod machine;
use machine::{
    FIRST, GROUP, INSTANCE, Machine, PUT_NIC, PUT_POOL, SECOND, Setup, change_balancer,
    change_body, change_pool, gateway, machine_id, network, nic, pool, referenced_pools, tunnels,
};

/// Returns a rule that answers an operation with 503.
fn unavailable(operation: &str) -> Rule {
    Rule::always(operation, Fault::Refuse { status: 503, code: "ServiceUnavailable".into() })
}

async fn ready(setup: Setup) -> Machine {
    let mut machine = setup.start().await;
    machine.ready().await;
    machine
}

#[tokio::test]
async fn discovers_joins_once_and_becomes_ready() {
    let by_id = format!("load_balancer = \"{}\"", gateway().to_uppercase().replacen("/S", "/s", 1));
    for line in ["", "load_balancer = \"GW\"", by_id.as_str(), "resource_group = \"North\""] {
        let mut machine = Setup::new().await.with(line).start().await;
        let report = machine.ready().await;
        let registration =
            (report.group.as_str(), report.target.as_str(), report.instance.as_str());
        let target = format!("{}/ipConfigurations/ipconfig1", nic(0));
        assert_eq!(registration, (pool("weir").as_str(), target.as_str(), "weir-0"), "{line}");
        assert_eq!((report.state.as_str(), report.region.as_str()), ("member", "westeurope"));
        assert_eq!(machine.azure.with(|cloud| referenced_pools(cloud, &nic(0))), ["weir"]);
        let reasons = machine.appliance.probe_answers();
        assert_eq!(reasons.first().unwrap().1, "searching for the backend pool at Azure");
        assert_eq!(reasons.last().unwrap().1, "");
        machine.pass(600).await;
        assert_eq!((machine.call_count(PUT_NIC, "ok"), machine.call_count(PUT_POOL, "ok")), (1, 0));
        let flows = machine.azure.with(|cloud| cloud.serves(&pool("weir"), &FIRST.address()));
        assert!(flows, "the gateway's probe is answered");
    }
}

type Modify = fn(&mut AzureState);

#[tokio::test]
async fn each_discovery_error_is_reported_and_recovers_without_restart() {
    let table: &[(Modify, &[&str])] = &[
        (
            |w| {
                change_body(w, &nic(0), |b| {
                    b["properties"]["macAddress"] = json!("00-22-48-00-00-77")
                })
            },
            &["MAC 00:22:48:0a:01:0b", "weir-0-data 00-22-48-00-00-77", "weir-0-management"],
        ),
        (
            |w| {
                change_body(w, &nic(0), |b| {
                    b["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] =
                        json!("10.1.0.96/28");
                });
            },
            &["weir-0-data", "IPv4 address (10.1.0.11)", "10.1.0.96/28", "ingress.address"],
        ),
        (
            |w| w.resources.retain(|resource| !resource.id.contains("/loadBalancers/")),
            &["resource group north has no load balancer", "azure.resource_group"],
        ),
        (
            |w| w.resources.retain(|resource| resource.id != gateway()),
            &["no load balancer of SKU Gateway in resource group north", "plain (Standard)"],
        ),
        (
            |w| {
                let mut other = w.find(&gateway()).unwrap().clone();
                other.id = network("loadBalancers", "gw2");
                w.resources.push(other);
            },
            &[
                "2 gateway load balancers have the configured pools: gw, gw2",
                "set azure.load_balancer",
            ],
        ),
        (
            |w| change_pool(w, "weir", |pool| pool["name"] = json!("weird")),
            &["no gateway load balancer has the IPv4 pool \"weir\"", "weird, weir6", "azure.pool"],
        ),
        (
            |w| {
                w.tunnels = json!([]);
                change_pool(w, "weir", |pool| pool["properties"]["tunnelInterfaces"] = json!([]));
            },
            &["pool weir has no tunnel interfaces", "External", "Internal"],
        ),
        (
            |w| change_balancer(w, |balancer| balancer["location"] = json!("North Europe")),
            &["gw is in region North Europe, and this machine in westeurope"],
        ),
        (
            |w| {
                change_balancer(w, |balancer| {
                    for frontend in [0, 1] {
                        let other = network("virtualNetworks", "spoke") + "/subnets/data";
                        balancer["properties"]["frontendIPConfigurations"][frontend]["properties"]
                            ["subnet"]["id"] = json!(other);
                    }
                });
            },
            &["gw is in virtual network", "spoke", "hub"],
        ),
        (
            |w| w.forbidden.push("Microsoft.Network/loadBalancers/read".into()),
            &["Microsoft.Network/loadBalancers/read"],
        ),
        (
            |w| w.forbidden.push("Microsoft.Compute/virtualMachines/read".into()),
            &["Microsoft.Compute/virtualMachines/read"],
        ),
        (|w| w.identities.clear(), &["this machine has no such identity"]),
    ];
    for (row, (modify, reasons)) in table.iter().enumerate() {
        let setup = Setup::new().await;
        let original = setup.azure.with(|cloud| {
            let original = cloud.clone();
            modify(cloud);
            original
        });
        let mut machine = setup.start().await;
        let report = machine.until("error", |report| !report.error.is_empty()).await;
        assert_eq!(report.phase, "looking");
        let probe = machine.appliance.probe();
        for part in *reasons {
            assert!(report.error.contains(part), "{row}: no {part:?} in {}", report.error);
            assert!(probe.contains(part), "{row}: no {part:?} in {probe}");
        }
        machine.azure.with(|cloud| {
            let (now, tokens) = (cloud.now, cloud.tokens.clone());
            *cloud = original;
            (cloud.now, cloud.tokens) = (now, tokens);
        });
        let report = machine.ready().await;
        assert_eq!((report.error.as_str(), machine.appliance.probe().as_str()), ("", ""));
    }
}

#[tokio::test]
async fn missing_metadata_or_port_is_reported_and_awaited() {
    let setup = Setup::new().await;
    *setup.appliance.ingress.lock().unwrap() = None;
    let mut machine = setup.start().await;
    let report = machine.until("error", |report| !report.error.is_empty()).await;
    assert!(report.error.contains("is the fastpath running?"), "{}", report.error);
    assert_eq!(machine.azure.take_calls(), []);
    machine.azure.fault(Rule::always("/metadata/instance", Fault::Status(500)));
    *machine.appliance.ingress.lock().unwrap() = Some(FIRST.ingress());
    let silent = |report: &Report| report.error.contains("does not report this machine's identity");
    machine.until("no metadata", silent).await;
    machine.azure.clear_faults();
    machine.ready().await;
}

#[tokio::test]
async fn existing_foreign_membership_is_not_changed() {
    let setup = Setup::new().await;
    setup.azure.with(|cloud| {
        let reference = json!([{ "id": pool("weir").to_lowercase() }]);
        change_body(cloud, &nic(0), |nic| {
            nic["properties"]["ipConfigurations"][0]["properties"]
                ["loadBalancerBackendAddressPools"] = reference;
        });
    });
    let mut machine = ready(setup).await;
    machine.terminate();
    machine.appliance.set_flows(0);
    machine.wait_for_exit().await;
    assert_eq!(machine.call_count(PUT_NIC, "ok"), 0, "remove = \"own\"");
    assert_eq!(machine.azure.with(|cloud| referenced_pools(cloud, &nic(0))), ["weir"]);
}

#[tokio::test]
async fn an_unable_machine_does_not_join_and_its_probe_names_its_own_reasons_first() {
    let setup = Setup::new().await;
    *setup.appliance.able.lock().unwrap() = Err(vec!["lcore 1 is stalled".into()]);
    let mut machine = setup.start().await;
    machine.until("the location", |report| report.phase == "outside").await;
    machine.pass(300).await;
    assert_eq!(machine.call_count(PUT_NIC, "ok"), 0);
    assert!(machine.appliance.probe().starts_with("lcore 1 is stalled"));
    *machine.appliance.able.lock().unwrap() = Ok(());
    machine.ready().await;
}

#[tokio::test]
async fn preboot_health_pass_passes_probes_until_first_able() {
    let setup = Setup::new().await.with("preboot_health = \"pass\"");
    *setup.appliance.able.lock().unwrap() = Err(vec!["lcore 1 is stalled".into()]);
    setup.azure.fault(unavailable("LIST loadBalancers"));
    let mut machine = setup.start().await;
    machine.until("error", |report| !report.error.is_empty()).await;
    assert!(machine.appliance.probes.passes.load(Ordering::Relaxed));
    machine.azure.clear_faults();
    machine.until("the location", |report| report.phase == "outside").await;
    assert!(machine.appliance.probes.passes.load(Ordering::Relaxed));
    assert!(machine.appliance.probe_answers().iter().all(|(_, reasons)| reasons.is_empty()));
    *machine.appliance.able.lock().unwrap() = Ok(());
    machine.ready().await;
    *machine.appliance.able.lock().unwrap() = Err(vec!["lcore 1 is stalled".into()]);
    machine.until_probe("lcore 1 is stalled").await;
    assert!(!machine.appliance.probes.passes.load(Ordering::Relaxed));
}

#[tokio::test]
async fn outage_at_start_uses_the_journal() {
    let file = TemporaryFile::new("kept");
    let mut setup = Setup::new().await;
    setup.journal = Some(file.0.clone());
    let mut first = ready(setup).await;
    first.kill().await;
    // Resource Manager and the metadata answer 503, Resource Manager alone answers 503, and
    // Resource Manager does not answer at all.
    let hang = |operation: &str| Rule::always(operation, Fault::Hang);
    for (rules, hangs) in [
        (vec![unavailable("*"), unavailable("/metadata")], false),
        (vec![unavailable("GET *"), unavailable("LIST *")], false),
        (vec![hang("GET *"), hang("LIST *")], true),
    ] {
        first.azure.clear_faults();
        rules.into_iter().for_each(|rule| first.azure.fault(rule));
        let setup = Setup::restart_of(&first);
        setup.clock.run_during_calls(hangs);
        let clock = setup.clock.clone();
        let mut machine = setup.start().await;
        machine.until("the location", |report| report.group == pool("weir")).await;
        machine.until_probe("").await;
        machine.pass(5).await;
        clock.run_during_calls(false);
        first.azure.clear_faults();
        machine.ready().await;
        assert_eq!(machine.call_count(PUT_NIC, "ok"), 0, "it stayed a member");
        machine.kill().await;
    }
}

#[tokio::test]
async fn outage_without_own_journal_answers_503() {
    let file = TemporaryFile::new("others");
    let mut setup = Setup::new().await;
    setup.journal = Some(file.0.clone());
    let mut first = ready(setup).await;
    first.kill().await;
    first.azure.fault(unavailable("LIST loadBalancers"));
    type Change = fn(&mut Setup);
    let changes: [Change; 4] = [
        |setup| setup.journal = None,
        |setup| {
            setup.azure.with(|cloud| {
                change_body(cloud, &machine_id(0), |machine| {
                    machine["properties"]["vmId"] = json!("another");
                });
            });
        },
        |setup| setup.lines = "pool = \"other\"".to_owned(),
        |setup| {
            let other = vec!["10.1.0.99".parse().unwrap()];
            let other = Ingress { addresses: other, ..FIRST.ingress() };
            *setup.appliance.ingress.lock().unwrap() = Some(other);
        },
    ];
    for change in changes {
        let mut setup = Setup::restart_of(&first);
        change(&mut setup);
        let mut machine = setup.start().await;
        let report = machine.until("error", |report| !report.error.is_empty()).await;
        assert!(report.error.contains("LoadBalancers_List"), "{}", report.error);
        assert!(machine.appliance.probe().starts_with("azure: "));
        machine.kill().await;
    }
}

#[tokio::test]
async fn tunnel_changes_are_applied() {
    let both = "pool = \"weir\"\npool_ipv6 = \"weir6\"\ngateway = \"gw\"\ngateway_ipv6 = \"gw6\"";
    let mut setup = Setup::new().await;
    setup.lines = both.to_owned();
    let mut machine = ready(setup).await;
    machine.pass(3).await;
    assert_eq!(machine.appliance.probes.tunnel_updates(), 0, "the configuration is right");
    machine.azure.with(|cloud| {
        change_pool(cloud, "weir", |pool| {
            pool["properties"]["tunnelInterfaces"][0]["port"] = json!(2001);
            pool["properties"]["tunnelInterfaces"][0]["identifier"] = json!(901);
        });
    });
    machine.appliance.unknown_tunnel.fetch_add(3, Ordering::Relaxed);
    let began = machine.azure.with(|cloud| cloud.now);
    let of = |report: &Report, name: &str| {
        report.tunnels.iter().find(|of| of.gateway == name).unwrap().clone()
    };
    let follows = |report: &Report| of(report, "gw").in_force.external_port == 2001;
    let report = machine.until("followed", follows).await;
    let took = machine.azure.with(|cloud| cloud.now) - began;
    assert!(took.as_secs() <= 5, "{took:?}: the query was not expedited");
    use azure::runner::AzureAppliance;
    let now = machine.appliance.tunnels("gw").unwrap();
    assert_eq!(now, tunnels((2001, 901), (10800, 800)));
    assert_eq!(
        (of(&report, "gw").source.as_str(), of(&report, "gw").family.as_str()),
        ("imds", "ipv4")
    );
    assert_eq!(of(&report, "gw6").in_force.external_vni, 867);
    assert_eq!(machine.appliance.probes.tunnel_updates(), 1);
}

#[tokio::test]
async fn tunnels_report_mode_changes_nothing() {
    let mut machine = ready(Setup::new().await.with("tunnels = \"report\"")).await;
    machine.azure.with(|cloud| {
        change_pool(cloud, "weir", |pool| {
            pool["properties"]["tunnelInterfaces"][1]["identifier"] = json!(900);
        });
    });
    let report = machine.until_found("tunnels-other").await;
    assert_eq!(report.tunnels[0].reported.internal_vni, 900);
    machine.pass(60).await;
    assert_eq!(machine.appliance.probes.tunnel_updates(), 0);
    assert_eq!(machine.report().tunnels[0].in_force.internal_vni, 800);
}

#[tokio::test]
async fn harmful_load_balancer_settings_are_reported_at_run_time() {
    let mut machine = ready(Setup::new().await).await;
    machine.azure.with(|cloud| {
        change_balancer(cloud, |balancer| {
            balancer["properties"]["probes"][0]["properties"]["port"] = json!(80);
        });
    });
    let report = machine.until_found("probe-elsewhere").await;
    let found = report.findings.iter().find(|found| found.name == "probe-elsewhere").unwrap();
    assert!(found.text.contains("Http port 80") && found.text.contains("[8080]"), "{found:?}");
}

#[tokio::test]
async fn peers_are_reported_with_their_addresses() {
    let azure = Setup::new().await.azure;
    let mut first = ready(Setup::for_vm(azure.clone(), FIRST)).await;
    let _second = ready(Setup::for_vm(azure.clone(), SECOND)).await;
    let both = |report: &Report| report.peers.len() == 2;
    let report = first.until("both", both).await;
    let peers: Vec<(String, String)> = report
        .peers
        .iter()
        .map(|peer| (peer.id.clone(), peer.address.unwrap().to_string()))
        .collect();
    let one = |vm: machine::Vm| (format!("weir-{}-data", vm.number), vm.address());
    assert_eq!(peers, [one(FIRST), one(SECOND)]);
}

#[tokio::test]
async fn scale_set_interface_is_never_written() {
    let azure = Setup::new().await.azure;
    let mut machine = Setup::for_vm(azure.clone(), INSTANCE).start().await;
    machine.until_found("not-in-model").await;
    assert!(machine.appliance.probe().contains("not a member"));
    machine.pass(300).await;
    azure.with(|cloud| {
        change_body(cloud, &INSTANCE.nic(), |nic| {
            nic["properties"]["ipConfigurations"][0]["properties"]
                ["loadBalancerBackendAddressPools"] = json!([{ "id": pool("weir") }]);
        });
    });
    machine.ready().await;
    machine.terminate();
    machine.wait_for_exit().await;
    let writes = azure.calls().into_iter().filter(|call| call.method == "PUT").count();
    assert_eq!(writes, 0);
    assert!(machine.report().instance.starts_with("weirs_0"), "{}", machine.report().instance);
    assert!(machine.report().target.starts_with(GROUP));
}
