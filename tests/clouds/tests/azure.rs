//! Azure's stand-in: asked over TLS as its clients ask.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

#[path = "azure/client.rs"]
mod client;
#[path = "azure/tree.rs"]
mod tree;
