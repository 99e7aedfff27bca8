//! Permissions that a role grants at a resource group.

use serde_json::Value;

use crate::balancer;

/// A role's permissions, as returned by `Microsoft.Authorization/permissions`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Granted actions, with `*` as wildcard.
    pub actions: Vec<String>,
    /// Actions that are not granted although `actions` matches them.
    pub not_actions: Vec<String>,
}

impl Grant {
    /// Parses one grant.
    pub fn read(grant: &Value) -> Grant {
        let all = |key: &str| {
            let list = balancer::list(grant, &format!("/{key}")).iter();
            list.filter_map(|action| action.as_str().map(str::to_owned)).collect()
        };
        Grant { actions: all("actions"), not_actions: all("notActions") }
    }

    pub(super) fn permits(&self, action: &str) -> bool {
        let any = |all: &[String]| all.iter().any(|pattern| matches_pattern(pattern, action));
        any(&self.actions) && !any(&self.not_actions)
    }
}

/// Returns true if the pattern matches the action, compared case-insensitively; `*` matches any
/// text, including slashes.
fn matches_pattern(pattern: &str, action: &str) -> bool {
    let (pattern, mut rest) = (pattern.to_ascii_lowercase(), &*action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let Some(left) = parts.next().and_then(|first| rest.strip_prefix(first)) else { return false };
    rest = left;
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_any_case_and_wildcards_and_not_actions_exclude() {
        let action = "Microsoft.Network/networkInterfaces/write";
        let fitting = ["*", "*/write", "microsoft.network/*", "Microsoft.Network/*/write", action];
        for pattern in fitting {
            assert!(matches_pattern(pattern, action), "{pattern}");
        }
        let others = ["", "*/read", "Microsoft.Compute/*", "Microsoft.Network", "*/write/*"];
        for pattern in others {
            assert!(!matches_pattern(pattern, action), "{pattern}");
        }
        let owned = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        let grant = Grant { actions: owned(&["*"]), not_actions: owned(&["*/write"]) };
        assert!(
            !grant.permits(action) && grant.permits("Microsoft.Network/networkInterfaces/read")
        );
    }
}
