//! What Weir's processes share.
pub mod checksum;
pub mod layout;
pub mod lcore;
pub mod lookup;
pub mod maglev;
mod name;
pub mod next_hop;
mod pen;
pub mod reason;
pub mod record;
pub mod region;
pub mod set;
pub mod versioned;
pub mod writer;
