//! Paths of Resource Manager, which are also resource ids; they are case-insensitive.

/// A parsed path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Subscription.
    pub subscription: String,
    /// Resource group, if there is one.
    pub group: Option<String>,
    /// Resource provider, `Microsoft.Network` for instance.
    pub provider: String,
    /// Alternating types and names; a type at the end is a list of resources or an action.
    pub steps: Vec<String>,
}

impl Path {
    /// Parses a path from `/subscriptions/` on.
    pub fn parse(text: &str) -> Option<Path> {
        let mut segments = text.strip_prefix('/')?.split('/');
        let mut keyed = |key: &str| {
            let mut ahead = segments.clone();
            let found = ahead.next()?.eq_ignore_ascii_case(key).then(|| ahead.next()).flatten()?;
            segments = ahead;
            (!found.is_empty()).then(|| found.to_owned())
        };
        let subscription = keyed("subscriptions")?;
        let group = keyed("resourceGroups");
        let provider = keyed("providers")?;
        let steps: Vec<String> = segments.map(str::to_owned).collect();
        let complete = !steps.is_empty() && steps.iter().all(|step| !step.is_empty());
        complete.then_some(Path { subscription, group, provider, steps })
    }

    /// Returns the types, `loadBalancers/backendAddressPools` for instance.
    pub fn types(&self) -> String {
        self.steps.iter().step_by(2).map(String::as_str).collect::<Vec<_>>().join("/")
    }

    /// Returns true if the path names a single resource.
    pub fn is_item(&self) -> bool {
        self.steps.len().is_multiple_of(2)
    }

    /// Returns the last name.
    pub fn name(&self) -> &str {
        self.steps.last().map_or("", String::as_str)
    }

    /// Returns the path of the parent resource.
    pub fn parent(&self) -> Option<Path> {
        let remaining = self.steps.len().checked_sub(2).filter(|n| *n > 0)?;
        Some(Path { steps: self.steps[..remaining].to_vec(), ..self.clone() })
    }

    /// Returns the path of the topmost resource.
    pub fn top(&self) -> Path {
        Path { steps: self.steps.iter().take(2).cloned().collect(), ..self.clone() }
    }

    /// Returns the path as an id.
    pub fn id(&self) -> String {
        let group = self.group.iter().map(|group| format!("/resourceGroups/{group}"));
        let group: String = group.collect();
        let steps = self.steps.join("/");
        format!("/subscriptions/{}{group}/providers/{}/{steps}", self.subscription, self.provider)
    }
}

/// Returns true if two ids name the same resource.
pub fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/').eq_ignore_ascii_case(other.trim_end_matches('/'))
}

/// Returns the id of the parent, without the last type and name.
pub fn parent(id: &str) -> &str {
    let cut = id.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at);
    &id[..cut]
}

/// Returns an id without its last segment: the list of a resource, or the parent of a list.
pub fn above(id: &str) -> &str {
    id.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Returns the last segment of an id.
pub fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}
