//! Tests of `ethernet`.
