//! Tests of imds.
