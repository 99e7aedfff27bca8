//! The AWS permissions that Weir uses. `config/aws/policy.json` contains exactly those of an
//! appliance, `config/aws/policy-operator.json` exactly those of an operator.

/// Operations, grouped by the service prefix of their permissions: `ec2` for instance.
pub type Permissions = [(&'static str, &'static [&'static str])];

/// Permissions of an appliance.
pub const PERMISSIONS: &Permissions = &[
    ("tag", &["GetResources"]),
    (
        "elasticloadbalancing",
        &[
            "DeregisterTargets",
            "DescribeListenerAttributes",
            "DescribeListeners",
            "DescribeLoadBalancerAttributes",
            "DescribeTargetGroupAttributes",
            "DescribeTargetGroups",
            "DescribeTargetHealth",
            "RegisterTargets",
        ],
    ),
    (
        "autoscaling",
        &[
            "CompleteLifecycleAction",
            "DescribeAutoScalingInstances",
            "DescribeLifecycleHooks",
            "RecordLifecycleActionHeartbeat",
        ],
    ),
    (
        "ec2",
        &[
            "DescribeInstances",
            "DescribeNetworkInterfaces",
            "DescribeRouteTables",
            "DescribeSecurityGroups",
            "ModifyNetworkInterfaceAttribute",
            "ReplaceRoute",
        ],
    ),
];

/// Permissions of an operator, for `weir cloud exec` and `weir cloud wait`. An appliance has none
/// of the `ssm` permissions: a compromised appliance must not run commands on its peers.
pub const OPERATOR_PERMISSIONS: &Permissions = &[
    ("ssm", &["GetCommandInvocation", "SendCommand"]),
    ("tag", &["GetResources"]),
    ("elasticloadbalancing", &["DescribeTargetGroups", "DescribeTargetHealth"]),
    ("ec2", &["DescribeInstances"]),
];

/// Returns the permission for an operation, `elasticloadbalancing:RegisterTargets` for instance.
pub fn permission(operation: &str) -> Option<String> {
    let mut services = PERMISSIONS.iter().chain(OPERATOR_PERMISSIONS);
    let (service, _) = services.find(|(_, operations)| operations.contains(&operation))?;
    Some(format!("{service}:{operation}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::{Value as Json, json};

    use super::*;

    fn file(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../config/aws");
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    fn statements(name: &str) -> Vec<Json> {
        let policy: Json = serde_json::from_str(&file(name)).unwrap();
        policy["Statement"].as_array().unwrap().clone()
    }

    fn list(value: &Json) -> Vec<&str> {
        match value {
            Json::Array(many) => many.iter().map(|one| one.as_str().unwrap()).collect(),
            one => vec![one.as_str().unwrap()],
        }
    }

    #[test]
    fn each_policy_allows_exactly_the_listed_permissions() {
        for (name, listed) in
            [("policy.json", PERMISSIONS), ("policy-operator.json", OPERATOR_PERMISSIONS)]
        {
            let mut allowed = BTreeSet::new();
            for statement in statements(name) {
                assert_eq!(statement["Effect"], "Allow");
                for action in list(&statement["Action"]) {
                    assert!(!action.contains('*'), "{name}: {action}");
                    allowed.insert(action.to_owned());
                }
            }
            let listed = listed.iter().flat_map(|(_, operations)| operations.iter());
            let listed: BTreeSet<String> =
                listed.filter_map(|operation| permission(operation)).collect();
            assert_eq!(allowed, listed, "{name}");
        }
        assert_eq!(permission("TerminateInstances"), None);
    }

    #[test]
    fn an_appliance_has_no_ssm_permission() {
        assert!(PERMISSIONS.iter().all(|(service, _)| *service != "ssm"));
        assert!(!file("policy.json").contains("ssm:"));
    }

    /// Every write is limited to resources whose cluster tag equals that of the role itself. For a
    /// role without the tag, the policy variable has no value and matches nothing, so no write is
    /// permitted.
    #[test]
    fn writes_are_allowed_on_resources_of_the_same_cluster_only() {
        let own = "${aws:PrincipalTag/weir:cluster}";
        let resource = json!({ "StringEquals": { "aws:ResourceTag/weir:cluster": own } });
        let instance = json!({ "StringEquals": { "ssm:resourceTag/weir:cluster": own } });
        let mut writes = 0;
        for name in ["policy.json", "policy-operator.json"] {
            for statement in statements(name) {
                let reads = |action: &&str| {
                    let operation = action.split(':').nth(1).unwrap();
                    operation.starts_with("Describe") || operation.starts_with("Get")
                };
                if list(&statement["Action"]).iter().all(reads) {
                    continue;
                }
                writes += 1;
                let on = list(&statement["Resource"]);
                assert!(on.iter().all(|on| on.starts_with("arn:aws:")), "{name}: {statement}");
                match on.as_slice() {
                    // A document has no cluster tag; the instance on which it runs has one.
                    ["arn:aws:ssm:*::document/AWS-RunShellScript"] => {}
                    ["arn:aws:ec2:*:*:instance/*"] => {
                        assert_eq!(statement["Condition"], instance, "{name}");
                    }
                    _ => assert_eq!(statement["Condition"], resource, "{name}: {statement}"),
                }
            }
        }
        assert_eq!(writes, 5, "RegisterTargets, hooks, routes; commands and their document");
    }

    #[test]
    fn the_terraform_module_tags_role_and_group_and_includes_the_operators_policy() {
        let text = file("main.tf");
        assert!(text.contains("\n  tags = { \"weir:cluster\" = var.cluster }\n"));
        let blocks: Vec<&str> = text.split("\nresource ").collect();
        for resource in ["\"aws_iam_role\" \"weir\"", "\"aws_lb_target_group\" \"weir\""] {
            let block = blocks.iter().find(|block| block.starts_with(resource)).unwrap();
            assert!(block.contains("\n  tags = local.tags\n"), "{block}");
        }
        assert!(text.contains("file(\"${path.module}/policy-operator.json\")"));
    }
}
