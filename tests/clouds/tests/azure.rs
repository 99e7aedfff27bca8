//! Tests of the Azure emulator, which is accessed over TLS like Azure itself.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

#[path = "azure/client.rs"]
mod client;
#[path = "azure/control.rs"]
mod control;
#[path = "azure/link.rs"]
mod link;
#[path = "azure/metadata.rs"]
mod metadata;
#[path = "azure/operations.rs"]
mod operations;
#[path = "azure/pools.rs"]
mod pools;
#[path = "azure/shapes.rs"]
mod shapes;
#[path = "azure/tree.rs"]
mod tree;
