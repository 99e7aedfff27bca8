//! Labels, annotations and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Key-value pairs: labels, annotations or properties. `None` if there are none: the usual case,
/// which takes no heap memory.
pub type Pairs = Option<Arc<BTreeMap<Box<str>, Box<str>>>>;
