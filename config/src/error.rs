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
    #[error("cannot read {}: {reason}; {}", path.display(), remedy(*which))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Kind of file, which determines the remedy.
        which: Which,
        /// Error of the operating system.
        reason: std::io::Error,
    },
    /// The file was read and is invalid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
}

/// Kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The configuration file, `--config`.
    Configuration,
    /// The services file, key `services`.
    Services,
}

fn remedy(which: Which) -> &'static str {
    match which {
        Which::Configuration => {
            "name another with --config FILE, or begin with a copy of config/examples/lab.toml"
        }
        Which::Services => {
            "name another with the key `services`, or begin with a copy of \
             config/examples/services-lab.toml"
        }
    }
}

impl ConfigError {
    /// Creates the error, with problems in the order of the file; those without a line come first.
    pub(crate) fn wrong(mut problems: Vec<Problem>) -> ConfigError {
        problems.sort_by_key(|p| p.shown.as_ref().map(|(_, span)| span.start));
        ConfigError::Wrong(problems)
    }

    /// Renders each problem with its source line underlined if there is one, in color on a
    /// terminal.
    pub fn render(&self) -> String {
        let ConfigError::Wrong(problems) = self else { return format!("{self}\n") };
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let theme =
            if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let drawing = GraphicalReportHandler::new_themed(theme).with_context_lines(1);
        let mut out = String::new();
        for problem in problems {
            if drawing.render_report(&mut out, &Drawn(problem)).is_err() {
                out += &problem.to_string();
            }
        }
        out
    }
}

/// A single fault of a configuration.
#[derive(Debug)]
pub struct Problem {
    /// Location: `weir.toml:12`, `environment WEIR_INGRESS__MTU`, `--set ingress.mtu=1`, or
    /// `default`.
    pub place: String,
    /// The key, `gateway[0].sources`; empty if the text cannot be parsed.
    pub key: String,
    /// The value found, in TOML notation; empty if there is none.
    pub found: String,
    /// What is wrong with the value.
    pub wrong: String,
    /// What is allowed, or the remedy.
    pub allowed: String,
    pub(crate) shown: Option<(Text, std::ops::Range<usize>)>,
}

impl Problem {
    /// Returns location, key, value and fault on one line, without the remedy.
    fn headline(&self) -> String {
        let mut line = self.place.clone();
        if !self.key.is_empty() {
            line += &format!(": {}", self.key);
            if !self.found.is_empty() {
                line += &format!(" = {}", self.found);
            }
        }
        format!("{line}: {}", self.wrong)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}

/// A problem as rendered by miette: headline, source line, remedy.
#[derive(Debug)]
struct Drawn<'a>(&'a Problem);

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.headline())
    }
}

impl std::error::Error for Drawn<'_> {}

impl Diagnostic for Drawn<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.0.allowed.is_empty()).then(|| Box::new(&self.0.allowed) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (_, span) = self.0.shown.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(None, span.start, span.len()))))
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.0.shown.as_ref().map(|(text, _)| text.as_ref() as &dyn miette::SourceCode)
    }
}
