//! Tests of `window`.
