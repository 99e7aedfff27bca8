//! Points at which tests kill a worker or run other work.

#[cfg(test)]
pub(crate) mod kill;

/// Marks a point at which tests kill the worker or run other work; expands to nothing otherwise.
macro_rules! step {
    () => {
        #[cfg(test)]
        crate::flow::step::kill::pass()
    };
}
pub(super) use step;
