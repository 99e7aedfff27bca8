//! Validation of the `[aws]` section against the formats that AWS accepts.

use std::time::Duration;

use super::validator::Validator;
use crate::checked::{Aws, AwsLifecycleSettings, AwsMode, AwsRoles, AwsUse, GroupBy};
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Aws) -> Aws {
    let mode = check_mode(validator, &file);
    if !is_tag(&file.tag_prefix, 100) || file.tag_prefix.starts_with("aws") {
        let remedy = "write 1 to 100 letters, digits and `._-`, not beginning with `aws`";
        validator.reject("aws.tag_prefix", "not a valid prefix of a tag key", remedy);
    }
    let mut interface = |key: &str, text: &String| {
        let is_valid = text.strip_prefix("eni-").is_some_and(is_hex);
        if !text.is_empty() && !is_valid {
            let remedy = "write its ID, \"eni-0123456789abcdef0\", or remove the key";
            validator.reject(key, "not the ID of a network interface", remedy);
        }
        is_valid.then(|| text.clone())
    };
    let roles = AwsRoles {
        management: interface("aws.management", &file.management),
        ingress: interface("aws.ingress", &file.ingress),
        egress: interface("aws.egress", &file.egress),
    };
    let configured = [
        ("aws.management", &roles.management),
        ("aws.ingress", &roles.ingress),
        ("aws.egress", &roles.egress),
    ];
    let configured =
        configured.into_iter().filter_map(|(key, id)| Some((key.to_owned(), id.as_ref()?)));
    validator.unique(&configured.collect::<Vec<_>>(), "interface");
    if file.idle_s > file.drain_cap_s {
        let remedy = format!("allowed: at most aws.drain_cap_s, {}", file.drain_cap_s);
        validator.reject("aws.idle_s", "longer than the drain may take", &remedy);
    }
    Aws {
        mode,
        tag_prefix: file.tag_prefix,
        roles,
        lifecycle: AwsLifecycleSettings {
            on_lost: file.on_lost,
            drain_cap: Duration::from_secs(file.drain_cap_s.into()),
            idle: Duration::from_secs(file.idle_s.into()),
            hook: file.hook,
        },
    }
}

fn check_mode(validator: &mut Validator, file: &file::Aws) -> AwsMode {
    let cluster = file.cluster.clone();
    if !cluster.is_empty() && !is_tag(&cluster, 256) {
        let remedy = "write 1 to 256 letters, digits and `._-`";
        validator.reject("aws.cluster", "not a valid tag value", remedy);
    }
    match (file.mode, cluster.is_empty(), file.target_group.is_empty()) {
        (AwsUse::Gateway, true, true) => {
            let remedy = "set aws.cluster to the value of the group's tag, or aws.target_group \
                           to its ARN";
            validator.reject("aws", "no target group is set", remedy);
        }
        (AwsUse::Gateway, false, false) => {
            let fault = "aws.cluster selects the target group as well";
            validator.reject("aws.target_group", fault, "leave one of them out");
        }
        (AwsUse::Gateway, true, false) => {
            if !is_group(&file.target_group) {
                let remedy = "write the full ARN, \"arn:aws:elasticloadbalancing:eu-central-1:\
                               123456789012:targetgroup/weir/0123456789abcdef\"";
                validator.reject("aws.target_group", "not the ARN of a target group", remedy);
            }
            return AwsMode::Gateway(GroupBy::Arn(file.target_group.clone()));
        }
        (AwsUse::Gateway, false, true) => {}
        (AwsUse::Routes, no_cluster, no_group) => {
            if no_cluster {
                let remedy = "set it to the value of the tag that all peers have";
                validator.reject(
                    "aws.cluster",
                    "mode \"routes\" requires it to find peers",
                    remedy,
                );
            }
            if !no_group {
                let remedy = "leave it out, or set aws.mode = \"gateway\"";
                validator.reject("aws.target_group", "mode \"routes\" has no target group", remedy);
            }
            return AwsMode::Routes { cluster };
        }
    }
    AwsMode::Gateway(GroupBy::Cluster(cluster))
}

/// Returns whether the text has 1 to `max_len` letters, digits and `._-`. AWS permits more
/// characters in tags.
fn is_tag(text: &str, max_len: usize) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !text.is_empty() && text.len() <= max_len && text.bytes().all(good)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether the text is the ARN of a target group,
/// `arn:PARTITION:elasticloadbalancing:REGION:ACCOUNT:targetgroup/NAME/ID`.
fn is_group(arn: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    let [scheme, partition, service, region, account, group] = parts[..] else { return false };
    let named = matches!(group.split('/').collect::<Vec<_>>()[..], ["targetgroup", name, id]
        if !name.is_empty() && !id.is_empty());
    scheme == "arn"
        && partition.starts_with("aws")
        && service == "elasticloadbalancing"
        && !region.is_empty()
        && account.len() == 12
        && named
}
