//! Metadata service of the first instance.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::json;

use crate::state::{AwsState, Interface};

/// Returns the text at a path; `None` if there is none.
pub fn read_path(cloud: &AwsState, path: &str) -> Option<String> {
    let own = cloud.instances.first()?;
    let path = path.strip_prefix("/latest/")?;
    if path == "dynamic/instance-identity/document" {
        let document = json!({
            "instanceId": own.id, "region": cloud.region, "availabilityZone": own.zone,
            "accountId": cloud.account, "imageId": "ami-00000000000000001",
            "instanceType": "c7gn.xlarge", "version": "2017-09-30",
        });
        return Some(document.to_string());
    }
    let path = path.strip_prefix("meta-data/")?;
    if let Some(rest) = path.strip_prefix("network/interfaces/macs/") {
        return match rest.split_once('/') {
            None => Some(own.interfaces.iter().map(|n| format!("{}/\n", n.mac)).collect()),
            Some((mac, name)) => {
                let index = own.interfaces.iter().position(|n| n.mac == mac)?;
                interface_text(&own.interfaces[index], index, &own.vpc, name)
            }
        };
    }
    match path {
        "placement/region" => Some(cloud.region.clone()),
        "iam/security-credentials/" | "iam/security-credentials-extended/" => {
            Some("weir".to_owned())
        }
        "iam/security-credentials/weir" | "iam/security-credentials-extended/weir" => {
            let (key, secret) = cloud.keys.first_key_value()?;
            let keys = json!({
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key,
                "SecretAccessKey": secret, "Token": "session",
                "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": "2099-01-01T00:00:00Z",
            });
            Some(keys.to_string())
        }
        "autoscaling/target-lifecycle-state" => cloud.imds.lifecycle.clone(),
        "spot/instance-action" => cloud.imds.spot.clone(),
        "events/recommendations/rebalance" => cloud.imds.rebalance.clone(),
        _ => None,
    }
}

fn interface_text(nic: &Interface, index: usize, vpc: &str, name: &str) -> Option<String> {
    let addresses = |six: bool| {
        let found: Vec<_> =
            nic.addresses.iter().filter(|a| a.contains(':') == six).cloned().collect();
        Some(found.join("\n")).filter(|text| !text.is_empty())
    };
    match name {
        "device-number" => Some(index.to_string()),
        "interface-id" => Some(nic.id.clone()),
        "local-ipv4s" => addresses(false),
        "ipv6s" => addresses(true),
        "subnet-id" => Some(nic.subnet.clone()),
        // The emulated subnets are a /24 and a /64, each around the first address.
        "subnet-ipv4-cidr-block" => {
            let address: Ipv4Addr = addresses(false)?.lines().next()?.parse().ok()?;
            Some(format!("{}/24", Ipv4Addr::from_bits(address.to_bits() & !0xff)))
        }
        "subnet-ipv6-cidr-blocks" => {
            let address: Ipv6Addr = addresses(true)?.lines().next()?.parse().ok()?;
            Some(format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)))
        }
        "vpc-id" => Some(vpc.to_owned()),
        "security-group-ids" => Some(nic.security_groups.join("\n")),
        _ => None,
    }
}
