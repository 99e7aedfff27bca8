//! Tests of the `[private_link]` section: valid values, and the messages of errors.
#![expect(clippy::panic, reason = "a failing test panics")]

use std::time::Duration;

use config::checked::{AzureCredential, PrivateLink, PrivateLinkOwner};
use config::private_link::SpecDefaults;

const VALID: &str = "name = \"weir-1\"\n[ingress]\ndevice = \"net_null0\"\n\
                     address = [\"10.0.1.10/24\"]\nmtu = 9001\n[fastpath]\nlcores = [1]\n";
const ZONE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/\
                    privateDnsZones/weir.lease";

fn load_section(text: &str) -> Option<PrivateLink> {
    let config = config::from_toml(&format!("{VALID}{text}"));
    config.unwrap_or_else(|e| panic!("{}", e.render())).private_link
}

#[test]
fn empty_section_makes_this_appliance_the_owner_and_uses_metadata() {
    assert_eq!(load_section(""), None, "private links are not configured");
    let own = load_section("[private_link]\n").unwrap();
    assert_eq!(own.fleet, "weir");
    assert_eq!(own.owner, PrivateLinkOwner::Named("weir-1".into()));
    assert_eq!((own.credential, own.client_id), (AzureCredential::Auto, None));
    assert_eq!(own.endpoints.metadata, "http://169.254.169.254");
    assert_eq!((own.endpoints.resource_manager, own.environment), (None, None));
}

#[test]
fn inherits_from_the_azure_section_unless_overridden() {
    let gateway = "[[gateway]]\nname = \"gw\"\nkind = \"azure\"\nsources = [\"10.0.1.9/32\"]\n";
    let azure = "[azure]\npool = \"weir\"\ncredential = \"managed\"\nclient_id = \"one\"\n\
                 resource_manager = \"https://arm.local\"\nmetadata = \"http://imds.local\"\n";
    let both =
        |text: &str| load_section(&format!("{gateway}{azure}[private_link]\n{text}")).unwrap();
    let same = both("");
    assert_eq!((same.credential, same.client_id), (AzureCredential::Managed, Some("one".into())));
    assert_eq!(same.endpoints.resource_manager.as_deref(), Some("https://arm.local"));
    assert_eq!(same.endpoints.metadata, "http://imds.local");
    let other = both(&format!(
        "credential = \"workload\"\nclient_id = \"two\"\nendpoint_client_id = \"three\"\n\
         resource_manager = \"https://other.local/\"\nlease_zone = \"{ZONE}\"\n\
         environment = \"AzureChinaCloud\"\nfleet = \"east\""
    ));
    assert_eq!(other.credential, AzureCredential::Workload);
    assert_eq!(other.client_id.as_deref(), Some("two"));
    assert_eq!(other.endpoint_client_id.as_deref(), Some("three"));
    assert_eq!(other.endpoints.resource_manager.as_deref(), Some("https://other.local"));
    assert!(matches!(other.owner, PrivateLinkOwner::Lease(zone) if zone.as_str() == ZONE));
}

#[test]
fn loads_defaults_of_objects_and_lease_time() {
    let empty = load_section("[private_link]\n").unwrap();
    assert_eq!((empty.defaults, empty.lease), (SpecDefaults::default(), Duration::from_secs(90)));
    let section = load_section(&format!(
        "[private_link]\nlease_zone = \"{ZONE}\"\nlease_s = 15\nresource_group = \"north\"\n\
         subscription = \"550e8400-e29b-41d4-a716-446655440000\"\nlocation = \"westeurope\"\n"
    ));
    let PrivateLink { defaults, lease, .. } = section.unwrap();
    let found = (defaults.resource_group.as_str(), defaults.location.as_str());
    assert_eq!(found, ("north", "westeurope"));
    assert_eq!((defaults.subscription.len(), lease), (36, Duration::from_secs(15)));
}

#[test]
fn reports_invalid_keys() {
    let assert_error = |text: &str, parts: &[&str]| {
        let error = config::from_toml(&format!("{VALID}[private_link]\n{text}")).unwrap_err();
        let error = error.to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "no {part:?} in:\n{error}"));
        assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
    };
    assert_error("fleet = \"\"", &["private_link.fleet"]);
    assert_error("owner = \"A B\"", &["private_link.owner"]);
    assert_error(
        "lease_zone = \"weir.lease\"",
        &["private_link.lease_zone", "privateDnsZones/NAME"],
    );
    let both = format!("owner = \"weir-2\"\nlease_zone = \"{ZONE}\"");
    assert_error(&both, &["private_link.lease_zone", "leave one of them out"]);
    assert_error("lease_s = 14", &["private_link.lease_s", "15"]);
    assert_error("subscription = \"mine\"", &["private_link.subscription", "az account list"]);
    assert_error("resource_group = \"rg.\"", &["private_link.resource_group"]);
    assert_error("location = \"West Europe\"", &["private_link.location", "westeurope"]);
    assert_error("environment = \"Azure\"", &["private_link.environment", "AzurePublicCloud"]);
    assert_error("resource_manager = \"http://x\"", &["private_link.resource_manager", "https://"]);
    assert_error("metadata = \"https://x\"", &["private_link.metadata", "http://"]);
    assert_error("credential = \"key\"", &["private_link.credential", "workload"]);
}
