//! Private DNS zones, record sets, and virtual network links.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::azure::answer::{ServiceResult, defaults, fail, list, object_member, put, text};
use crate::azure::path::{Path, above, name, parent, same};
use crate::azure::rights::check_join;
use crate::azure::state::{AzureState, End};

/// Validates a record set, and sets the members that Azure sets.
pub fn check_record(path: &Path, body: &mut Value) -> ServiceResult<Vec<String>> {
    let addresses = list(body, "/properties/aRecords").iter();
    let mut addresses = addresses.map(|record| text(record, "/ipv4Address"));
    if let Some(bad) = addresses.find(|address| address.parse::<Ipv4Addr>().is_err()) {
        let why = format!("The value '{bad}' of record set '{}' is not valid.", path.name());
        return fail(400, "BadRequest", why);
    }
    let ttl = body.pointer("/properties/ttl").and_then(Value::as_u64);
    if !ttl.is_some_and(|ttl| (1..=2_147_483_647).contains(&ttl)) {
        return fail(400, "BadRequest", "The TTL of a record set is from 1 to 2147483647.");
    }
    let zone = path.steps.get(1).map_or("", String::as_str);
    let properties = object_member(body, "properties");
    let fqdn =
        if path.name() == "@" { format!("{zone}.") } else { format!("{}.{zone}.", path.name()) };
    put(properties, "fqdn", Some(fqdn.into()));
    put(properties, "isAutoRegistered", Some(json!(false)));
    Ok(Vec::new())
}

/// Returns true for the path that lists all records of a zone.
pub fn is_list_of_all(path: &Path) -> bool {
    path.types().eq_ignore_ascii_case("privateDnsZones/ALL")
}

/// Returns true if `other` is a record in the zone whose list of all records has the id `list`.
pub fn is_listed(list: &str, other: &str) -> bool {
    let within = same(parent(other), above(list));
    within && Path::parse(other).is_some_and(|other| is_record(&other.types()))
}

/// Creates the SOA record that every zone has.
pub fn create_soa(cloud: &mut AzureState, zone: &str) {
    let id = format!("{zone}/SOA/@");
    if cloud.find(&id).is_none() {
        let record = json!({ "email": "azureprivatedns-host.microsoft.com", "serialNumber": 1 });
        cloud.write(&id, json!({ "properties": { "ttl": 3600, "soaRecord": record } }));
    }
}

/// Validates a virtual network link, and sets the members that Azure sets.
pub fn check_link(cloud: &AzureState, path: &Path, body: &mut Value) -> ServiceResult<Vec<String>> {
    let network = text(body, "/properties/virtualNetwork/id").to_owned();
    if cloud.find(&network).is_none() {
        let why = format!("Virtual network {network} of link '{}' was not found.", path.name());
        return fail(400, "BadRequest", why);
    }
    check_join(cloud, path, "virtualNetworks/join/action", &network)?;
    let properties = object_member(body, "properties");
    put(properties, "virtualNetworkLinkState", Some("Completed".into()));
    defaults(properties, [("registrationEnabled", json!(false))]);
    Ok(Vec::new())
}

/// Returns the failure of linking a network to two zones of one name, which Azure reports only
/// while the operation runs.
pub fn link_failure(cloud: &AzureState, path: &Path, body: &Value) -> Option<End> {
    let zone = path.steps.get(1).map_or("", String::as_str);
    let network = text(body, "/properties/virtualNetwork/id");
    let mut others = cloud.resources.iter().filter(|resource| {
        let to = text(&resource.body, "/properties/virtualNetwork/id");
        !same(&resource.id, &path.id())
            && name(parent(&resource.id)).eq_ignore_ascii_case(zone)
            && resource.id.contains("/virtualNetworkLinks/")
            && same(to, network)
    });
    others.next()?;
    let message = format!(
        "A virtual network cannot be linked to multiple zones with overlapping namespaces. You \
         tried to link virtual network with '{zone}' and '{zone}' zones."
    );
    Some(End::Fail { code: "BadRequest".to_owned(), message })
}

/// Returns true for the types of record sets, which are deleted with their zone.
pub fn is_record(types: &str) -> bool {
    let records = ["privateDnsZones/A", "privateDnsZones/SOA", "privateDnsZones/TXT"];
    records.iter().any(|t| types.eq_ignore_ascii_case(t))
}
