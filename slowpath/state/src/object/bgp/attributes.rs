//! Path attributes of routes: communities, local preference, prepending and MED.

use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address_kind::AddressKind;
use super::bounds::within;
use crate::object::ChangeError;
use config::services::is_default;

/// Names of well-known communities: those of Cilium, and `graceful-shutdown`, the name of
/// `planned-shut` in RFC 8326.
const WELL_KNOWN: [(&str, u32); 15] = [
    ("internet", 0),
    ("planned-shut", 0xffff_0000),
    ("graceful-shutdown", 0xffff_0000),
    ("accept-own", 0xffff_0001),
    ("route-filter-translated-v4", 0xffff_0002),
    ("route-filter-v4", 0xffff_0003),
    ("route-filter-translated-v6", 0xffff_0004),
    ("route-filter-v6", 0xffff_0005),
    ("llgr-stale", 0xffff_0006),
    ("no-llgr", 0xffff_0007),
    ("blackhole", 0xffff_029a),
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("no-peer", 0xffff_ff04),
];
/// Maximum number of communities of one type on a route.
const COMMUNITIES_MAX: usize = 255;
/// Maximum number of additional copies of our AS number. With the number itself they fill one
/// AS_PATH segment, which has at most 255 numbers (RFC 4271 section 4.3).
const PREPEND_MAX: u32 = 254;

/// Path attributes. If several sets of them apply to one route, the route gets all communities, the
/// highest local preference, the longest prepending and the lowest MED.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PathAttributes {
    /// Kinds of addresses whose routes get these attributes. Default: all.
    #[serde(skip_serializing_if = "is_default")]
    pub kinds: Vec<AddressKind>,
    /// Standard communities: `65000:100`, a decimal number or a well-known name; at most 255.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub communities: Vec<Community>,
    /// Large communities (RFC 8092): `65000:1:2`; at most 255.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    pub large_communities: Vec<LargeCommunity>,
    /// LOCAL_PREF. Sent only to neighbors in the same autonomous system.
    #[serde(skip_serializing_if = "is_default")]
    pub local_preference: Option<u32>,
    /// Number of additional copies of our AS number in AS_PATH, 0 to 254, sent to neighbors in
    /// other autonomous systems. Default: 0.
    #[schemars(range(min = 0, max = 254))]
    #[serde(skip_serializing_if = "is_default")]
    pub prepend: u8,
    /// MULTI_EXIT_DISC; receivers prefer the lowest value.
    #[serde(skip_serializing_if = "is_default")]
    pub med: Option<u32>,
}

impl PathAttributes {
    pub(super) fn check(&self, at: &str) -> Result<(), ChangeError> {
        let lists = [
            ("communities", self.communities.len()),
            ("large_communities", self.large_communities.len()),
        ];
        for (name, count) in lists {
            if count > COMMUNITIES_MAX {
                let allowed = format!("allowed: up to {COMMUNITIES_MAX}");
                let wrong = format!("{count} are too many");
                return Err(ChangeError::new(format!("{at}.{name}"), wrong, allowed));
            }
        }
        within(&format!("{at}.prepend"), self.prepend.into(), 0, PREPEND_MAX)
    }
}

/// Standard community. Two communities are equal if their numbers are, whatever their notation.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Community {
    /// Number of the community.
    pub number: u32,
    /// Notation in which the community was written.
    written: Box<str>,
}

impl PartialEq for Community {
    fn eq(&self, other: &Community) -> bool {
        self.number == other.number
    }
}

impl Eq for Community {}

impl Hash for Community {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Debug for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl From<Community> for String {
    fn from(community: Community) -> String {
        community.written.into()
    }
}

impl TryFrom<String> for Community {
    type Error = String;

    fn try_from(text: String) -> Result<Community, String> {
        let named = WELL_KNOWN.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
        let number = named.or_else(|| match text.split_once(':') {
            Some((high, low)) => {
                Some(u32::from(digits::<u16>(high)?) << 16 | u32::from(digits::<u16>(low)?))
            }
            None => digits(&text),
        });
        let number = number.ok_or_else(|| {
            let names: Vec<&str> = WELL_KNOWN.iter().map(|(name, _)| *name).collect();
            format!(
                "`{text}` is not a community, expected \"65000:100\", a number up to 4294967295, \
                 or one of {}",
                names.join(", ")
            )
        })?;
        Ok(Community { number, written: text.into() })
    }
}

/// Large community (RFC 8092).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LargeCommunity(pub [u32; 3]);

impl From<LargeCommunity> for String {
    fn from(LargeCommunity([global, first, second]): LargeCommunity) -> String {
        format!("{global}:{first}:{second}")
    }
}

impl TryFrom<String> for LargeCommunity {
    type Error = String;

    fn try_from(text: String) -> Result<LargeCommunity, String> {
        let parts: Option<Vec<u32>> = text.split(':').map(digits).collect();
        let parts = parts.and_then(|parts| <[u32; 3]>::try_from(parts).ok());
        parts.map(LargeCommunity).ok_or_else(|| {
            format!(
                "`{text}` is not a large community, expected three numbers up to 4294967295: \
                 \"65000:1:2\""
            )
        })
    }
}

/// Parses decimal digits. Unlike `parse`, it accepts no sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
