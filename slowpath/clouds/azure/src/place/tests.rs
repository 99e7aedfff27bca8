//! Selection of the IP configuration; the rest is tested in `tests/runner.rs`.

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

fn found(ours: &[&str], theirs: &[&str], family: Family) -> Result<(String, IpAddr), PlaceError> {
    let addresses = ours.iter().map(|address| address.parse().unwrap()).collect();
    let ingress = Ingress { mac: [0; 6], addresses };
    let (id, address, network) = configuration(family, &ingress, &nic(theirs))?;
    assert_eq!(network.name(), "v");
    Ok((id.name().to_owned(), address))
}

#[test]
fn a_configuration_is_ours_by_its_address_or_its_whole_network() {
    let theirs = ["172.20.2.4", "172.20.2.16/28", "fd00::4"];
    let at = |text: &str, address: &str| (text.to_owned(), address.parse().unwrap());
    let v4 = |ours: &[&str]| found(ours, &theirs, Family::V4);
    assert_eq!(v4(&["172.20.2.4"]).unwrap(), at("0", "172.20.2.4"));
    assert_eq!(v4(&["172.20.2.30"]).unwrap(), at("1", "172.20.2.30"));
    // The first configured address that exists.
    assert_eq!(v4(&["172.20.2.99", "172.20.2.17"]).unwrap(), at("1", "172.20.2.17"));
    let v6 = found(&["172.20.2.4", "fd00::4"], &theirs, Family::V6).unwrap();
    assert_eq!(v6, at("2", "fd00::4"));
    for (ours, theirs, family) in [
        (vec!["172.20.2.33"], theirs.to_vec(), Family::V4),
        (vec!["172.20.2.4"], theirs.to_vec(), Family::V6),
        (vec![], theirs.to_vec(), Family::V4),
        (vec!["172.20.2.4"], vec!["", "x", "172.20.2.4/x", "fd00::4/200"], Family::V4),
    ] {
        let error = found(&ours, &theirs, family).unwrap_err();
        assert!(matches!(error, PlaceError::NoAddress { .. }), "{error}");
        assert!(!error.passes() && error.silence().is_none());
    }
}

#[test]
fn what_azure_did_not_tell_is_silence_and_what_it_told_is_not() {
    let error = |kind| PlaceError::from(names::MACHINES_GET.operation.failed(kind, "C", "m"));
    for (kind, silent, passes) in [
        (Failure::Transient, true, true),
        (Failure::Throttled, true, true),
        (Failure::Denied, true, false),
        (Failure::Invalid, true, false),
        (Failure::Absent, false, false),
    ] {
        let error = error(kind);
        assert_eq!((error.silence().is_some(), error.passes()), (silent, passes), "{kind:?}");
    }
    assert!(PlaceError::NoIngress.passes());
}

#[test]
fn the_load_balancer_is_the_one_that_has_all_pools() {
    let balancer = |name: &str, pools: &[&str]| {
        let pools: Vec<Value> = pools.iter().map(|pool| json!({ "name": pool })).collect();
        json!({ "name": name, "sku": { "name": "gateway" },
                "properties": { "backendAddressPools": pools } })
    };
    let wanted = |ipv6, name: &str| AzurePool { ipv6, name: name.into(), gateway: "g".into() };
    let both = [wanted(false, "weir"), wanted(true, "weir6")];
    let choose = |all: &[Value]| choose(&both, "g", None, all.to_vec()).map_err(|e| e.to_string());
    let (whole, four) = (balancer("a", &["WEIR", "weir6"]), balancer("b", &["weir"]));
    assert_eq!(choose(&[four.clone(), whole.clone()]).unwrap()["name"], "a");
    let apart = choose(&[four.clone(), balancer("c", &["weir6"])]).unwrap_err();
    assert!(apart.contains("has both pools; they are at b, c"), "{apart}");
    let missing = choose(&[four]).unwrap_err();
    assert!(missing.contains("IPv6 pool \"weir6\"; the pools are weir; set azure.pool_ipv6"));
    let several = choose(&[whole.clone(), balancer("d", &["weir", "weir6"])]).unwrap_err();
    assert!(several.starts_with("2 gateway load balancers have our pools: a, d"), "{several}");
}
