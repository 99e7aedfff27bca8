//! Tests of `vxlan`.
