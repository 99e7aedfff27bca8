//! Tests of `ipv4`.
