//! Tests of `rewrite`.
