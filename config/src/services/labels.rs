//! Labels, annotations and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Key-value pairs: labels, annotations or properties. `None` if there are none, which takes no
/// memory and is the usual case.
pub type Pairs = Option<Arc<BTreeMap<Box<str>, Box<str>>>>;
