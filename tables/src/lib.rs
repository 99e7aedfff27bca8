//! What Weir's processes share.
pub mod layout;
pub mod reason;
pub mod record;
