//! Configuration errors: where the fault is, which key, what was found, and what is allowed.

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};

/// Source text whose lines errors can show.
pub(crate) type Text = Arc<NamedSource<String>>;

/// Error of loading a configuration or a services file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}; {}", path.display(), remedy(*kind))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Kind of file, which determines the remedy.
        kind: FileKind,
        /// Error of the operating system.
        reason: std::io::Error,
    },
    /// The configuration or the services file was read and is invalid: all problems found.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<ConfigProblem>),
}

/// Kind of a file that is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// The configuration file, `--config`.
    Configuration,
    /// The services file, key `services`.
    Services,
}

fn remedy(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Configuration => {
            "set another path with --config FILE, or start from a copy of config/examples/lab.toml"
        }
        FileKind::Services => {
            "set another path with the key `services`, or start from a copy of \
             config/examples/services-lab.toml"
        }
    }
}

impl ConfigError {
    /// Creates the error from its problems: first those without a position in the file, then the
    /// others in the order of the file.
    pub(crate) fn invalid(mut problems: Vec<ConfigProblem>) -> ConfigError {
        problems.sort_by_key(|p| p.snippet.as_ref().map(|(_, span)| span.start));
        ConfigError::Invalid(problems)
    }

    /// Renders each problem with its source line underlined if there is one, in color on a
    /// terminal.
    pub fn render(&self) -> String {
        let ConfigError::Invalid(problems) = self else { return format!("{self}\n") };
        let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let theme =
            if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme).with_context_lines(1);
        let mut out = String::new();
        for problem in problems {
            if handler.render_report(&mut out, &Rendered(problem)).is_err() {
                out += &problem.to_string();
            }
        }
        out
    }
}

/// A single fault of a configuration.
#[derive(Debug)]
pub struct ConfigProblem {
    /// Location: `weir.toml:12`, `environment WEIR_INGRESS__MTU`, `--set ingress.mtu=1`, `default`,
    /// or `configuration` if no layer is known.
    pub location: String,
    /// The key, for example `gateway[0].sources`; empty if the problem concerns no key.
    pub key: String,
    /// The value found, in TOML notation; empty if there is none.
    pub found: String,
    /// What is wrong with the value.
    pub fault: String,
    /// What is allowed, or the remedy.
    pub remedy: String,
    pub(crate) snippet: Option<(Text, std::ops::Range<usize>)>,
}

impl ConfigProblem {
    /// Returns location, key, value and fault on one line, without the remedy.
    fn headline(&self) -> String {
        let mut line = self.location.clone();
        if !self.key.is_empty() {
            line += &format!(": {}", self.key);
            if !self.found.is_empty() {
                line += &format!(" = {}", self.found);
            }
        }
        format!("{line}: {}", self.fault)
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// A problem as rendered by miette: headline, source line, remedy.
#[derive(Debug)]
struct Rendered<'a>(&'a ConfigProblem);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.headline())
    }
}

impl std::error::Error for Rendered<'_> {}

impl Diagnostic for Rendered<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.0.remedy.is_empty()).then(|| Box::new(&self.0.remedy) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (_, span) = self.0.snippet.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(None, span.start, span.len()))))
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.0.snippet.as_ref().map(|(text, _)| text.as_ref() as &dyn miette::SourceCode)
    }
}
