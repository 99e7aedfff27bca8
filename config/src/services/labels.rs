//! Labels, annotations and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys and values: labels, annotations, properties. None for none, since most have none.
pub type Pairs = Option<Arc<BTreeMap<Box<str>, Box<str>>>>;
