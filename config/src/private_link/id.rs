//! Resource IDs of Azure. Azure returns the same ID in different letter case, so comparison ignores
//! case.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// Resource ID `/subscriptions/S/resourceGroups/G/providers/P/TYPE/NAME[/TYPE/NAME...]`, with the
/// case in which it was given.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceId(String);

/// Error: the text is not the ID of a resource in a resource group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a resource ID: write \
     /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/PROVIDER/TYPE/NAME"
)]
pub struct InvalidResourceId(pub String);

impl ResourceId {
    /// Parses a resource ID.
    ///
    /// # Errors
    /// Returns an error if the text is not a resource ID.
    pub fn parse(text: &str) -> Result<ResourceId, InvalidResourceId> {
        let error = || InvalidResourceId(text.to_owned());
        let parts: Vec<&str> = text.strip_prefix('/').ok_or_else(error)?.split('/').collect();
        // Azure's own examples misspell `providers`, so this part may be any word.
        let is_valid = parts.len() >= 8
            && parts.len().is_multiple_of(2)
            && parts.iter().all(|part| !part.is_empty())
            && parts[0].eq_ignore_ascii_case("subscriptions")
            && parts[2].eq_ignore_ascii_case("resourceGroups");
        if is_valid { Ok(ResourceId(text.to_owned())) } else { Err(error()) }
    }

    /// Returns the ID of a resource of provider `Microsoft.Network`; `kind` is for example
    /// `loadBalancers`.
    pub fn network(subscription: &str, group: &str, kind: &str, name: &str) -> ResourceId {
        ResourceId(format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/\
             {kind}/{name}"
        ))
    }

    /// Returns the ID of a child resource, given its type and name.
    pub fn child(&self, kind: &str, name: &str) -> ResourceId {
        ResourceId(format!("{}/{kind}/{name}", self.0))
    }

    /// Returns the ID of the parent resource, or `None` for a top-level resource.
    pub fn parent(&self) -> Option<ResourceId> {
        let (above, _) = self.0.rsplit_once('/')?;
        let (above, _) = above.rsplit_once('/')?;
        ResourceId::parse(above).ok()
    }

    fn part(&self, at: usize) -> &str {
        self.0.split('/').nth(at + 1).unwrap_or_default()
    }

    /// Returns the ID of the subscription.
    pub fn subscription(&self) -> &str {
        self.part(1)
    }

    /// Returns the name of the resource group.
    pub fn group(&self) -> &str {
        self.part(3)
    }

    /// Returns the name of the resource, the last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the name that follows a type in the ID, such as `virtualNetworks`. The case of the
    /// type is ignored.
    pub fn named(&self, kind: &str) -> Option<&str> {
        let mut parts = self.0.split('/').skip(7);
        while let (Some(found), Some(name)) = (parts.next(), parts.next()) {
            if found.eq_ignore_ascii_case(kind) {
                return Some(name);
            }
        }
        None
    }

    /// Returns the ID with the case in which it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &ResourceId) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ResourceId {}

impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_ascii_lowercase().hash(state);
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ResourceId {
    type Error = InvalidResourceId;

    fn try_from(text: String) -> Result<ResourceId, InvalidResourceId> {
        ResourceId::parse(&text)
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> String {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "/subscriptions/s1/resourceGroups/RG/providers/Microsoft.Network/\
                        loadBalancers/gw/backendAddressPools/weir";

    #[test]
    fn parses_ids_and_compares_them_case_insensitively() {
        let id = ResourceId::parse(POOL).unwrap();
        assert_eq!((id.subscription(), id.group(), id.name()), ("s1", "RG", "weir"));
        assert_eq!(id.named("loadbalancers"), Some("gw"));
        assert_eq!(id.named("backendAddressPools"), Some("weir"));
        assert_eq!(id.named("providers"), None);
        assert_eq!(id, ResourceId::parse(&POOL.to_lowercase()).unwrap());
        let parent = id.parent().unwrap();
        assert_eq!(parent, ResourceId::network("S1", "rg", "loadBalancers", "gw"));
        assert_eq!(parent.child("backendAddressPools", "weir"), id);
        assert_eq!(parent.parent(), None);
    }

    #[test]
    fn rejects_invalid_ids() {
        for text in
            ["", "weir", "/subscriptions/s/resourceGroups/g", &POOL[1..], "/a//b/c/d/e/f/g/h"]
        {
            let error = ResourceId::parse(text).unwrap_err();
            assert!(error.to_string().contains("/subscriptions/SUBSCRIPTION"), "{error}");
        }
        assert!(ResourceId::parse(&POOL.replace("providers", "provders")).is_ok());
    }
}
