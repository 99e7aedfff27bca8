//! Who asks for changes: the services file.

pub mod file;
