//! CPU frequency, transparent huge pages, clock source and sysctls.

use config::checked::{Plane, PortOverlap};

use super::drop_in::DropIn;
use super::kernel::{CLOCK, CLOCK_REASON};
use super::setting::Setting;
use super::situation::{Draft, Situation};
use crate::cpu_set::CpuSet;
use crate::machine::{Cpus, Platform};

/// Returns the settings of CPU frequency, transparent huge pages and the clock source.
pub(super) fn settings(situation: &Situation<'_>) -> Vec<Setting> {
    let mut settings = governors(situation);
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    situation.add_value(
        &mut settings,
        path.to_owned(),
        |value| value != "always",
        Draft {
            name: "transparent huge pages".to_owned(),
            group: "",
            file: Some((DropIn::Tmpfiles, format!("w /{path} - - - - madvise"))),
            key: format!("/{path}"),
            wanted: "madvise".to_owned(),
            reason: "the kernel does not pause programs while it merges their memory into huge \
                     pages, and leaves contiguous memory for those that Weir reserves",
        },
    );
    if matches!(situation.platform, Platform::Aws { xen: true, .. }) {
        situation.add_value(
            &mut settings,
            format!("{CLOCK}/current_clocksource"),
            |value| value != "xen",
            Draft {
                name: "clock source".to_owned(),
                group: "",
                file: None,
                key: String::new(),
                wanted: "tsc".to_owned(),
                reason: CLOCK_REASON,
            },
        );
    }
    settings
}

/// Returns the governors of the CPUs that forward packets: those of lcores and the control thread,
/// or all of them with XDP.
fn governors(situation: &Situation<'_>) -> Vec<Setting> {
    let mut settings = Vec::new();
    let Some(cpus) = &situation.cpus else { return settings };
    let fastpath = &situation.config.fastpath;
    let forwarding: CpuSet = match situation.config.plane {
        Plane::Xdp => cpus.online.clone(),
        Plane::Dpdk => fastpath.lcores.iter().copied().chain([fastpath.main_core]).collect(),
    };
    for cpu in forwarding.iter().filter(|cpu| cpus.supports_performance_governor(*cpu)) {
        let path = Cpus::governor_file(cpu);
        let draft = Draft {
            name: format!("governor of CPU {cpu}"),
            group: "governors",
            file: Some((DropIn::Tmpfiles, format!("w /{path} - - - - performance"))),
            key: format!("/{path}"),
            wanted: "performance".to_owned(),
            reason: "the CPU does not lower its frequency, so that the first packets after a pause \
                     are as fast as the others",
        };
        situation.add_value(&mut settings, path, |value| value == "performance", draft);
    }
    settings
}

/// Returns the sysctls: ranges of ports, kernel work on the CPUs of lcores, reverse path filters.
pub(super) fn sysctls(situation: &Situation<'_>) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut add = |key: &str, satisfies: &dyn Fn(&str) -> bool, wanted: String, reason| {
        let draft = Draft {
            name: key.replace('/', "."),
            group: "",
            file: Some((DropIn::Sysctl, format!("{key} = {wanted}"))),
            key: key.to_owned(),
            wanted,
            reason,
        };
        situation.add_value(&mut settings, format!("proc/sys/{key}"), satisfies, draft);
    };
    let overlap = |text: &str| {
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<u16>().ok());
        let range = (numbers.next()?, numbers.next()?);
        PortOverlap::of(situation.config, range)?.range_above()
    };
    // With all ports as the kernel's range, there is an overlap whenever NAT uses an address of the
    // machine.
    if let Some((first, last)) = overlap("1 65535") {
        add(
            "net/ipv4/ip_local_port_range",
            &|value| overlap(value).is_none(),
            format!("{first} {last}"),
            "NAT and the machine's own connections share an address and take their ports from \
             different ranges",
        );
    }
    if !situation.lcores.is_empty() {
        add(
            "vm/stat_interval",
            &|value| value.parse::<u32>().is_ok_and(|seconds| seconds >= 10),
            "10".to_owned(),
            "the kernel interrupts each CPU to sum up its memory statistics every ten seconds, not \
             every second",
        );
        let lcores = &situation.lcores;
        add(
            "kernel/watchdog_cpumask",
            &|value| CpuSet::parse(value).intersection(lcores).is_empty(),
            situation.others.to_string(),
            "the watchdog for lockups has no timer on the CPUs of lcores, which never yield",
        );
        if situation.root.list("sys/devices/system/node").iter().any(|name| name == "node1") {
            add(
                "kernel/numa_balancing",
                &|value| value == "0",
                "0".to_owned(),
                "the kernel does not unmap pages of lcores to see which NUMA node uses them",
            );
        }
    }
    settings.extend(reverse_path_filters(situation));
    settings
}

/// Returns the reverse path filters of the arms' interfaces where they are strict.
fn reverse_path_filters(situation: &Situation<'_>) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (device, (_, arm)) in situation.devices.iter().zip(situation.config.arms()) {
        let interface = match situation.config.plane {
            Plane::Dpdk => Some(arm.tap.as_str()),
            Plane::Xdp => device.interface(),
        };
        let Some(interface) = interface else { continue };
        let key = format!("net/ipv4/conf/{interface}/rp_filter");
        let draft = Draft {
            name: format!("rp_filter of {interface}"),
            group: "",
            // The interface of a TAP does not exist at boot; udev sets the value when it appears.
            file: Some((DropIn::Sysctl, format!("-{key} = 2"))),
            key: key.clone(),
            wanted: "2".to_owned(),
            reason: "packets to proxies, and replies to health checks through tunnels, arrive by \
                     another path than replies to them leave",
        };
        let setting =
            |name: &str| situation.root.read(format!("proc/sys/net/ipv4/conf/{name}/rp_filter"));
        let all = setting("all").unwrap_or_default();
        // The larger one of the two values is in force, so that 2 on the interface overrides 1 in
        // `all`.
        let is_strict = |own: &str| own.max(all.as_str()) == "1";
        if setting(interface).is_some() {
            let path = format!("proc/sys/{key}");
            situation.add_value(&mut settings, path, |own| !is_strict(own), draft);
            continue;
        }
        let default = setting("default").unwrap_or_default();
        let owned = DropIn::Sysctl.sets(situation.root, &key);
        if is_strict(&default) || owned {
            // The drop-in file sets it when the interface appears.
            let now = format!("{default} (default)");
            settings.push(Setting { now, in_force: owned, ..draft.into_setting() });
        }
    }
    settings
}
