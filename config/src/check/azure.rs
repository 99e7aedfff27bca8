//! Validation of the `[azure]` section against the formats that Azure accepts, and against the
//! gateways.

use std::time::Duration;

use super::validator::Validator;
use crate::checked::{
    Azure, AzureEndpoints, AzureLifecycleSettings, AzurePool, Balancer, Gateway, GatewayKind,
};
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Azure, gateways: &[Gateway]) -> Azure {
    let pools = [
        (false, &file.pool, &file.gateway, "azure.gateway"),
        (true, &file.pool_ipv6, &file.gateway_ipv6, "azure.gateway_ipv6"),
    ];
    let pools: Vec<AzurePool> = pools
        .into_iter()
        .filter(|(_, name, ..)| !name.is_empty())
        .map(|(ipv6, name, written, key)| AzurePool {
            ipv6,
            name: name.clone(),
            gateway: pool_gateway(validator, (key, written), ipv6, gateways),
        })
        .collect();
    match &pools[..] {
        [] => {
            let remedy = "set azure.pool to the name of the backend pool, or azure.pool_ipv6";
            validator.reject("azure", "no backend pool is set", remedy);
        }
        [one, other] if one.gateway == other.gateway && !one.gateway.is_empty() => {
            let fault = "the IPv4 pool belongs to this gateway already";
            let remedy = "write a [[gateway]] for each pool: each has its own tunnels";
            validator.reject("azure.gateway_ipv6", fault, remedy);
        }
        _ => {}
    }
    if file.idle_s > file.drain_cap_s {
        let remedy = format!("allowed: at most azure.drain_cap_s, {}", file.drain_cap_s);
        validator.reject("azure.idle_s", "longer than the drain may take", &remedy);
    }
    let non_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
    Azure {
        pools,
        balancer: check_balancer(validator, &file),
        membership: file.membership,
        credential: file.credential,
        client_id: non_empty(&file.client_id),
        endpoints: check_endpoints(validator, &file),
        lifecycle: AzureLifecycleSettings {
            on_lost: file.on_lost,
            remove: file.remove,
            drain_cap: Duration::from_secs(file.drain_cap_s.into()),
            idle: Duration::from_secs(file.idle_s.into()),
            events: file.events,
            preboot: file.preboot_health,
            tunnels: file.tunnels,
        },
    }
}

/// Returns the gateway to which a pool belongs: the named one, or without a name the only
/// candidate. Otherwise reports a problem and returns an empty name.
fn pool_gateway(
    validator: &mut Validator,
    (key, written): (&str, &String),
    ipv6: bool,
    gateways: &[Gateway],
) -> String {
    let fits = |gateway: &&Gateway| {
        gateway.kind == GatewayKind::Azure
            && gateway.tunnels.iter().any(|tunnel| tunnel.local.is_ipv6() == ipv6)
    };
    let candidates: Vec<&str> = gateways.iter().filter(fits).map(|g| g.name.as_str()).collect();
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    match (written.is_empty(), &candidates[..]) {
        (true, [one]) => return (*one).to_owned(),
        (false, candidates) if candidates.contains(&written.as_str()) => return written.clone(),
        (_, []) => {
            let remedy = format!(
                "write a [[gateway]] of kind \"azure\" at an {family} address of an arm; az \
                 network lb address-pool show prints the pool's tunnels"
            );
            validator.reject(key, "no gateway matches this pool", &remedy);
        }
        (true, many) => {
            let remedy = format!("set it to one of {}", many.join(", "));
            validator.reject(key, "several gateways match this pool", &remedy);
        }
        (false, many) => {
            let remedy = format!("allowed: {}", many.join(", "));
            let fault = format!("not a gateway of kind \"azure\" with an {family} address");
            validator.reject(key, &fault, &remedy);
        }
    }
    String::new()
}

fn check_balancer(validator: &mut Validator, file: &file::Azure) -> Balancer {
    let written = &file.load_balancer;
    if written.starts_with('/') {
        let parts: Vec<&str> = written.split('/').collect();
        let is_valid = parts.len() == 9
            && parts[1].eq_ignore_ascii_case("subscriptions")
            && parts[7].eq_ignore_ascii_case("loadBalancers")
            && parts[1..].iter().all(|part| !part.is_empty());
        if !is_valid {
            let remedy = "write its name, or \"/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/\
                           providers/Microsoft.Network/loadBalancers/NAME\"";
            validator.reject("azure.load_balancer", "not the ID of a load balancer", remedy);
        } else if !file.resource_group.is_empty() {
            let fault = "azure.load_balancer is an ID, which contains the resource group";
            validator.reject("azure.resource_group", fault, "leave one of them out");
        }
        return Balancer::Id(written.clone());
    }
    let non_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
    Balancer::Search { group: non_empty(&file.resource_group), name: non_empty(written) }
}

fn check_endpoints(validator: &mut Validator, file: &file::Azure) -> AzureEndpoints {
    let metadata = check_url(validator, "azure.metadata", &file.metadata, "http://");
    let arm = (!file.resource_manager.is_empty()).then(|| {
        // Tokens are only sent to servers whose certificate is verified.
        check_url(validator, "azure.resource_manager", &file.resource_manager, "https://")
    });
    let version = &file.imds_version;
    let date = version.split('-').map(str::len).eq([4, 2, 2])
        && version.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if !date {
        let remedy = "write a version of the metadata service, for example \"2023-07-01\"";
        validator.reject("azure.imds_version", "not an api-version", remedy);
    }
    AzureEndpoints { resource_manager: arm, metadata, imds_version: version.clone() }
}

/// Validates the URL of a service and removes trailing slashes.
pub(super) fn check_url(validator: &mut Validator, key: &str, text: &str, scheme: &str) -> String {
    let host = text.strip_prefix(scheme);
    if host.is_none_or(|host| host.is_empty() || host.contains(char::is_whitespace)) {
        let remedy = format!("write a URL that begins with {scheme}");
        validator.reject(key, "not the URL of a service", &remedy);
    }
    text.trim_end_matches('/').to_owned()
}
