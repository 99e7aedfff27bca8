//! Tests of `gue`.
