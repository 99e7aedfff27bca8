//! Tests of `tunnel`.
