//! The checks of `weir cloud doctor`, against the emulator.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first failure")]

use std::sync::Arc;

use azure::doctor::{Check, CheckConfig, Observations, Verdict, collect, evaluate};
use cloud_emulators::azure::{AzureState, Emulator};
use cloud_emulators::faults::{Fault, Rule};
use clouds::report::{CallCount, GatewayTunnels, Report, TunnelPair};
use clouds::retry::{Clock, Policy};
use serde_json::json;
use tokio::sync::watch;

mod machine;
use machine::{
    FIRST, INSTANCE, PUT_NIC, Vm, change_balancer, change_body, change_pool, cloud, configured,
    network, nic, pool,
};

const BOTH: &str =
    "pool = \"weir\"\npool_ipv6 = \"weir6\"\ngateway = \"gw\"\ngateway_ipv6 = \"gw6\"";

/// Starts an emulator in which the first machine and the scale set's instance are members of both
/// pools.
async fn emulator_with_member() -> Emulator {
    let azure = Emulator::start(AzureState::sample()).await.unwrap();
    azure.with(|cloud| {
        for id in [nic(0), INSTANCE.nic()] {
            change_body(cloud, &id, |nic| {
                for (part, of) in [(0, "weir"), (1, "weir6")] {
                    nic["properties"]["ipConfigurations"][part]["properties"]
                        ["loadBalancerBackendAddressPools"] = json!([{ "id": pool(of) }]);
                }
                nic["properties"]["networkSecurityGroup"] =
                    json!({ "id": network("networkSecurityGroups", "north") });
            });
        }
    });
    azure
}

/// Runs all checks as on the machine `vm`, with these lines in `[azure]`.
async fn run_doctor(
    azure: &Emulator,
    vm: Vm,
    lines: &str,
    report: Result<Report, String>,
) -> Vec<Check> {
    let imds = azure.machine(&vm.id()).await.unwrap();
    let config = configured(vm, azure, &imds, lines);
    let settings = config.azure.clone().unwrap();
    let check_config = CheckConfig::of(&config, &settings);
    let (_stay, cancel) = watch::channel(false);
    let cloud = cloud(azure, &settings, Arc::new(Clock::default()), cancel);
    let mut observed = Observations::new(report);
    observed.mac = Some(vm.ingress().mac);
    observed.kernel_mtu = Some(("tap0".into(), 1600));
    observed.timestamps = Some(false);
    collect(&cloud, Policy::ONCE, &check_config, &mut observed).await;
    evaluate(&check_config, &observed)
}

/// Returns the report of a slowpath that is ready.
fn ready_report() -> Result<Report, String> {
    let gateway_tunnels = |gateway: &str, family: &str, by: u16| {
        let [external, internal] =
            [(by + 1, u32::from(by % 100) + 801), (by, u32::from(by % 100) + 800)];
        let ends = TunnelPair {
            external_port: external.0,
            external_vni: external.1,
            internal_port: internal.0,
            internal_vni: internal.1,
        };
        let (gateway, family) = (gateway.to_owned(), family.to_owned());
        GatewayTunnels { gateway, family, in_force: ends, reported: ends, source: "imds".into() }
    };
    let count = CallCount {
        operation: PUT_NIC.into(),
        outcome: "ok".into(),
        times: 1,
        ..CallCount::default()
    };
    Ok(Report {
        phase: "ready".into(),
        tunnels: vec![gateway_tunnels("gw", "ipv4", 10800), gateway_tunnels("gw6", "ipv6", 2666)],
        calls: vec![count],
        ..Report::default()
    })
}

fn find_check<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("{name}: {checks:#?}"))
}

/// Returns the names of the checks with this verdict.
fn names_with(checks: &[Check], verdict: Verdict) -> Vec<&str> {
    checks.iter().filter(|c| c.verdict == verdict).map(|c| c.name.as_str()).collect()
}

#[tokio::test]
async fn doctor_passes_a_correct_setup_without_writes() {
    let azure = emulator_with_member().await;
    azure.with(|cloud| {
        change_balancer(cloud, |balancer| {
            for rule in [0, 1] {
                balancer["properties"]["loadBalancingRules"][rule]["properties"]["enableTcpReset"] =
                    json!(true);
            }
        });
    });
    let before = azure.with(|cloud| cloud.resources.clone());
    let checks = run_doctor(&azure, FIRST, BOTH, ready_report()).await;
    assert_eq!(names_with(&checks, Verdict::Fail), Vec::<&str>::new(), "{checks:#?}");
    assert_eq!(names_with(&checks, Verdict::Warn), Vec::<&str>::new(), "{checks:#?}");
    for (name, part) in [
        ("metadata", "weir-0 in westeurope"),
        ("token", "accepted by Azure"),
        ("Microsoft.Network/loadBalancers/read", "allowed"),
        ("Microsoft.Network/loadBalancers/backendAddressPools/read", "allowed"),
        ("Microsoft.Compute/virtualMachines/read", "allowed"),
        ("Microsoft.Network/networkInterfaces/read", "allowed"),
        ("Microsoft.Network/networkInterfaces/write", "allowed by the machine's role"),
        ("interface", "weir-0-data, not primary"),
        ("accelerated networking", "on"),
        ("pool", "/backendAddressPools/weir"),
        ("member of weir", "weir-0-data by nic, with weirs_0 by nic"),
        ("member of weir6", "by nic"),
        (
            "tunnels of weir",
            "external port 10801 vni 801, internal port 10800 vni 800, as in force",
        ),
        ("tunnels of weir6", "external port 2667 vni 867"),
        ("rule all", "all ports, TCP idle timeout 240 s, probe Http port 8080 / every 5 s"),
        ("tunnels of weir admitted", "Udp port 10801 from 10.1.0.4"),
        ("probe health admitted", "168.63.129.16"),
        ("mtu", "1600"),
        ("kernel mtu", "tap0"),
        ("tcp timestamps", "off"),
        ("scheduled events", "none"),
        ("slowpath", "ready"),
    ] {
        let check = find_check(&checks, name);
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert!(check.text.contains(part), "no {part:?} in {check:?}");
    }
    let pools = "Microsoft.Network/loadBalancers/backendAddressPools/write";
    assert_eq!(find_check(&checks, pools).verdict, Verdict::Ok);
    assert_eq!(azure.with(|cloud| cloud.resources.clone()), before);
    assert!(azure.calls().iter().all(|call| call.method != "PUT" && call.method != "DELETE"));
}

#[tokio::test]
async fn doctor_reports_each_defect() {
    type Wrong = fn(&mut AzureState);
    fn rule(cloud: &mut AzureState, access: &str, protocol: &str, port: &str) {
        change_body(cloud, &network("networkSecurityGroups", "north"), |group| {
            group["properties"]["securityRules"] = json!([{ "name": "r", "properties": {
                "priority": 100, "direction": "Inbound", "access": access, "protocol": protocol,
                "sourceAddressPrefix": "*", "destinationAddressPrefix": "*",
                "sourcePortRange": "*", "destinationPortRange": port,
            }}]);
        });
    }
    let cases: &[(&str, Verdict, &str, Wrong)] = &[
        ("token", Verdict::Fail, "no such identity", |w| w.identities.clear()),
        (
            "Microsoft.Network/loadBalancers/read",
            Verdict::Fail,
            "Microsoft.Network/loadBalancers/read",
            |w| w.forbidden.push("Microsoft.Network/loadBalancers/read".into()),
        ),
        (
            "Microsoft.Network/loadBalancers/backendAddressPools/read",
            Verdict::Fail,
            "backendAddressPools/read",
            |w| w.forbidden.push("Microsoft.Network/loadBalancers/backendAddressPools/read".into()),
        ),
        (
            "Microsoft.Network/loadBalancers/backendAddressPools/write",
            Verdict::Warn,
            "no role",
            |w| w.forbidden.push("Microsoft.Network/loadBalancers/backendAddressPools/w*".into()),
        ),
        ("interface", Verdict::Fail, "no network interface of this machine", |w| {
            change_body(w, &nic(0), |nic| {
                nic["properties"]["macAddress"] = json!("00-22-48-00-00-77")
            });
        }),
        ("accelerated networking", Verdict::Warn, "off", |w| {
            change_body(w, &nic(0), |n| {
                n["properties"]["enableAcceleratedNetworking"] = json!(false)
            });
        }),
        ("pool", Verdict::Fail, "no gateway load balancer has the IPv4 pool", |w| {
            change_pool(w, "weir", |pool| pool["name"] = json!("weird"));
        }),
        ("member of weir", Verdict::Warn, "not a member", |w| {
            change_body(w, &nic(0), |nic| {
                let part = &mut nic["properties"]["ipConfigurations"][0]["properties"];
                part["loadBalancerBackendAddressPools"] = json!([]);
            });
        }),
        ("member of weir", Verdict::Fail, "Down", |w| {
            change_pool(w, "weir", |pool| {
                let name = "north_weir-0-dataipconfig1";
                pool["properties"]["loadBalancerBackendAddresses"] =
                    json!([{ "name": name, "properties": { "adminState": "Down" } }]);
            });
        }),
        ("tunnels of weir", Verdict::Fail, "port 2001", |w| {
            change_pool(w, "weir", |p| {
                p["properties"]["tunnelInterfaces"][0]["port"] = json!(2001)
            });
        }),
        ("tunnels of weir", Verdict::Fail, "Internal VXLAN port 10801", |w| {
            change_pool(w, "weir", |pool| {
                pool["properties"]["tunnelInterfaces"][0]["type"] = json!("Internal");
            });
        }),
        ("tunnels of weir admitted", Verdict::Fail, "Udp port 10801", |w| {
            rule(w, "Deny", "Udp", "10000-11000");
        }),
        ("probe health admitted", Verdict::Fail, "Tcp port 8080", |w| rule(w, "Deny", "Tcp", "*")),
        ("advice probe-elsewhere", Verdict::Warn, "Http port 80,", |w| {
            change_balancer(w, |b| b["properties"]["probes"][0]["properties"]["port"] = json!(80));
        }),
        ("scheduled events", Verdict::Warn, "1 affect", |w| {
            w.schedule("Reboot", "weir-0", std::time::Duration::from_secs(600));
        }),
    ];
    for (name, verdict, text, wrong) in cases {
        let azure = emulator_with_member().await;
        azure.with(wrong);
        let checks = run_doctor(&azure, FIRST, BOTH, ready_report()).await;
        let check = find_check(&checks, name);
        assert_eq!(check.verdict, *verdict, "{name}: {checks:#?}");
        assert!(check.text.contains(text) && !check.remedy.is_empty(), "{check:#?}");
    }
}

#[tokio::test]
async fn doctor_handles_scale_sets_other_membership_and_slowpath_report() {
    let azure = emulator_with_member().await;
    let checks = run_doctor(&azure, INSTANCE, BOTH, Err("it does not run".into())).await;
    assert!(find_check(&checks, "interface").text.contains("defined by the scale set's model"));
    let denied = Fault::Refuse { status: 403, code: "AuthorizationFailed".into() };
    azure.fault(Rule::always("GET permissions", denied));
    let pools = "Microsoft.Network/loadBalancers/backendAddressPools/write";
    let nic_write = "Microsoft.Network/networkInterfaces/write";
    let without_grants = run_doctor(&azure, FIRST, BOTH, ready_report()).await;
    assert_eq!(find_check(&without_grants, pools).verdict, Verdict::Untested);
    assert_eq!(find_check(&without_grants, nic_write).text, "allowed: slowpath has used it");
    let own = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read";
    assert_eq!(find_check(&checks, own).verdict, Verdict::Ok);
    assert!(checks.iter().all(|check| check.name != "Microsoft.Network/networkInterfaces/write"));
    assert_eq!(find_check(&checks, "slowpath").text, "it does not run");
    assert_eq!(find_check(&checks, "tunnels of weir").verdict, Verdict::Ok, "as configured");
    let ip = format!("{BOTH}\nmembership = \"ip\"");
    azure.with(|cloud| {
        change_body(cloud, &nic(0), |nic| {
            nic["properties"]["ipConfigurations"][0]["properties"]
                ["loadBalancerBackendAddressPools"] = json!([]);
        });
    });
    let checks = run_doctor(&azure, FIRST, &ip, ready_report()).await;
    let member = find_check(&checks, "member of weir");
    assert_eq!(member.verdict, Verdict::Fail);
    assert!(member.text.contains("weirs_0 by nic") && member.text.contains("azure.membership"));
}
