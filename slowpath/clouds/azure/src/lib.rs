//! Azure: the machine, its pool, and the way in and out of it.
#![forbid(unsafe_code)]
