//! The permissions that are used, the one list of them: `config/aws/policy.json` has exactly these.

/// Operations by the service that a policy names them under.
pub const PERMISSIONS: [(&str, &[&str]); 5] = [
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
    ("ssm", &["GetCommandInvocation", "SendCommand"]),
];

/// What a policy calls the permission for an operation: `elasticloadbalancing:RegisterTargets`.
pub fn permission(operation: &str) -> Option<String> {
    let mut services = PERMISSIONS.iter();
    let (service, _) = services.find(|(_, operations)| operations.contains(&operation))?;
    Some(format!("{service}:{operation}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value as Json;

    use super::*;

    fn policy() -> Json {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../config/aws/policy.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn list(value: &Json) -> Vec<&str> {
        match value {
            Json::Array(many) => many.iter().map(|one| one.as_str().unwrap()).collect(),
            one => vec![one.as_str().unwrap()],
        }
    }

    #[test]
    fn the_policy_allows_exactly_what_is_used() {
        let policy = policy();
        let statements = policy["Statement"].as_array().unwrap();
        let mut allowed = BTreeSet::new();
        for statement in statements {
            assert_eq!(statement["Effect"], "Allow");
            for action in list(&statement["Action"]) {
                assert!(!action.contains('*'), "{action}");
                allowed.insert(action.to_owned());
            }
        }
        let used = PERMISSIONS.iter().flat_map(|(_, operations)| operations.iter());
        let used: BTreeSet<String> = used.filter_map(|operation| permission(operation)).collect();
        assert_eq!(allowed, used);
        assert_eq!(permission("TerminateInstances"), None);
    }

    #[test]
    fn what_changes_something_is_allowed_on_tagged_or_named_things_alone() {
        for statement in policy()["Statement"].as_array().unwrap() {
            let asks = |action: &&str| {
                ["Describe", "Get"]
                    .iter()
                    .any(|verb| action.split(':').any(|p| p.starts_with(verb)))
            };
            if !list(&statement["Action"]).iter().all(asks) {
                let on = list(&statement["Resource"]);
                let named = on.iter().all(|on| on.starts_with("arn:") && !on.ends_with('*'));
                let tagged = statement["Condition"].to_string().contains("esourceTag/");
                assert!(named || tagged && !on.contains(&"*"), "{statement}");
            }
        }
    }
}
