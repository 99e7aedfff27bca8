//! Plans an upgrade from the installed version, the previous version and the format of the region.

use hugepages::bytes_text;
use hugepages::upgrade::Version;
use serde::Serialize;

/// Unit of the data plane with DPDK.
pub const FASTPATH: &str = "weir-fastpath";
/// Unit of the data plane with XDP.
pub const XDP: &str = "weir-ebpf-fallback";

/// Facts on which a plan depends.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The installed version.
    pub installed: Version,
    /// Formats from which the installed version converts a region.
    pub converts: Vec<u32>,
    /// The previous version, and the formats to which it converts its region.
    pub previous: Option<(Version, Vec<u32>)>,
    /// The version to which the appliance was committed.
    pub committed: Option<Version>,
    /// Format of the region; `None` if there is none.
    pub region: Option<u32>,
    /// Format of the store of objects; `None` if nothing is persisted.
    pub store: Option<u32>,
    /// Unit of the data plane.
    pub data_plane: &'static str,
    /// Units that are stopped, or run another version's program than the installed one.
    pub outdated: Vec<String>,
    /// Size of a converted copy in bytes.
    pub copy_bytes: u64,
    /// Free memory for it in bytes.
    pub free_bytes: u64,
    /// Number of flows, if slowpath answers.
    pub flows: Option<u64>,
}

/// The tool that converts a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The `weir` of the installed version.
    Installed,
    /// The `weir` of the previous version, which is newer than the installed one: a downgrade.
    Previous,
}

/// What `weir upgrade apply` does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// The installed version runs.
    Nothing,
    /// Restarts programs; the region stays as it is.
    Restart,
    /// Stops the programs, converts the region, and starts them.
    Convert {
        /// What converts it.
        tool: Tool,
        /// Format of the region.
        from: u32,
        /// Format of the installed version.
        to: u32,
    },
    /// Starts with an empty region: no tool converts it.
    LoseFlows {
        /// Format of the region.
        from: u32,
        /// Format of the installed version.
        to: u32,
    },
    /// Stops nothing, because the switch is not possible.
    Refuse {
        /// Why, and what to do.
        reason: String,
    },
}

impl Facts {
    /// Decides what to do.
    pub fn action(&self) -> Action {
        let to = self.installed.format;
        let from = match self.region {
            Some(from) if from != to => from,
            _ if self.outdated.is_empty() => return Action::Nothing,
            _ => return Action::Restart,
        };
        if let Some(committed) = self.committed.as_ref().filter(|version| version.format > to) {
            let Version { version, format, .. } = committed;
            return Action::Refuse {
                reason: format!(
                    "the appliance was committed to version {version}, whose region has format \
                     {format}; the installed version {} has format {to}. Install version \
                     {version} or later",
                    self.installed.version
                ),
            };
        }
        if let Some(store) = self.store.filter(|store| *store > self.installed.store) {
            let Version { version, store: own, .. } = &self.installed;
            return Action::Refuse {
                reason: format!(
                    "the objects in control.state have format {store}, the installed version \
                     {version} reads formats up to {own}. Install the version to which the \
                     appliance was committed, or a later one"
                ),
            };
        }
        let tool = if self.converts.contains(&from) {
            Tool::Installed
        } else {
            match &self.previous {
                Some((version, formats)) if version.format == from && formats.contains(&to) => {
                    Tool::Previous
                }
                _ => return Action::LoseFlows { from, to },
            }
        };
        let (needed, free) = (self.copy_bytes, self.free_bytes);
        if needed > free {
            return Action::Refuse {
                reason: format!(
                    "the conversion of the region needs {} in /dev/shm, where {} can be used; \
                     free memory, or enlarge it: mount -o remount,size=SIZE /dev/shm",
                    bytes_text(needed),
                    bytes_text(free)
                ),
            };
        }
        Action::Convert { tool, from, to }
    }
}

/// The plan as shown.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The installed version.
    installed: ShownVersion,
    /// The previous version, if its programs are there.
    previous: Option<ShownVersion>,
    /// The version to which the appliance was committed.
    committed: Option<ShownVersion>,
    /// Format of the region; `None` if there is none.
    region_format: Option<u32>,
    /// Format of the store of objects; `None` if nothing is persisted.
    store_format: Option<u32>,
    /// Units that are stopped or run another version's program.
    outdated: Vec<String>,
    /// Number of flows, if slowpath answers.
    flows: Option<u64>,
    /// What `weir upgrade apply` does.
    #[serde(flatten)]
    action: Action,
    /// Size of a converted copy in bytes.
    copy_bytes: u64,
    /// Whether the data plane is a set of XDP programs.
    #[serde(skip)]
    xdp: bool,
}

#[derive(Clone, Debug, Serialize)]
struct ShownVersion {
    version: String,
    region_format: u32,
    store_format: u32,
}

impl From<&Version> for ShownVersion {
    fn from(version: &Version) -> ShownVersion {
        ShownVersion {
            version: version.version.clone(),
            region_format: version.format,
            store_format: version.store,
        }
    }
}

impl ShownVersion {
    fn text(&self) -> String {
        let ShownVersion { version, region_format, store_format } = self;
        format!("{version} (region format {region_format}, store format {store_format})")
    }
}

impl Plan {
    /// Makes the plan for these facts.
    pub fn new(facts: &Facts) -> Plan {
        Plan {
            installed: ShownVersion::from(&facts.installed),
            previous: facts.previous.as_ref().map(|(version, _)| ShownVersion::from(version)),
            committed: facts.committed.as_ref().map(ShownVersion::from),
            region_format: facts.region,
            store_format: facts.store,
            outdated: facts.outdated.clone(),
            flows: facts.flows,
            action: facts.action(),
            copy_bytes: facts.copy_bytes,
            xdp: facts.data_plane == XDP,
        }
    }

    /// Returns what `weir upgrade apply` does.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// Formats the plan.
    pub fn text(&self) -> String {
        let mut text = format!("installed   {}\n", self.installed.text());
        let none = || "none".to_owned();
        text += &format!(
            "previous    {}\n",
            self.previous.as_ref().map_or_else(none, ShownVersion::text)
        );
        if let Some(committed) = &self.committed {
            text += &format!("committed   {}\n", committed.text());
        }
        let format = self.region_format.map_or("no region".to_owned(), |f| format!("format {f}"));
        text += &format!("region      {format}\n");
        if let Some(store) = self.store_format {
            let own = self.installed.store_format;
            let later = match store < own {
                true => format!("; `weir upgrade commit` converts it to format {own}"),
                false => String::new(),
            };
            text += &format!("store       format {store}{later}\n");
        }
        let outdated = match self.outdated.as_slice() {
            [] => "nothing: no unit is stopped or runs another version".to_owned(),
            units => units.join(", "),
        };
        text += &format!("to switch   {outdated}\n");
        let flows = self.flows.map_or("flows".to_owned(), |flows| format!("{flows} flows"));
        text + &match &self.action {
            Action::Nothing => "plan        nothing: the installed version runs\n".to_owned(),
            Action::Restart => format!(
                "plan        restart; {flows} stay\ngap         {}\n",
                match self.xdp {
                    true => "none: the programs are replaced in place",
                    false => "packets are lost from the stop of fastpath to its start, about 1 s",
                }
            ),
            Action::Convert { tool, from, to } => format!(
                "plan        stop, convert the region from format {from} to {to}{}, start; {flows} \
                 stay\ngap         packets are lost meanwhile: about 1 s, and the time to copy \
                 {}\n",
                match tool {
                    Tool::Installed => "",
                    Tool::Previous => " by the tool of the previous version",
                },
                bytes_text(self.copy_bytes)
            ),
            Action::LoseFlows { from, to } => format!(
                "plan        start with an empty region: nothing converts format {from} to {to}. \
                 {flows} end.\n            --drain waits until they have ended\n"
            ),
            Action::Refuse { reason } => format!("refused     {reason}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a version with a region of `format`. Region format 13 comes with store format 2, and
    /// 14 with 3.
    fn version(version: &str, format: u32) -> Version {
        Version { version: version.to_owned(), format, store: format - 11 }
    }

    /// Version 2 with format 14 is installed over a running version 1 with format 13.
    fn upgrade() -> Facts {
        Facts {
            installed: version("2", 14),
            converts: vec![13],
            previous: Some((version("1", 13), Vec::new())),
            committed: None,
            region: Some(13),
            store: Some(2),
            data_plane: FASTPATH,
            outdated: vec!["weir-fastpath".to_owned(), "weir-slowpath".to_owned()],
            copy_bytes: 5 << 20,
            free_bytes: 1 << 30,
            flows: Some(7),
        }
    }

    /// Version 1 is installed over a running version 2.
    fn way_back() -> Facts {
        Facts {
            installed: version("1", 13),
            converts: Vec::new(),
            previous: Some((version("2", 14), vec![13])),
            region: Some(14),
            ..upgrade()
        }
    }

    #[test]
    fn another_format_is_converted_by_the_newer_tool() {
        let up = Action::Convert { tool: Tool::Installed, from: 13, to: 14 };
        assert_eq!(upgrade().action(), up);
        let down = Action::Convert { tool: Tool::Previous, from: 14, to: 13 };
        assert_eq!(way_back().action(), down);
        let text = Plan::new(&way_back()).text();
        assert!(
            text.contains("by the tool of the previous version, start; 7 flows stay"),
            "{text}"
        );
        // A previous version that was not saved, or has another format, is of no use.
        let lost = Action::LoseFlows { from: 14, to: 13 };
        assert_eq!(Facts { previous: None, ..way_back() }.action(), lost);
        let other = Some((version("2", 15), vec![13]));
        assert_eq!(Facts { previous: other, ..way_back() }.action(), lost);
        let lost = Facts { converts: vec![12], ..upgrade() };
        assert_eq!(lost.action(), Action::LoseFlows { from: 13, to: 14 });
        assert!(Plan::new(&lost).text().contains("7 flows end"));
    }

    #[test]
    fn the_store_keeps_its_format_until_the_commit_and_has_no_way_back_after_it() {
        let text = Plan::new(&upgrade()).text();
        let expected = "store       format 2; `weir upgrade commit` converts it to format 3\n";
        assert!(text.contains(expected), "{text}");
        let text = Plan::new(&way_back()).text();
        assert!(text.contains("store       format 2\n"), "{text}");
        let Action::Refuse { reason } = Facts { store: Some(3), ..way_back() }.action() else {
            panic!("a store that version 1 cannot read");
        };
        assert!(reason.contains("have format 3, the installed version 1 reads"), "{reason}");
        let nothing_persisted = Facts { store: None, ..way_back() };
        assert!(matches!(nothing_persisted.action(), Action::Convert { .. }));
    }

    #[test]
    fn the_same_format_needs_a_restart_only_of_outdated_programs() {
        let same = Facts { region: Some(14), ..upgrade() };
        assert_eq!(same.action(), Action::Restart);
        assert_eq!(Facts { region: None, ..upgrade() }.action(), Action::Restart);
        assert_eq!(Facts { outdated: Vec::new(), ..same.clone() }.action(), Action::Nothing);
        assert!(Plan::new(&same).text().contains("7 flows stay"));
        let xdp = Facts { data_plane: XDP, ..same };
        assert!(Plan::new(&xdp).text().contains("replaced in place"));
    }

    #[test]
    fn a_commit_or_too_little_memory_refuses_with_what_to_do() {
        let committed = Facts { committed: Some(version("2", 14)), ..way_back() };
        let Action::Refuse { reason } = committed.action() else { panic!("{committed:?}") };
        assert!(reason.ends_with("Install version 2 or later"), "{reason}");
        // Later versions are installed as before.
        let later = Facts { committed: Some(version("1", 13)), ..upgrade() };
        assert!(matches!(later.action(), Action::Convert { .. }));
        let full = Facts { copy_bytes: 1 << 30, free_bytes: 1 << 20, ..upgrade() };
        let Action::Refuse { reason } = full.action() else { panic!("{full:?}") };
        assert!(
            reason.contains("needs 1.0 GiB in /dev/shm, where 1.0 MiB can be used"),
            "{reason}"
        );
    }
}
