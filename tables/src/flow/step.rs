//! Points at which tests kill a worker, or let others in.

#[cfg(test)]
pub(crate) mod kill;

/// A point at which a kill is simulated in tests; nothing otherwise.
macro_rules! step {
    () => {
        #[cfg(test)]
        crate::flow::step::kill::pass()
    };
}
pub(super) use step;
