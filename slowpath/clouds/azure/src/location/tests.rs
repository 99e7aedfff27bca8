//! Selection of the IP configuration and the load balancer; the rest is tested in
//! `tests/runner.rs`.

use serde_json::json;

use super::*;
use clouds::runner::SearchError;

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";

fn nic(addresses: &[&str]) -> Nic {
    let id = format!("{GROUP}/networkInterfaces/nic");
    let part = |(at, address): (usize, &&str)| {
        json!({ "id": format!("{id}/ipConfigurations/{at}"), "properties": {
            "privateIPAddress": address,
            "subnet": { "id": format!("{GROUP}/virtualNetworks/v/subnets/s") },
        }})
    };
    let parts: Vec<Value> = addresses.iter().enumerate().map(part).collect();
    let body = json!({ "properties": { "ipConfigurations": parts } });
    Nic { id: ResourceId::parse(&id).unwrap(), body, managed: false }
}

fn found(
    configured: &[&str],
    on_nic: &[&str],
    family: Family,
) -> Result<(String, IpAddr), LocationError> {
    let addresses = configured.iter().map(|address| address.parse().unwrap()).collect();
    let ingress = Ingress { mac: [0; 6], addresses };
    let (id, address, network) = find_configuration(family, &ingress, &nic(on_nic))?;
    assert_eq!(network.name(), "v");
    Ok((id.name().to_owned(), address))
}

#[test]
fn ip_configuration_matches_by_address_or_prefix() {
    let on_nic = ["172.20.2.4", "172.20.2.16/28", "fd00::4"];
    let at = |text: &str, address: &str| (text.to_owned(), address.parse().unwrap());
    let v4 = |configured: &[&str]| found(configured, &on_nic, Family::V4);
    assert_eq!(v4(&["172.20.2.4"]).unwrap(), at("0", "172.20.2.4"));
    assert_eq!(v4(&["172.20.2.30"]).unwrap(), at("1", "172.20.2.30"));
    // The first configured address that the interface has is used.
    assert_eq!(v4(&["172.20.2.99", "172.20.2.17"]).unwrap(), at("1", "172.20.2.17"));
    let v6 = found(&["172.20.2.4", "fd00::4"], &on_nic, Family::V6).unwrap();
    assert_eq!(v6, at("2", "fd00::4"));
    for (configured, on_nic, family) in [
        (vec!["172.20.2.33"], on_nic.to_vec(), Family::V4),
        (vec!["172.20.2.4"], on_nic.to_vec(), Family::V6),
        (vec![], on_nic.to_vec(), Family::V4),
        (vec!["172.20.2.4"], vec!["", "x", "172.20.2.4/x", "fd00::4/200"], Family::V4),
    ] {
        let error = found(&configured, &on_nic, family).unwrap_err();
        assert!(matches!(error, LocationError::NoAddress { .. }), "{error}");
        assert!(!error.is_temporary() && error.no_answer().is_none());
    }
}

#[test]
fn errors_other_than_absent_give_no_information_about_the_location() {
    let error =
        |kind| LocationError::from(operations::MACHINES_GET.operation.failed(kind, "C", "m"));
    for (kind, no_information, temporary) in [
        (Failure::Transient, true, true),
        (Failure::Throttled, true, true),
        (Failure::Denied, true, false),
        (Failure::Invalid, true, false),
        (Failure::Absent, false, false),
    ] {
        let error = error(kind);
        assert_eq!(
            (error.no_answer().is_some(), error.is_temporary()),
            (no_information, temporary),
            "{kind:?}"
        );
    }
    assert!(LocationError::NoIngress.is_temporary());
}

#[test]
fn the_load_balancer_is_the_one_that_has_all_pools() {
    let balancer = |name: &str, pools: &[&str]| {
        let pools: Vec<Value> = pools.iter().map(|pool| json!({ "name": pool })).collect();
        json!({ "name": name, "sku": { "name": "gateway" },
                "properties": { "backendAddressPools": pools } })
    };
    let pool_named = |ipv6, name: &str| AzurePool { ipv6, name: name.into(), gateway: "g".into() };
    let both = [pool_named(false, "weir"), pool_named(true, "weir6")];
    let select_balancer =
        |all: &[Value]| select_balancer(&both, "g", None, all.to_vec()).map_err(|e| e.to_string());
    let (full, four) = (balancer("a", &["WEIR", "weir6"]), balancer("b", &["weir"]));
    assert_eq!(select_balancer(&[four.clone(), full.clone()]).unwrap()["name"], "a");
    let separate = select_balancer(&[four.clone(), balancer("c", &["weir6"])]).unwrap_err();
    assert!(separate.contains("has both pools; they are at b, c"), "{separate}");
    let missing = select_balancer(&[four]).unwrap_err();
    assert!(missing.contains("IPv6 pool \"weir6\"; the pools are weir; set azure.pool_ipv6"));
    let several = select_balancer(&[full.clone(), balancer("d", &["weir", "weir6"])]).unwrap_err();
    assert!(
        several.starts_with("2 gateway load balancers have the configured pools: a, d"),
        "{several}"
    );
}
