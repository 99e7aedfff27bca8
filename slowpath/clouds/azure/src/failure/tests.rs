//! Tests of failure.
