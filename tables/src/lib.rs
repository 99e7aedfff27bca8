//! What Weir's processes share.
pub mod record;
pub mod reason;
