//! What Weir's processes share.
pub mod checksum;
pub mod layout;
pub mod lcore;
pub mod reason;
pub mod record;
pub mod region;
