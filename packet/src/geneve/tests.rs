//! Tests of `geneve`.
