//! Tests' world.
