//! x.

/// Something that people should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its name in metrics and on the page that explains it.
    pub name: &'static str,
    /// What was found.
    pub text: String,
    /// What to do.
    pub remedy: String,
}
