//! Tests of `icmp`.
