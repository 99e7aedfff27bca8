//! slowpath
