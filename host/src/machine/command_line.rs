//! The kernel's command line.

use crate::Root;

/// The parameters on the kernel's command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Reads the command line; `None` if it cannot be read.
    pub fn read(root: &Root) -> Option<CommandLine> {
        let text = std::fs::read_to_string(root.join("proc/cmdline")).ok()?;
        Some(CommandLine::parse(&text))
    }

    /// Parses a command line. What follows ` -- ` is for init, not for the kernel.
    pub fn parse(text: &str) -> CommandLine {
        let words = text.split_whitespace().take_while(|word| *word != "--");
        CommandLine(words.map(str::to_owned).collect())
    }

    /// Returns the parameters in their order, each with its value; empty for one without a value.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|word| word.split_once('=').unwrap_or((word, "")))
    }

    /// Returns the last value of a parameter, which is the one in force for most of them.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.parameters().filter(|(key, _)| *key == name).map(|(_, value)| value).last()
    }

    /// Returns whether a parameter is present exactly as written, `iommu=pt` for example.
    pub fn has(&self, parameter: &str) -> bool {
        self.0.iter().any(|word| word == parameter)
    }
}
