//! Separately stored resources.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A stored resource.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Id, in the letter case of the first write.
    pub id: String,
    /// Number of the write that produced this version.
    pub version: u64,
    /// True if the last operation on the resource failed.
    #[serde(default)]
    pub failed: bool,
    /// JSON body as written.
    pub body: Value,
}

impl Resource {
    /// Returns the ETag, `W/"..."`.
    pub fn etag(&self) -> String {
        format!("W/\"{}\"", guid(self.version))
    }
}

/// Returns a UUID derived from a number.
pub fn guid(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (high, low) = (mixed >> 32, mixed & 0xffff_ffff_ffff);
    format!("{high:08x}-{:04x}-4000-8000-{low:012x}", number & 0xffff)
}
