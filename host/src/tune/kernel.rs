//! Parameters of the kernel's command line.

use std::collections::BTreeMap;

use config::Config;
use config::checked::PageSize;
use hugepages::{Machine, MachineError, NodePages, boot_parameters};

use super::drop_in::DropIn;
use super::setting::Setting;
use super::situation::{Draft, Situation};
use crate::Root;
use crate::cpu_set::CpuSet;
use crate::driver::{Attachment, UserDriver};
use crate::machine::{CommandLine, Platform, has_iommu_hardware, iommu_enabled, is_enabled, units};

/// Returns the parameters that this machine should boot with.
pub(super) fn parameters(situation: &Situation<'_>) -> Vec<Setting> {
    let mut parameters = isolation(situation);
    parameters.extend(pages(situation));
    parameters.extend(iommu(situation));
    parameters.extend(clock(situation));
    parameters
}

/// Returns a parameter, unless its purpose is fulfilled without Weir's file. `now` is the value in
/// the kernel, `in_force` whether the purpose is fulfilled now.
fn parameter(
    situation: &Situation<'_>,
    (name, wanted): (&str, String),
    now: String,
    in_force: bool,
    reason: &'static str,
) -> Option<Setting> {
    let key = match name {
        // `hugepages` counts pages of the size before it, so that its entry begins with that.
        "hugepages" => "hugepagesz",
        name => name,
    };
    let is_ours = DropIn::Grub.sets(situation.root, key) || situation.record.has_parameter(key);
    if in_force && !is_ours {
        return None;
    }
    let entry = match name {
        "hugepages" => boot_parameters(situation.config.fastpath.hugepage_size, &wanted),
        name => format!("{name}={wanted}"),
    };
    let draft = Draft {
        name: name.to_owned(),
        group: "",
        file: Some((DropIn::Grub, entry)),
        key: key.to_owned(),
        wanted,
        reason,
    };
    Some(Setting { now, in_force, ..draft.into_setting() })
}

/// Returns the parameters that keep the system off the CPUs of lcores.
fn isolation(situation: &Situation<'_>) -> Vec<Setting> {
    let (lcores, others) = (&situation.lcores, &situation.others);
    let Some(cpus) = situation.cpus.as_ref().filter(|_| !lcores.is_empty()) else {
        return Vec::new();
    };
    // The boot CPU keeps its tick, which maintains the kernel's time.
    let tickless: CpuSet = lcores.iter().filter(|cpu| *cpu != 0).collect();
    let mut found = vec![parameter(
        situation,
        ("isolcpus", format!("managed_irq,domain,{lcores}")),
        cpus.isolated.to_string(),
        cpus.isolated.includes(lcores),
        "the scheduler puts no other thread on the CPUs of lcores, and drivers that place their \
         interrupts themselves avoid them",
    )];
    if let Some(nohz_full) = cpus.nohz_full.as_ref().filter(|_| !tickless.is_empty()) {
        found.push(parameter(
            situation,
            ("nohz_full", tickless.to_string()),
            nohz_full.to_string(),
            nohz_full.includes(&tickless),
            "the timer tick does not interrupt lcores",
        ));
    }
    if !tickless.is_empty() {
        found.push(parameter(
            situation,
            ("rcu_nocbs", tickless.to_string()),
            cpus.rcu_nocbs.to_string(),
            cpus.rcu_nocbs.includes(&tickless),
            "the kernel's deferred work (RCU callbacks) runs on other CPUs",
        ));
    }
    // The current affinity is a separate setting, so it does not show what was set at boot.
    let booted = situation.command_line.value("irqaffinity").map(CpuSet::parse);
    found.push(parameter(
        situation,
        ("irqaffinity", others.to_string()),
        booted.as_ref().map(CpuSet::to_string).unwrap_or_default(),
        booted.is_some_and(|cpus| cpus.intersection(lcores).is_empty()),
        "interrupts of devices that appear later are handled on other CPUs",
    ));
    found.into_iter().flatten().collect()
}

/// Pages that are needed at boot, and what reserves them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootPages {
    /// Size of the pages.
    pub page: PageSize,
    /// Pages that each NUMA node needs; empty if none are needed.
    pub needed: Vec<NodePages>,
    /// Pages that the command line or a sysctl file reserves, with the name of the source.
    pub reserved: Option<(u64, String)>,
    /// The enabled unit that runs `weir hugepages apply`.
    pub unit: Option<String>,
}

impl BootPages {
    /// Returns the number of pages that all nodes need.
    pub fn total(&self) -> u64 {
        self.needed.iter().map(|node| node.needed).sum()
    }

    /// Returns whether the pages are reserved at every boot. A unit that starts after others finds
    /// pages of 2 MiB, but may find no contiguous gigabyte.
    pub fn enough(&self) -> bool {
        let total = self.total();
        total == 0
            || (self.unit.is_some() && self.page == PageSize::TwoMib)
            || self.reserved.as_ref().is_some_and(|(pages, _)| *pages >= total)
    }
}

/// Directories of sysctl files. If several have a file of the same name, the first one is used.
const SYSCTL: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];

/// Returns the pages that DPDK and the region need at boot, and what reserves them.
///
/// # Errors
/// Returns an error if the memory of the machine cannot be read.
pub fn boot_pages(root: &Root, config: &Config) -> Result<BootPages, MachineError> {
    let path = root.join("");
    let machine = Machine::read(&path)?;
    let plan = hugepages::plan_below(config, &path);
    let needed = hugepages::pages_at_boot(&plan, &machine);
    let command_line = CommandLine::read(root).unwrap_or_default();
    let booted = pages_of(&command_line, plan.page, default_page_is(root, plan.page));
    let of_command_line = (booted > 0).then(|| (booted, "the kernel's command line".to_owned()));
    // The sysctl counts pages of the default size.
    let of_sysctl = sysctl_pages(root).filter(|_| default_page_is(root, plan.page));
    Ok(BootPages {
        page: plan.page,
        needed,
        reserved: of_sysctl.or(of_command_line),
        unit: unit_that_reserves(root),
    })
}

/// Returns whether this is the default size of huge pages.
fn default_page_is(root: &Root, page: PageSize) -> bool {
    let meminfo = root.read("proc/meminfo").unwrap_or_default();
    let size = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
    // A kernel without huge pages, and files of tests, have no such line.
    size.map_or(page == PageSize::TwoMib, |size| {
        size.trim() == format!("{} kB", page.bytes() >> 10)
    })
}

/// Returns the number of pages of a size that a command line reserves.
fn pages_of(command_line: &CommandLine, page: PageSize, is_default: bool) -> u64 {
    let is_size = |size: &str| match page {
        PageSize::TwoMib => matches!(size, "2M" | "2m" | "2048K" | "2048k"),
        PageSize::OneGib => {
            matches!(size, "1G" | "1g" | "1024M" | "1024m" | "1048576K" | "1048576k")
        }
    };
    let default = command_line.value("default_hugepagesz").map_or(is_default, is_size);
    let (mut counts, mut total) = (default, 0);
    for (name, value) in command_line.parameters() {
        match name {
            "hugepagesz" => counts = is_size(value),
            // A number, or one per node: `0:512,1:512`.
            "hugepages" if counts => {
                let number = |part: &str| part.rsplit(':').next()?.parse::<u64>().ok();
                total += value.split(',').filter_map(number).sum::<u64>();
            }
            _ => {}
        }
    }
    total
}

/// Returns the value of `vm.nr_hugepages` in the last file that sets it.
fn sysctl_pages(root: &Root) -> Option<(u64, String)> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for directory in SYSCTL {
        for name in root.list(directory).into_iter().filter(|name| name.ends_with(".conf")) {
            let path = format!("{directory}/{name}");
            files.entry(name).or_insert(path);
        }
    }
    let last = std::iter::once("etc/sysctl.conf".to_owned());
    let pages = |path: String| {
        let text = root.read(&path)?;
        let value = |line: &str| {
            let (key, value) = line.split_once('=')?;
            let key = key.trim().trim_start_matches('-').replace('/', ".");
            (key == "vm.nr_hugepages").then(|| value.trim().parse::<u64>().ok()).flatten()
        };
        text.lines().filter_map(value).next_back().map(|pages| (pages, format!("/{path}")))
    };
    files.into_values().chain(last).filter_map(pages).next_back()
}

/// Returns the unit that reserves the pages when it starts at boot.
fn unit_that_reserves(root: &Root) -> Option<String> {
    let all = units(root);
    let reserves = |words: &[&str]| words.windows(2).any(|pair| pair == ["hugepages", "apply"]);
    let found = all.iter().find(|unit| unit.executes(reserves) && is_enabled(root, &all, unit));
    found.map(|unit| unit.name.clone())
}

/// Returns the parameters that reserve huge pages at boot, when memory is contiguous.
fn pages(situation: &Situation<'_>) -> Vec<Setting> {
    let root = situation.root;
    let Ok(pages) = boot_pages(root, situation.config) else { return Vec::new() };
    if pages.needed.is_empty() {
        return Vec::new();
    }
    let wanted = match pages.needed[..] {
        [NodePages { id: 0, needed, .. }] => needed.to_string(),
        _ => {
            let node = |node: &NodePages| format!("{}:{}", node.id, node.needed);
            pages.needed.iter().map(node).collect::<Vec<_>>().join(",")
        }
    };
    let reason = match pages.page {
        PageSize::TwoMib => "pages of 2 MiB are reserved while memory is contiguous",
        PageSize::OneGib => {
            "pages of 1 GiB are reserved while memory is contiguous; the default size stays, since \
             Weir mounts a hugetlbfs of its own"
        }
    };
    let default = pages.page == PageSize::OneGib || default_page_is(root, PageSize::TwoMib);
    let now = pages.reserved.as_ref().map(|(pages, _)| pages.to_string()).unwrap_or_default();
    let mut found = Vec::new();
    if !default {
        found.extend(parameter(
            situation,
            ("default_hugepagesz", "2M".to_owned()),
            situation.command_line.value("default_hugepagesz").unwrap_or_default().to_owned(),
            situation.command_line.has("default_hugepagesz=2M"),
            "hugetlbfs is mounted with pages of the default size, and Weir's are of 2 MiB",
        ));
    }
    found.extend(parameter(situation, ("hugepages", wanted), now, pages.enough(), reason));
    found
}

/// Returns the parameters of the IOMMU, where vfio-pci is to use one.
fn iommu(situation: &Situation<'_>) -> Vec<Setting> {
    let uses_vfio = situation.devices.iter().any(|device| {
        matches!(device.dpdk_driver().map(|driver| driver.attachment),
            Some(Attachment::UserDriver(supports))
                if device.nic().is_some()
                    && supports.iter().any(|one| one.driver == UserDriver::VfioPci))
    });
    let root = situation.root;
    if situation.config.plane != config::checked::Plane::Dpdk
        || !uses_vfio
        || has_iommu_hardware(root) != Some(true)
    {
        return Vec::new();
    }
    let line = &situation.command_line;
    let enabled = iommu_enabled(root);
    let mut found = Vec::new();
    // The kernel's driver of Intel's IOMMUs, which the table DMAR describes, is off unless a
    // parameter or the kernel's build enables it; the drivers of AMD's and ARM's are on.
    if root.exists("sys/firmware/acpi/tables/DMAR") {
        let now = line.value("intel_iommu").unwrap_or_default().to_owned();
        found.push(parameter(
            situation,
            ("intel_iommu", "on".to_owned()),
            now,
            enabled,
            "with the IOMMU, vfio-pci confines the memory that NICs can access",
        ));
    }
    // On ARM, whose CPUs have an implementer instead of a vendor, the parameter has another name.
    let cpuinfo = root.read("proc/cpuinfo").unwrap_or_default();
    let (name, wanted) = match cpuinfo.contains("CPU implementer") {
        true => ("iommu.passthrough", "1"),
        false => ("iommu", "pt"),
    };
    let now = line.value(name).unwrap_or_default().to_owned();
    let in_force = now.split(',').any(|part| part == wanted) || line.has("iommu.passthrough=1");
    found.push(parameter(
        situation,
        (name, wanted.to_owned()),
        now,
        in_force,
        "devices of the kernel bypass the IOMMU, whose translation costs throughput; devices of \
         vfio-pci stay confined",
    ));
    found.into_iter().flatten().collect()
}

/// Returns the parameter of the clock source on AWS's Xen instances.
fn clock(situation: &Situation<'_>) -> Vec<Setting> {
    let root = situation.root;
    let available = root.read(format!("{CLOCK}/available_clocksource")).unwrap_or_default();
    let has_tsc = available.split_whitespace().any(|name| name == "tsc");
    if !matches!(situation.platform, Platform::Aws { xen: true, .. }) || !has_tsc {
        return Vec::new();
    }
    let now = situation.command_line.value("clocksource").unwrap_or_default().to_owned();
    let (in_force, reason) = (now == "tsc", CLOCK_REASON);
    let found = parameter(situation, ("clocksource", "tsc".to_owned()), now, in_force, reason);
    found.into_iter().collect()
}

/// Directory of the clock source.
pub(super) const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";

/// Why the clock source should be the TSC.
pub(super) const CLOCK_REASON: &str =
    "the clock source xen is read by a system call, tsc without one";
