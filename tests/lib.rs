//! The lab and the cases.
