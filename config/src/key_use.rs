//! Uses of configuration keys that a backup has to know: keys that name secrets, and keys whose
//! values belong to one machine. Each key has its use in the schema, beside its description.

/// The value belongs to one machine: a name, a device, an address, a CPU.
pub(crate) const MACHINE: &str = "machine";
/// The value is a path that may differ between machines.
pub(crate) const MACHINE_PATH: &str = "machine path";
/// Addresses and ports to listen on. They belong to one machine unless they are loopback or the
/// unspecified address.
pub(crate) const LISTEN: &str = "listen";
/// Annotations. Those that set a BGP identifier belong to one machine.
pub(crate) const MACHINE_ANNOTATIONS: &str = "machine annotations";
/// Path of a file with a secret.
pub(crate) const SECRET: &str = "secret";
/// Path of a directory with secrets, which objects name.
pub(crate) const SECRET_FOLDER: &str = "secret folder";
/// Path of a file with certificates, without which secrets have no use.
pub(crate) const CERTIFICATE: &str = "certificate";
/// Path of a directory with certificates, which objects name.
pub(crate) const CERTIFICATE_FOLDER: &str = "certificate folder";

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::{file, schema};

    /// Keys with a name, a path or a list whose values are the same on all machines of a set, or
    /// that a restore replaces (`services`).
    const OF_ALL_MACHINES: [&str; 43] = [
        "api.hosts",
        "aws.cluster",
        "aws.tag_prefix",
        "aws.target_group",
        "azure.client_id",
        "azure.gateway",
        "azure.gateway_ipv6",
        "azure.imds_version",
        "azure.load_balancer",
        "azure.metadata",
        "azure.pool",
        "azure.pool_ipv6",
        "azure.resource_group",
        "azure.resource_manager",
        "control.group",
        "control.operate_group",
        "control.read_group",
        "gateway.name",
        "gateway.sources",
        "health.reserved_sources",
        "labels",
        "load_balancer_classes",
        "log.level",
        "nat.ports",
        "node_ports",
        "private_link.client_id",
        "private_link.endpoint_client_id",
        "private_link.environment",
        "private_link.fleet",
        "private_link.lease_zone",
        "private_link.location",
        "private_link.metadata",
        "private_link.owner",
        "private_link.resource_group",
        "private_link.resource_manager",
        "private_link.subscription",
        "punt.local_ports",
        "region.group",
        "region.user",
        "services",
        "source.name",
        "tables.seed",
        "telemetry.otlp_endpoint",
    ];

    #[test]
    fn every_key_with_a_name_a_path_or_a_list_has_a_use_or_is_of_all_machines() {
        let root = Json::from(schemars::schema_for!(file::File));
        let mut keys = schema::free_keys_without_use(&root);
        keys.sort();
        assert_eq!(
            keys, OF_ALL_MACHINES,
            "a new key: write `#[schemars(extend(\"x-weir\" = ...))]` at it (key_use.rs), or \
             add it to this list if its value is the same on all machines of a set"
        );
        let uses = [
            MACHINE,
            MACHINE_PATH,
            LISTEN,
            MACHINE_ANNOTATIONS,
            SECRET,
            SECRET_FOLDER,
            CERTIFICATE,
            CERTIFICATE_FOLDER,
        ];
        for (key, key_use) in schema::keys_with_use(&root) {
            assert!(uses.contains(&key_use.as_str()), "{key}: {key_use}");
        }
    }
}
