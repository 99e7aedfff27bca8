//! Settings that keep interrupts off the CPUs of lcores.

use super::drop_in::DropIn;
use super::setting::Setting;
use super::situation::{Draft, Situation};
use crate::cpu_set::CpuSet;
use crate::machine::interrupts;

const REASON: &str = "an interrupt stops the lcore of its CPU for microseconds";

/// Returns the settings that keep interrupts off the CPUs of lcores.
pub(super) fn settings(situation: &Situation<'_>) -> Vec<Setting> {
    let (lcores, others) = (&situation.lcores, &situation.others);
    let mut settings = Vec::new();
    if lcores.is_empty() {
        return settings;
    }
    let path = "proc/irq/default_smp_affinity";
    let avoids =
        |text: &str| CpuSet::from_mask(text).is_some_and(|c| c.intersection(lcores).is_empty());
    situation.add_value(
        &mut settings,
        path.to_owned(),
        avoids,
        Draft {
            name: "default affinity of interrupts".to_owned(),
            group: "",
            file: Some((DropIn::Tmpfiles, format!("w /{path} - - - - {}", others.mask()))),
            key: format!("/{path}"),
            wanted: others.mask(),
            reason: "interrupts of devices that appear later are handled on other CPUs",
        },
    );
    for interrupt in interrupts(situation.root).unwrap_or_default() {
        let left = interrupt.allowed.without(lcores);
        let wanted = if left.is_empty() { others } else { &left };
        let avoids = |text: &str| CpuSet::parse(text).intersection(lcores).is_empty();
        situation.add_value(
            &mut settings,
            interrupt.affinity_file(),
            avoids,
            Draft {
                name: format!("interrupt {} ({})", interrupt.number, interrupt.names.join(", ")),
                group: "interrupts",
                file: None,
                key: String::new(),
                wanted: wanted.to_string(),
                reason: REASON,
            },
        );
    }
    settings.extend(irqbalance(situation));
    settings
}

/// Returns the setting of irqbalance, which moves interrupts every ten seconds. It avoids isolated
/// CPUs without this setting, but `isolcpus` isolates them only from the next boot on.
fn irqbalance(situation: &Situation<'_>) -> Option<Setting> {
    let installed = ["usr/sbin/irqbalance", "sbin/irqbalance"];
    if !installed.iter().any(|path| situation.root.exists(path)) {
        return None;
    }
    let name = "IRQBALANCE_BANNED_CPULIST";
    let entry = format!("Environment={name}={}", situation.lcores);
    let text = DropIn::Irqbalance.text(situation.root).unwrap_or_default();
    let now = text.lines().find_map(|line| line.strip_prefix(&format!("Environment={name}=")));
    let now = now.unwrap_or_default().to_owned();
    let wanted = situation.lcores.to_string();
    let draft = Draft {
        name: name.to_owned(),
        group: "",
        file: Some((DropIn::Irqbalance, entry)),
        key: name.to_owned(),
        wanted: wanted.clone(),
        reason: "irqbalance does not move interrupts back to the CPUs of lcores",
    };
    Some(Setting { in_force: now == wanted, now, ..draft.into_setting() })
}
