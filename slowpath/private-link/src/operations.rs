//! The operations of [`azure::operations`] that private links need, by side.

use azure::operations::ArmOperation;
pub(crate) use azure::operations::{
    ENDPOINTS_DELETE, ENDPOINTS_GET, ENDPOINTS_PUT, INTERFACES_GET, LINK_CONNECTIONS_LIST,
    LINK_CONNECTIONS_PUT, LINK_SERVICES_DELETE, LINK_SERVICES_GET, LINK_SERVICES_PUT,
    LOAD_BALANCERS_LIST, NETWORKS_GET, RECORDS_DELETE, RECORDS_GET, RECORDS_LIST, RECORDS_PUT,
    SUBNETS_GET, SUBNETS_LIST, SUBNETS_PUT, TEXTS_GET, TEXTS_PUT, ZONE_LINKS_DELETE,
    ZONE_LINKS_GET, ZONE_LINKS_LIST, ZONE_LINKS_PUT, ZONES_DELETE, ZONES_GET, ZONES_PUT, in_group,
};

/// Operations of the service side. The role of the appliance's identity has to permit them.
pub const SERVICE_SIDE: &[ArmOperation] = &[
    LOAD_BALANCERS_LIST,
    NETWORKS_GET,
    SUBNETS_GET,
    SUBNETS_LIST,
    SUBNETS_PUT,
    LINK_SERVICES_GET,
    LINK_SERVICES_PUT,
    LINK_SERVICES_DELETE,
    LINK_CONNECTIONS_LIST,
    LINK_CONNECTIONS_PUT,
];
/// Operations of the consumer side.
pub const ENDPOINT_SIDE: &[ArmOperation] = &[
    ENDPOINTS_GET,
    ENDPOINTS_PUT,
    ENDPOINTS_DELETE,
    INTERFACES_GET,
    ZONES_GET,
    ZONES_PUT,
    ZONES_DELETE,
    RECORDS_LIST,
    RECORDS_GET,
    RECORDS_PUT,
    RECORDS_DELETE,
    ZONE_LINKS_LIST,
    ZONE_LINKS_GET,
    ZONE_LINKS_PUT,
    ZONE_LINKS_DELETE,
];
/// Additional operations for a lease.
pub const LEASE: &[ArmOperation] = &[TEXTS_GET, TEXTS_PUT];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    #[test]
    fn role_lists_exactly_the_used_permissions() {
        let path = "../../config/azure/role-private-link.json";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let role: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let actions = role["Actions"].as_array().unwrap();
        let allowed: Vec<&str> = actions.iter().map(|action| action.as_str().unwrap()).collect();
        let used = [SERVICE_SIDE, ENDPOINT_SIDE, LEASE].concat();
        let needed: Vec<&str> = azure::operations::permissions(&used).into_iter().collect();
        assert_eq!(allowed, needed, "sorted, each once");
        assert!(allowed.iter().all(|action| !action.contains('*')), "{allowed:?}");
        let names: BTreeSet<&str> = used.iter().map(|used| used.operation.name).collect();
        assert!(names.contains("PrivateLinkServices_CreateOrUpdate"), "{names:?}");
    }
}
