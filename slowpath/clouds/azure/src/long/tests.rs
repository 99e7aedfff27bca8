//! Tests of long.
