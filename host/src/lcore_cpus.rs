//! The CPUs that should run nothing but lcores.

use config::Config;
use config::checked::{Idle, Plane};

use crate::cpu_set::CpuSet;

/// Returns the CPUs to reserve for lcores, or why none should be.
pub(crate) fn reserved_cpus(config: &Config, online: &CpuSet) -> Result<CpuSet, String> {
    if config.plane == Plane::Xdp {
        return Err("plane xdp: no CPU polls, so none is reserved".to_owned());
    }
    let fastpath = &config.fastpath;
    if fastpath.idle != Idle::Spin {
        let idle = if fastpath.idle == Idle::Sleep { "sleep" } else { "yield" };
        return Err(format!(
            "fastpath.idle = \"{idle}\": lcores share their CPUs, so none is reserved for them"
        ));
    }
    let lcores: CpuSet = fastpath.lcores.iter().copied().collect();
    if !online.includes(&lcores) {
        return Err(format!(
            "fastpath.lcores: CPU {} of {lcores} is not online, so none is reserved",
            lcores.without(online)
        ));
    }
    if online.without(&lcores).is_empty() {
        return Err(format!(
            "fastpath.lcores: all CPUs ({online}) poll, and none is left for the system; none is \
             reserved"
        ));
    }
    Ok(lcores)
}
