//! Resources that are kept as their own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A resource as it was written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Its id in the letters of whoever made it.
    pub id: String,
    /// Of which write it is.
    pub version: u64,
    /// The last operation on it failed.
    #[serde(default)]
    pub failed: bool,
    /// What was written.
    pub body: Value,
}

impl Resource {
    /// `W/"..."`.
    pub fn etag(&self) -> String {
        format!("W/\"{}\"", guid(self.version))
    }
}

/// A number as a UUID.
pub fn guid(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (high, low) = (mixed >> 32, mixed & 0xffff_ffff_ffff);
    format!("{high:08x}-{:04x}-4000-8000-{low:012x}", number & 0xffff)
}
