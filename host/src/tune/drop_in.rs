//! Weir's own files in directories that the system reads.

use serde::Serialize;

use crate::Root;

/// A file of Weir in a directory of drop-ins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DropIn {
    /// Parameters of the kernel's command line. Debian's `grub-mkconfig` reads
    /// `/etc/default/grub.d/*.cfg` after `/etc/default/grub`.
    Grub,
    /// Sysctls, set at boot by systemd-sysctl, and by udev for interfaces that appear later.
    Sysctl,
    /// Other values, written at boot by systemd-tmpfiles.
    Tmpfiles,
    /// The environment of irqbalance. Its unit also reads `/etc/default/irqbalance`, which takes
    /// precedence.
    Irqbalance,
}

/// First line of each file. A file without it is not Weir's, and is left alone.
const MARK: &str = "# Written by `weir tune apply`; removed by `weir tune revert`.";

impl DropIn {
    /// All drop-in files.
    pub const ALL: [DropIn; 4] =
        [DropIn::Grub, DropIn::Sysctl, DropIn::Tmpfiles, DropIn::Irqbalance];

    /// Returns the path, without a leading slash.
    pub const fn path(self) -> &'static str {
        match self {
            DropIn::Grub => "etc/default/grub.d/50-weir.cfg",
            DropIn::Sysctl => "etc/sysctl.d/50-weir.conf",
            DropIn::Tmpfiles => "etc/tmpfiles.d/weir-tune.conf",
            DropIn::Irqbalance => "etc/systemd/system/irqbalance.service.d/50-weir.conf",
        }
    }

    /// Returns the text of the file with these entries.
    pub(super) fn render(self, entries: &[String]) -> String {
        let body = match self {
            DropIn::Grub => format!(
                "# Type update-grub after a change.\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"",
                entries.join(" ")
            ),
            DropIn::Irqbalance => format!("[Service]\n{}", entries.join("\n")),
            DropIn::Sysctl | DropIn::Tmpfiles => entries.join("\n"),
        };
        format!("{MARK}\n{body}\n")
    }

    /// Returns the text of the file; `None` if it does not exist or cannot be read.
    pub(super) fn text(self, root: &Root) -> Option<String> {
        std::fs::read_to_string(root.join(self.path())).ok()
    }

    /// Returns whether a text is that of a file of Weir.
    pub(super) fn is_weirs(text: &str) -> bool {
        text.starts_with(MARK)
    }

    /// Returns whether Weir's file exists and has an entry that sets `name`: a parameter, a sysctl
    /// or a path.
    pub fn sets(self, root: &Root, name: &str) -> bool {
        let text = self.text(root).filter(|text| DropIn::is_weirs(text)).unwrap_or_default();
        let body = text.lines().skip(1).collect::<Vec<_>>().join("\n");
        // Entries begin with the name, a dash before a sysctl, or the letter w before a path.
        let words = body.split(|c: char| c.is_whitespace() || c == '"');
        let names = words.map(|word| word.split('=').next().unwrap_or_default());
        names.map(|word| word.trim_start_matches('-')).any(|word| word == name)
    }
}

impl Serialize for DropIn {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("/{}", self.path()))
    }
}
