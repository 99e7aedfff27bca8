//! Values of the kernel that can change at run time, each in a file.

use std::io;

use crate::Root;
use crate::cpu_set::CpuSet;

/// How a file shows its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// As it is written.
    Plain,
    /// All possible values, the selected one in brackets.
    Choice,
    /// A mask of CPUs, with or without leading zeros.
    CpuMask,
    /// A list of CPUs.
    CpuList,
}

/// A file with a value of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ValueFile {
    path: String,
    format: Format,
}

impl ValueFile {
    /// Returns the file at this path, without a leading slash. Its name determines the format.
    pub(super) fn new(path: impl Into<String>) -> ValueFile {
        let path = path.into();
        let format = match path.rsplit('/').next().unwrap_or_default() {
            "enabled" => Format::Choice,
            "default_smp_affinity" => Format::CpuMask,
            "smp_affinity_list" | "watchdog_cpumask" => Format::CpuList,
            _ => Format::Plain,
        };
        ValueFile { path, format }
    }

    /// Returns the path, without a leading slash.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value; `None` if the file is missing, empty or cannot be read.
    pub(super) fn read(&self, root: &Root) -> Option<String> {
        root.read(&self.path).map(|text| self.normalized(&text))
    }

    /// Returns a value in canonical form: equal values have equal texts.
    pub(super) fn normalized(&self, text: &str) -> String {
        match self.format {
            Format::Plain => text.split_whitespace().collect::<Vec<_>>().join(" "),
            Format::Choice => {
                let selected = text.split_whitespace().find_map(|word| word.strip_prefix('['));
                selected.map_or(text, |word| word.trim_end_matches(']')).to_owned()
            }
            Format::CpuMask => {
                CpuSet::from_mask(text).map_or_else(|| text.to_owned(), |cpus| cpus.mask())
            }
            Format::CpuList => CpuSet::parse(text).to_string(),
        }
    }

    /// Writes a value. The kernel's files must exist: writing to a missing one is an error.
    pub(super) fn write(&self, root: &Root, value: &str) -> io::Result<()> {
        let path = root.join(&self.path);
        if !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::fs::write(path, format!("{value}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_texts() {
        let normalized = |path: &str, text: &str| ValueFile::new(path).normalized(text);
        assert_eq!(normalized("net/ipv4/ip_local_port_range", "32768\t60999"), "32768 60999");
        assert_eq!(normalized("transparent_hugepage/enabled", "[always] madvise"), "always");
        assert_eq!(normalized("transparent_hugepage/enabled", "madvise"), "madvise");
        assert_eq!(normalized("irq/default_smp_affinity", "00000000,0000000f"), "f");
        assert_eq!(normalized("irq/7/smp_affinity_list", "0,1,2"), "0-2");
        assert_eq!(normalized("cpufreq/scaling_governor", "powersave"), "powersave");
    }
}
