//! What can go wrong in the lab, said so that a person knows what to type.

/// The lab's result.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Why the lab cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces and raw sockets belong to root.
    #[error(
        "the lab makes network namespaces and raw sockets and needs root; type: sudo {program}"
    )]
    NotRoot {
        /// The program to run again.
        program: String,
    },
    /// A program of the system is missing.
    #[error("{program} is not installed; type: sudo apt-get install {package}")]
    NoProgram {
        /// Its name.
        program: String,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// A program of ours was not built.
    #[error(
        "{program} is not in {place}; type: cargo build{} --package {package}   \
         (make demo, make lab and make test do that before they begin)",
        if place.ends_with("release") { " --release" } else { "" }
    )]
    NotBuilt {
        /// Its name.
        program: String,
        /// Where it was looked for.
        place: String,
        /// The crate that makes it.
        package: String,
    },
    /// A command said no.
    #[error("{place}: `{command}` failed ({status}): {said}")]
    Command {
        /// The namespace it ran in.
        place: String,
        /// What was typed.
        command: String,
        /// How it ended.
        status: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// A call to the system said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Something did not come true in time.
    #[error(transparent)]
    TooLate(#[from] patience::TooLate),
    /// A program under test ended by itself.
    #[error("{program} ended ({status}); its last words:\n{words}")]
    Ended {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The tail of its log.
        words: String,
    },
    /// Something was asked for that cannot be.
    #[error("{0}")]
    Asked(String),
    /// Packets left the pipeline without a decision.
    #[error("no stage decided on {0} packets: a defect of Weir; `weir trace` shows such a packet")]
    Undecided(u64),
}

impl LabError {
    /// Names what was tried when the system said no; to be used with `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The same for `nix`, which has an error type of its own.
    pub fn errno(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }
}
