//! Labels, annotations and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Key-value pairs: labels, annotations or properties. `None` if empty, since most are.
pub type Pairs = Option<Arc<BTreeMap<Box<str>, Box<str>>>>;
