//! Validation of the `[aws]` section against the formats that AWS accepts.

use std::time::Duration;

use super::door::Door;
use crate::checked::{Aws, AwsMode, AwsRoles, AwsUse, GroupBy, Lifecycle};
use crate::file;

pub(super) fn aws(door: &mut Door, file: file::Aws) -> Aws {
    let mode = mode(door, &file);
    if !is_tag(&file.tag_prefix, 100) || file.tag_prefix.starts_with("aws") {
        let allowed = "write 1 to 100 letters, digits and `._-`, not beginning with `aws`";
        door.refuse("aws.tag_prefix", "this can't begin the key of a tag", allowed);
    }
    let mut interface = |key: &str, text: &String| {
        let right = text.strip_prefix("eni-").is_some_and(is_hex);
        if !text.is_empty() && !right {
            let allowed = "write its id, \"eni-0123456789abcdef0\", or leave the key out";
            door.refuse(key, "this is no id of a network interface", allowed);
        }
        right.then(|| text.clone())
    };
    let roles = AwsRoles {
        management: interface("aws.management", &file.management),
        ingress: interface("aws.ingress", &file.ingress),
        egress: interface("aws.egress", &file.egress),
    };
    let given = [
        ("aws.management", &roles.management),
        ("aws.ingress", &roles.ingress),
        ("aws.egress", &roles.egress),
    ];
    let given = given.into_iter().filter_map(|(key, id)| Some((key.to_owned(), id.as_ref()?)));
    door.unique(&given.collect::<Vec<_>>(), "interface");
    if file.quiet_s > file.drain_cap_s {
        let allowed = format!("allowed: at most aws.drain_cap_s, {}", file.drain_cap_s);
        door.refuse("aws.quiet_s", "the drain would be over before it is quiet", &allowed);
    }
    Aws {
        mode,
        tag_prefix: file.tag_prefix,
        roles,
        life: Lifecycle {
            on_lost: file.on_lost,
            drain_cap: Duration::from_secs(file.drain_cap_s.into()),
            quiet: Duration::from_secs(file.quiet_s.into()),
            hook: file.hook,
        },
    }
}

fn mode(door: &mut Door, file: &file::Aws) -> AwsMode {
    let cluster = file.cluster.clone();
    if !cluster.is_empty() && !is_tag(&cluster, 256) {
        let allowed = "write 1 to 256 letters, digits and `._-`";
        door.refuse("aws.cluster", "this can't be the value of a tag", allowed);
    }
    match (file.mode, cluster.is_empty(), file.target_group.is_empty()) {
        (AwsUse::Gateway, true, true) => {
            let allowed = "set aws.cluster to the value of the group's tag, or aws.target_group \
                           to its ARN";
            door.refuse("aws", "nothing says which target group", allowed);
        }
        (AwsUse::Gateway, false, false) => {
            let wrong = "aws.cluster says which target group as well";
            door.refuse("aws.target_group", wrong, "leave one of them out");
        }
        (AwsUse::Gateway, true, false) => {
            if !is_group(&file.target_group) {
                let allowed = "write it whole, \"arn:aws:elasticloadbalancing:eu-central-1:\
                               123456789012:targetgroup/weir/0123456789abcdef\"";
                door.refuse("aws.target_group", "this is no ARN of a target group", allowed);
            }
            return AwsMode::Gateway(GroupBy::Arn(file.target_group.clone()));
        }
        (AwsUse::Gateway, false, true) => {}
        (AwsUse::Routes, no_cluster, no_group) => {
            if no_cluster {
                let allowed = "set it to the value of the tag that all peers have";
                door.refuse("aws.cluster", "mode \"routes\" finds peers by it", allowed);
            }
            if !no_group {
                let allowed = "leave it out, or set aws.mode = \"gateway\"";
                door.refuse("aws.target_group", "mode \"routes\" has no target group", allowed);
            }
            return AwsMode::Routes { cluster };
        }
    }
    AwsMode::Gateway(GroupBy::Cluster(cluster))
}

fn is_tag(text: &str, longest: usize) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !text.is_empty() && text.len() <= longest && text.bytes().all(good)
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
