//! The lab's errors; a message names the remedy where there is one.

/// The result of lab functions.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process is not root, which namespaces and raw sockets require.
    #[error("not root: the lab creates network namespaces and raw sockets; run: sudo {program}")]
    NotRoot {
        /// The program to run again.
        program: String,
    },
    /// A system program is missing.
    #[error("{program} is not installed; run: sudo apt-get install {package}")]
    NoProgram {
        /// The program's name.
        program: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A program of this repository was not built.
    #[error(
        "{program} is not in {location}; run: cargo build{} --package {package} (make demo, make \
         lab and make test build it)",
        if location.ends_with("release") { " --release" } else { "" }
    )]
    NotBuilt {
        /// The program's name.
        program: String,
        /// The directory that was searched.
        location: String,
        /// The crate that builds it.
        package: String,
    },
    /// A command failed.
    #[error("{location}: `{command}` failed ({status}): {stderr}")]
    Command {
        /// The namespace that the command ran in; without one, the program.
        location: String,
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
        /// Its standard error output.
        stderr: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A condition was not met in time.
    #[error(transparent)]
    Timeout(#[from] patience::TimeoutError),
    /// A program under test ended by itself.
    #[error("{program} ended ({status}); end of its log:\n{log}")]
    Ended {
        /// The program's name.
        program: String,
        /// The exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// Any other error, described in text.
    #[error("{0}")]
    Other(String),
    /// This many packets left the pipeline without a verdict.
    #[error(
        "{0} packets left the pipeline without a verdict: this is a defect of Weir; `weir trace` \
         shows such a packet"
    )]
    Undecided(u64),
}

impl LabError {
    /// Adds what was attempted to a system error; for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// As [`LabError::io`], for the error type of `nix`.
    pub fn errno(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }
}
