//! What Weir's processes share.
pub mod checksum;
pub mod counters;
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

pub mod command;
pub mod flow;
pub mod fragment;
pub mod nat_port;
pub mod ring;
pub mod scope;
