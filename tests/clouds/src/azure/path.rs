//! Paths and ids of Resource Manager, which are the same thing, in any case of letters.

/// A path taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its subscription.
    pub subscription: String,
    /// Its resource group, where it has one.
    pub group: Option<String>,
    /// `Microsoft.Network`.
    pub provider: String,
    /// Types and names in turn; a type at the end is a list of resources or an action.
    pub steps: Vec<String>,
}

impl Path {
    /// Of a path from `/subscriptions/` on.
    pub fn parse(text: &str) -> Option<Path> {
        let mut words = text.strip_prefix('/')?.split('/');
        let mut keyed = |key: &str| {
            let mut ahead = words.clone();
            let found = ahead.next()?.eq_ignore_ascii_case(key).then(|| ahead.next()).flatten()?;
            words = ahead;
            (!found.is_empty()).then(|| found.to_owned())
        };
        let subscription = keyed("subscriptions")?;
        let group = keyed("resourceGroups");
        let provider = keyed("providers")?;
        let steps: Vec<String> = words.map(str::to_owned).collect();
        let whole = !steps.is_empty() && steps.iter().all(|step| !step.is_empty());
        whole.then_some(Path { subscription, group, provider, steps })
    }

    /// Its types, `loadBalancers/backendAddressPools`.
    pub fn types(&self) -> String {
        self.steps.iter().step_by(2).map(String::as_str).collect::<Vec<_>>().join("/")
    }

    /// It names one resource.
    pub fn is_item(&self) -> bool {
        self.steps.len().is_multiple_of(2)
    }

    /// The name at its end.
    pub fn name(&self) -> &str {
        self.steps.last().map_or("", String::as_str)
    }

    /// The resource that this one lies in.
    pub fn parent(&self) -> Option<Path> {
        let keep = self.steps.len().checked_sub(2).filter(|n| *n > 0)?;
        Some(Path { steps: self.steps[..keep].to_vec(), ..self.clone() })
    }

    /// Its topmost resource.
    pub fn top(&self) -> Path {
        Path { steps: self.steps.iter().take(2).cloned().collect(), ..self.clone() }
    }

    /// As an id is written.
    pub fn id(&self) -> String {
        let group = self.group.iter().map(|group| format!("/resourceGroups/{group}"));
        let group: String = group.collect();
        let steps = self.steps.join("/");
        format!("/subscriptions/{}{group}/providers/{}/{steps}", self.subscription, self.provider)
    }
}

/// Two ids mean the same resource.
pub fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/').eq_ignore_ascii_case(other.trim_end_matches('/'))
}

/// The id of what an id lies in: without its last type and name.
pub fn parent(id: &str) -> &str {
    let cut = id.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at);
    &id[..cut]
}

/// An id without its last word: of a resource the list that it is in, of a list what it lies in.
pub fn above(id: &str) -> &str {
    id.rsplit_once('/').map_or("", |(above, _)| above)
}

/// The name at an id's end.
pub fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}
