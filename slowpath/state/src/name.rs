//! Names of objects, and of the sources that write them.

use std::fmt;
use std::sync::Arc;

use arcstr::ArcStr;
use serde::{Deserialize, Serialize};

/// Maximum length of a name in bytes (`tables::record::NAME_BYTES`).
pub const NAME_BYTES: usize = tables::record::NAME_BYTES;

/// Name of an object: `[cluster/]namespace/name` or a single word, of 1 to [`NAME_BYTES`] bytes.
/// Clones share the text, and a value is one machine word, because every row and key has a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(ArcStr);

/// Error for a text that is not a valid [`Name`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a valid name: write \"name\", \"namespace/name\" or \"cluster/namespace/name\" \
     of ASCII letters, digits, `-`, `.`, `_` and `:`, at most {NAME_BYTES} bytes"
)]
pub struct InvalidName(pub String);

impl Name {
    /// Parses a name.
    pub fn new(text: &str) -> Result<Name, InvalidName> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let part = |part: &str| !part.is_empty() && part.chars().all(good);
        if text.len() > NAME_BYTES || text.split('/').count() > 3 || !text.split('/').all(part) {
            return Err(InvalidName(text.to_owned()));
        }
        Ok(Name(text.into()))
    }

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns cluster, namespace and name; missing parts are empty.
    pub fn parts(&self) -> (&str, &str, &str) {
        let mut parts = self.0.rsplit('/');
        let name = parts.next().unwrap_or_default();
        let namespace = parts.next().unwrap_or_default();
        (parts.next().unwrap_or_default(), namespace, name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Name, InvalidName> {
        Name::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.as_str().to_owned()
    }
}

/// Name of the source that wrote an object: `file`, `kubernetes-file`, `api`, or the name of a
/// client with sessions. The configuration decides which source is preferred ([`Precedence`]). A
/// value is one machine word, because every row has a source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Source(Arc<String>);

impl Source {
    /// Creates a source from its name.
    pub fn new(name: &str) -> Source {
        Source(Arc::new(name.to_owned()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Order of preference among sources: the first listed is preferred, sources that are not listed
/// come after the listed ones, and demoted sources after all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Precedence {
    order: Vec<Source>,
    demoted: Vec<Source>,
}

impl Precedence {
    /// Creates a precedence from the sources, most preferred first.
    pub fn new(order: impl IntoIterator<Item = Source>) -> Precedence {
        Precedence { order: order.into_iter().collect(), demoted: Vec::new() }
    }

    /// Returns a copy in which these sources come after all others, in the same order among
    /// themselves. Sources that `self` demotes and `sources` does not contain are not demoted in
    /// the copy.
    #[must_use]
    pub fn demote<'s>(&self, sources: impl IntoIterator<Item = &'s Source>) -> Precedence {
        Precedence { order: self.order.clone(), demoted: sources.into_iter().cloned().collect() }
    }

    /// Returns the rank of a source; the lowest is preferred. All unlisted sources share one rank,
    /// and all demoted unlisted sources share the last one.
    pub fn rank(&self, source: &Source) -> u8 {
        let rank = self.order.iter().position(|s| s == source).unwrap_or(self.order.len());
        let demotion = if self.demoted.contains(source) { self.order.len() + 1 } else { 0 };
        u8::try_from(rank + demotion).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_to_three_parts() {
        for good in ["web", "shop/web", "east/shop/web", "a.b_c-d:e"] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(NAME_BYTES + 1);
        for bad in ["", "/", "a/", "/a", "a//b", "a/b/c/d", "a b", "ä", long.as_str()] {
            assert_eq!(Name::new(bad), Err(InvalidName(bad.to_owned())));
        }
        assert_eq!(Name::new("east/shop/web").unwrap().parts(), ("east", "shop", "web"));
        assert_eq!(Name::new("web").unwrap().parts(), ("", "", "web"));
    }

    #[test]
    fn unlisted_sources_come_after_listed_ones_and_demoted_sources_last() {
        let order = Precedence::new([Source::new("api"), Source::new("file")]);
        assert_eq!(order.rank(&Source::new("api")), 0);
        assert_eq!(order.rank(&Source::new("file")), 1);
        assert_eq!(order.rank(&Source::new("kubernetes")), 2);
        let order = order.demote(&[Source::new("api"), Source::new("kubernetes")]);
        let ranks =
            ["file", "other", "api", "kubernetes"].map(|name| order.rank(&Source::new(name)));
        assert_eq!(ranks, [1, 2, 3, 5]);
    }
}
