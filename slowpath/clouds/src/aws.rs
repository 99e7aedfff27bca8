//! AWS: the instance, its target group, and the way in and out of it.
