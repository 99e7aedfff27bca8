//! Tests of `ip`.
