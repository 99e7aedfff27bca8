//! Changes to resource bodies; the writes are tested in `tests/membership.rs`.

use serde_json::json;

use super::*;
use crate::id::ResourceId;
use crate::membership::AdminState;
use crate::types::Family;

const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";

fn id(text: &str) -> ResourceId {
    ResourceId::parse(&format!("{GROUP}/{text}")).unwrap()
}

fn own_pool() -> Pool {
    Pool {
        family: Family::V4,
        gateway: "gw".into(),
        id: id("loadBalancers/gw/backendAddressPools/weir"),
        configuration: id("networkInterfaces/nic/ipConfigurations/a"),
        address: "10.0.0.4".parse().unwrap(),
        network: id("virtualNetworks/v"),
    }
}

#[test]
fn interface_gets_one_pool_reference_in_the_right_ip_configuration() {
    let pool = own_pool();
    let other = json!({ "id": id("loadBalancers/x/backendAddressPools/weir").as_str() });
    let mut nic = json!({ "properties": { "ipConfigurations": [
        { "id": id("networkInterfaces/nic/ipConfigurations/b").as_str() },
        { "id": pool.configuration.as_str().to_uppercase().replacen("/S", "/s", 1),
          "properties": { "loadBalancerBackendAddressPools": null, "x": 1 } },
    ]}});
    let before = nic.clone();
    assert!(set_pool_references(&mut nic, &[&pool], true).unwrap());
    let properties = &nic["properties"]["ipConfigurations"][1]["properties"];
    assert_eq!(properties["loadBalancerBackendAddressPools"], json!([{ "id": pool.id.as_str() }]));
    assert_eq!(
        nic["properties"]["ipConfigurations"][0],
        before["properties"]["ipConfigurations"][0]
    );
    assert!(!set_pool_references(&mut nic, &[&pool], true).unwrap(), "it is already set");
    let part = &mut nic["properties"]["ipConfigurations"][1]["properties"];
    part["loadBalancerBackendAddressPools"].as_array_mut().unwrap().push(other.clone());
    assert!(set_pool_references(&mut nic, &[&pool], false).unwrap());
    let left = &nic["properties"]["ipConfigurations"][1]["properties"];
    assert_eq!(left["loadBalancerBackendAddressPools"], json!([other]));
    assert!(!set_pool_references(&mut nic, &[&pool], false).unwrap());
    for wrong in [json!({}), json!([]), json!({ "properties": { "ipConfigurations": [{}] } })] {
        let error = set_pool_references(&mut wrong.clone(), &[&pool], true).unwrap_err().error;
        assert_eq!(error.code, "MalformedResponse", "{wrong}");
    }
}

#[test]
fn admin_state_is_set_on_own_entry_only() {
    let pool = own_pool();
    let entry = |name: &str, address: &str, admin: Value| {
        let properties = json!({ "ipAddress": address, "adminState": admin });
        json!({ "name": name, "properties": properties })
    };
    let listed = |all: &[Value]| json!({ "properties": { "loadBalancerBackendAddresses": all } });
    let other = entry("o", "10.0.0.5", json!("Down"));
    let mut body = listed(&[other.clone(), entry("e", "10.0.0.4", Value::Null)]);
    assert!(!set_admin_state(&mut body, &pool, false).unwrap(), "it is not down");
    assert!(set_admin_state(&mut body, &pool, true).unwrap());
    assert_eq!(body, listed(&[other.clone(), entry("e", "10.0.0.4", json!("Down"))]));
    assert!(!set_admin_state(&mut body, &pool, true).unwrap());
    assert!(set_admin_state(&mut body, &pool, false).unwrap());
    assert_eq!(body, listed(&[other.clone(), entry("e", "10.0.0.4", json!("None"))]));
    // `Up` was set by another party.
    let mut up = listed(&[entry("e", "10.0.0.4", json!("Up"))]);
    assert!(!set_admin_state(&mut up, &pool, false).unwrap());
    let mut without = listed(std::slice::from_ref(&other));
    assert!(!set_admin_state(&mut without, &pool, true).unwrap(), "not a member");
    // An entry by interface, in a pool that lists no addresses, has no administrative state.
    let of = json!([{ "id": pool.configuration.as_str() }]);
    let mut unlisted = json!({ "name": "weir", "properties": { "backendIPConfigurations": of } });
    let error = set_admin_state(&mut unlisted, &pool, true).unwrap_err().error;
    assert!(error.message.contains("only the probe keeps new flows away"), "{error}");
    assert_eq!(own_entry(&entries(&unlisted), &pool).map(|e| e.admin), Some(AdminState::None));
}

#[test]
fn other_members_get_readable_names() {
    let pool = own_pool();
    let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/\
               virtualMachineScaleSets/ss/virtualMachines/3/networkInterfaces/n/ipConfigurations/i";
    let of =
        json!([{ "id": set }, { "id": id("networkInterfaces/n2/ipConfigurations/i").as_str() }]);
    let all = entries(&json!({ "properties": { "backendIPConfigurations": of } }));
    let rejected = check_membership_mode(MembershipMode::Ip, &pool, &all).unwrap_err();
    assert_eq!((rejected.kind, rejected.code.as_str()), (Failure::Invalid, "OtherMembership"));
    assert!(rejected.message.contains("members by nic (ss_3, n2)"), "{rejected}");
    assert!(
        check_membership_mode(MembershipMode::Nic, &pool, &all).is_ok()
            && check_membership_mode(MembershipMode::Ip, &pool, &[]).is_ok()
    );
}

#[test]
fn same_address_in_another_network_is_not_own() {
    let pool = own_pool();
    let of = |network: &str| {
        let network = json!({ "id": id(network).as_str() });
        let properties = json!({ "ipAddress": "10.0.0.4", "virtualNetwork": network });
        let listed = json!([{ "name": "e", "properties": properties }]);
        entries(&json!({ "properties": { "loadBalancerBackendAddresses": listed } }))
    };
    assert!(own_entry(&of("virtualNetworks/V"), &pool).is_some());
    assert!(own_entry(&of("virtualNetworks/w"), &pool).is_none());
}
