//! Writes of the membership, against the emulator, with concurrent writers and errors of Azure.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::time::Duration;

use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::faults::{Fault, Rule};
use serde_json::{Value, json};

mod machine;
use machine::{
    FIRST, INSTANCE, Machine, PUT_NIC, PUT_POOL, SECOND, Setup, admin_state, change_body,
    change_pool, gateway, listed_addresses, network, nic, pool, referenced_pools,
};

const BY_IP: &str = "membership = \"ip\"";
const OP_POOL: &str = "PUT loadBalancers/backendAddressPools";
const OP_NIC: &str = "PUT networkInterfaces";

fn body(cloud: &AzureState, id: &str) -> Value {
    cloud.find(id).unwrap().body.clone()
}

fn entry(name: &str, address: &str) -> Value {
    let hub = network("virtualNetworks", "hub");
    json!({ "name": name, "properties": {
        "ipAddress": address, "virtualNetwork": { "id": hub }, "adminState": "Up",
    }})
}

/// Sets a pool's entries to a single one, by the address of another machine.
fn list_other(cloud: &mut AzureState, name: &str, address: &str) {
    change_pool(cloud, name, |pool| {
        pool["properties"]["loadBalancerBackendAddresses"] = json!([entry("other", address)]);
    });
}

#[tokio::test]
async fn writes_preserve_all_other_content() {
    // By interface: unknown keys, another pool, the other IP configuration.
    let setup = Setup::new().await;
    setup.azure.with(|cloud| {
        change_body(cloud, &nic(0), |nic| {
            nic["tags"] = json!({ "owner": "somebody" });
            nic["properties"]["futureKey"] = json!({ "deep": [1, 2, { "x": null }] });
            let part = &mut nic["properties"]["ipConfigurations"][0]["properties"];
            part["futureKey"] = json!("kept");
            part["loadBalancerBackendAddressPools"] = json!([
                { "id": network("loadBalancers", "plain") + "/backendAddressPools/weir" },
            ]);
        });
    });
    let before = setup.azure.with(|cloud| body(cloud, &nic(0)));
    let mut machine = setup.start().await;
    machine.ready().await;
    let mut after = machine.azure.with(|cloud| body(cloud, &nic(0)));
    let put = machine.azure.calls().into_iter().find(|call| call.operation == OP_NIC).unwrap();
    assert!(put.headers.contains_key("if-match"), "{put:?}");
    let part = &mut after["properties"]["ipConfigurations"][0]["properties"];
    let pools = part["loadBalancerBackendAddressPools"].as_array_mut().unwrap();
    assert_eq!(pools.pop().unwrap()["id"], pool("weir"));
    for key in ["tags", "location"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(after["properties"]["futureKey"], before["properties"]["futureKey"]);
    let part = |of: &Value, n: usize| of["properties"]["ipConfigurations"][n]["properties"].clone();
    for key in ["futureKey", "loadBalancerBackendAddressPools", "privateIPAddress", "subnet"] {
        assert_eq!(part(&after, 0)[key], part(&before, 0)[key], "{key}");
    }
    assert_eq!(part(&after, 1)["privateIPAddress"], part(&before, 1)["privateIPAddress"]);

    // By address: other entries, tunnels, unknown keys.
    let setup = Setup::new().await.with(BY_IP);
    setup.azure.with(|cloud| {
        list_other(cloud, "weir", "10.1.0.77");
        change_pool(cloud, "weir", |pool| {
            pool["properties"]["drainPeriodInSeconds"] = json!(17);
            pool["properties"]["futureKey"] = json!({ "deep": true });
        });
    });
    let find = |cloud: &AzureState| {
        let pools = body(cloud, &gateway())["properties"]["backendAddressPools"].clone();
        pools.as_array().unwrap().iter().find(|p| p["name"] == "weir").unwrap().clone()
    };
    let before = setup.azure.with(|cloud| find(cloud));
    let mut machine = setup.start().await;
    machine.ready().await;
    let after = machine.azure.with(|cloud| find(cloud));
    for key in ["tunnelInterfaces", "drainPeriodInSeconds", "futureKey"] {
        assert_eq!(after["properties"][key], before["properties"][key], "{key}");
    }
    let entries = after["properties"]["loadBalancerBackendAddresses"].as_array().unwrap().clone();
    assert_eq!(entries[0]["properties"]["adminState"], "Up", "another machine's entry stays");
    assert_eq!(entries[1]["properties"]["ipAddress"], "10.1.0.11");
    assert_eq!(machine.report().target, "10.1.0.11");
    assert_eq!((machine.call_count(PUT_POOL, "ok"), machine.call_count(PUT_NIC, "ok")), (1, 0));
    machine.pass(300).await;
    assert_eq!(machine.call_count(PUT_POOL, "ok"), 1);
}

#[tokio::test]
async fn two_pools_are_joined_by_one_interface_write_or_two_pool_writes() {
    let both = "pool = \"weir\"\npool_ipv6 = \"weir6\"\ngateway = \"gw\"\ngateway_ipv6 = \"gw6\"";
    let mut setup = Setup::new().await;
    setup.lines = both.to_owned();
    let mut machine = setup.start().await;
    machine.ready().await;
    assert_eq!(machine.azure.with(|cloud| referenced_pools(cloud, &nic(0))), ["weir", "weir6"]);
    assert_eq!(machine.call_count(PUT_NIC, "ok"), 1);
    let mut setup = Setup::new().await;
    setup.lines = format!("{both}\n{BY_IP}");
    let mut machine = setup.start().await;
    machine.ready().await;
    let lists = machine
        .azure
        .with(|cloud| [listed_addresses(cloud, "weir"), listed_addresses(cloud, "weir6")]);
    assert_eq!(lists, [[FIRST.address()], [FIRST.address6()]]);
    assert_eq!(machine.call_count(PUT_POOL, "ok"), 2);
}

#[tokio::test]
async fn pool_with_other_membership_kind_is_rejected_by_name() {
    let setup = Setup::new().await;
    setup.azure.with(|cloud| list_other(cloud, "weir", "10.1.0.77"));
    let mut machine = setup.start().await;
    let report = machine.until_found("call-rejected").await;
    let found = report.findings.iter().find(|found| found.name == "call-rejected").unwrap();
    for part in ["pool weir has members by ip (other)", "azure.membership = \"ip\""] {
        assert!(found.text.contains(part), "no {part:?} in {}", found.text);
    }
    machine.until_probe("azure.membership").await;
    let azure = Setup::new().await.azure;
    let mut first = Setup::for_vm(azure.clone(), FIRST).start().await;
    first.ready().await;
    let mut second = Setup::for_vm(azure.clone(), SECOND).with(BY_IP).start().await;
    second.until_probe("pool weir has members by nic (weir-0-data)").await;
    let writes = azure.calls().into_iter().filter(|call| call.operation == OP_POOL).count();
    assert_eq!(writes, 0);
}

/// Starts two machines at the same moment, and waits until both are ready.
async fn two(round: u64, lines: &str, modify: impl FnOnce(&mut AzureState)) -> [Machine; 2] {
    let azure = Setup::new().await.azure;
    azure.seed(round);
    azure.with(modify);
    let first = Setup::for_vm(azure.clone(), FIRST).with(lines).start().await;
    let second = Setup::for_vm(azure.clone(), SECOND).with(lines).start().await;
    let mut both = [first, second];
    for machine in &mut both {
        machine.ready().await;
    }
    both
}

#[tokio::test]
async fn concurrent_joins_both_succeed() {
    for round in 0..10 {
        let pace = Duration::from_secs(round % 4);
        let [first, second] = two(round, BY_IP, |cloud| cloud.pace = pace).await;
        let mut members = first.azure.with(|cloud| listed_addresses(cloud, "weir"));
        members.sort();
        assert_eq!(members, [FIRST.address(), SECOND.address()], "round {round}");
        for machine in [first, second] {
            machine.terminate();
            let mut machine = machine;
            machine.wait_for_exit().await;
        }
    }
    let [first, _] = two(0, "", |_| {}).await;
    let members = first
        .azure
        .with(|cloud| [referenced_pools(cloud, &nic(0)), referenced_pools(cloud, &nic(1))]);
    assert_eq!(members, [["weir"], ["weir"]]);
}

#[tokio::test]
async fn conflicts_are_resolved_by_rereading() {
    for (line, operation) in [(BY_IP, OP_POOL), ("", OP_NIC)] {
        for (status, code) in [(412, "PreconditionFailed"), (409, "AnotherOperationInProgress")] {
            let setup = Setup::new().await.with(line);
            let fault = Fault::Refuse { status, code: code.into() };
            setup.azure.fault(Rule::first(6, operation, fault));
            let mut machine = setup.start().await;
            machine.ready().await;
            let name = if line.is_empty() { PUT_NIC } else { PUT_POOL };
            let counts = (machine.call_count(name, "conflict"), machine.call_count(name, "ok"));
            assert_eq!(counts, (6, 1), "{operation} {code}");
        }
    }
}

#[tokio::test]
async fn lost_response_keeps_the_membership_own() {
    for line in ["", BY_IP] {
        let setup = Setup::new().await.with(line);
        let operation = if line.is_empty() { OP_NIC } else { OP_POOL };
        setup.azure.fault(Rule::first(1, operation, Fault::Cut));
        let mut machine = setup.start().await;
        machine.ready().await;
        machine.terminate();
        machine.wait_for_exit().await;
        let members =
            machine.azure.with(|w| (referenced_pools(w, &nic(0)), listed_addresses(w, "weir")));
        assert_eq!(members, (vec![], vec![]), "it was Weir's, and was removed: {line:?}");
    }
}

#[tokio::test]
async fn overwritten_membership_is_restored() {
    for (line, forget) in [("", nic(0)), (BY_IP, gateway())] {
        let mut machine = Setup::new().await.with(line).start().await;
        machine.ready().await;
        // Another writer writes an older body, which does not contain the entry.
        machine.azure.with(|cloud| {
            change_body(cloud, &forget, |body| match line {
                "" => {
                    body["properties"]["ipConfigurations"][0]["properties"]
                        ["loadBalancerBackendAddressPools"] = json!([]);
                }
                _ => {
                    body["properties"]["backendAddressPools"][0]["properties"]
                        ["loadBalancerBackendAddresses"] = json!([]);
                }
            });
        });
        machine.until_found("membership-lost").await;
        machine.ready().await;
        let name = if line.is_empty() { PUT_NIC } else { PUT_POOL };
        assert_eq!(machine.call_count(name, "ok"), 2);
        machine.kill().await;
        let mut machine = Setup::new().await.with(line).with("on_lost = \"report\"").start().await;
        machine.ready().await;
        machine.azure.with(|cloud| {
            let none = json!([]);
            match line {
                "" => change_body(cloud, &nic(0), |body| {
                    body["properties"]["ipConfigurations"][0]["properties"]
                        ["loadBalancerBackendAddressPools"] = none;
                }),
                _ => change_pool(cloud, "weir", |pool| {
                    pool["properties"]["loadBalancerBackendAddresses"] = none;
                }),
            }
        });
        machine.until_probe("not a member of the pool").await;
        machine.pass(300).await;
        assert_eq!(machine.call_count(name, "ok"), 1, "the loss is only reported");
    }
}

#[tokio::test]
async fn failed_operation_is_retried_and_hanging_one_abandoned() {
    for (line, operation, name) in [("", OP_NIC, PUT_NIC), (BY_IP, OP_POOL, PUT_POOL)] {
        let setup = Setup::new().await.with(line);
        setup.azure.with(|cloud| {
            let (code, message) = ("InternalServerError".into(), "An error occurred.".into());
            let end = End::Fail { code, message };
            cloud.pace = Duration::from_secs(5);
            cloud.outcomes.push(Outcome { operation: operation.into(), end, times: Some(2) });
        });
        let mut machine = setup.start().await;
        machine.ready().await;
        assert_eq!(machine.call_count(name, "ok"), 3, "two failed after Azure accepted them");

        let setup = Setup::new().await.with(line);
        setup.azure.with(|cloud| {
            cloud.pace = Duration::from_secs(5);
            let end = End::Hang;
            cloud.outcomes.push(Outcome { operation: operation.into(), end, times: Some(1) });
        });
        let mut machine = setup.start().await;
        let report = machine.until_found("call-failed").await;
        let found = report.findings.iter().find(|found| found.name == "call-failed").unwrap();
        assert!(found.text.contains("is still running at Azure after 120 s"), "{}", found.text);
        machine.azure.with(|cloud| cloud.operations.clear());
        machine.ready().await;
    }
}

#[tokio::test]
async fn foreign_admin_state_is_reported_and_not_changed() {
    for (line, state, found) in
        [("", "Down", "admin-down"), (BY_IP, "Down", "admin-down"), (BY_IP, "Up", "admin-up")]
    {
        let mut machine = Setup::new().await.with(line).start().await;
        machine.ready().await;
        machine.azure.with(|cloud| {
            let by_ip = !line.is_empty();
            change_pool(cloud, "weir", |pool| {
                let name = "north_weir-0-dataipconfig1";
                let properties = &mut pool["properties"];
                if by_ip {
                    properties["loadBalancerBackendAddresses"][0]["properties"]["adminState"] =
                        json!(state);
                } else {
                    properties["loadBalancerBackendAddresses"] =
                        json!([{ "name": name, "properties": { "adminState": state } }]);
                }
            });
        });
        let report = machine.until_found(found).await;
        assert_eq!(report.state, state.to_lowercase());
        assert_eq!(report.phase == "ready", state == "Up");
        machine.pass(120).await;
        assert_eq!(machine.azure.with(|w| admin_state(w, "weir", &FIRST.address())), state);
    }
}

#[tokio::test]
async fn scale_set_instance_can_be_a_member_by_address() {
    let azure = Setup::new().await.azure;
    let mut machine = Setup::for_vm(azure.clone(), INSTANCE).with(BY_IP).start().await;
    machine.ready().await;
    assert_eq!(azure.with(|cloud| listed_addresses(cloud, "weir")), [INSTANCE.address()]);
    machine.terminate();
    machine.wait_for_exit().await;
    assert_eq!(azure.with(|cloud| listed_addresses(cloud, "weir")).len(), 0);
    let writes = azure.calls().into_iter().filter(|call| call.method == "PUT");
    assert!(writes.into_iter().all(|call| call.operation == OP_POOL));
}
