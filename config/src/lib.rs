//! What the operator writes, checked: layers, two types, and errors that say what to type.

pub mod checked;
pub mod services;
