//! The command line of DPDK's EAL.

use crate::nic::target::Target;
use config::Config;

/// Returns the command line of DPDK's EAL, which allocates memory on NUMA node `numa_node` if
/// given.
pub(super) fn of(config: &Config, targets: &[Target], numa_node: Option<u32>) -> Vec<String> {
    let fastpath = &config.fastpath;
    // Each lcore is numbered like its CPU, except the main lcore if a polling lcore uses its CPU.
    let polls = |number: &u16| fastpath.lcores.contains(number);
    let mut numbers = std::iter::once(fastpath.main_core).chain(0..);
    let main = numbers.find(|number| !polls(number)).unwrap_or(fastpath.main_core);
    let mut cores = vec![format!("{main}@{}", fastpath.main_core)];
    cores.extend(fastpath.lcores.iter().map(|cpu| format!("{cpu}@{cpu}")));
    let mut arguments = vec![
        "--lcores".to_owned(),
        cores.join(","),
        "--main-lcore".to_owned(),
        main.to_string(),
        "--file-prefix".to_owned(),
        format!("weir-{}", std::process::id()),
        "--no-telemetry".to_owned(),
        "--log-level=lib.*:notice".to_owned(),
    ];
    // Rounded up to whole pages: DPDK would take a remainder from smaller hugepages, if there are
    // any.
    let mib = match fastpath.hugepages {
        true => u64::from(fastpath.memory_mib)
            .next_multiple_of(fastpath.hugepage_size.bytes() >> 20)
            .to_string(),
        false => fastpath.memory_mib.to_string(),
    };
    match numa_node.filter(|_| fastpath.hugepages) {
        // MiB per node, from node 0 on.
        Some(numa_node) => {
            arguments.push(format!("--socket-mem={}{mib}", "0,".repeat(numa_node as usize)))
        }
        None => arguments.extend(["-m".to_owned(), mib]),
    }
    if fastpath.hugepages {
        arguments.push("--in-memory".to_owned());
    } else {
        arguments.extend(["--no-huge".to_owned(), "--no-shconf".to_owned()]);
    }
    arguments.extend(targets.iter().map(Target::eal_argument));
    if !targets.iter().any(Target::is_pci) {
        arguments.push("--no-pci".to_owned());
    }
    arguments.extend(fastpath.eal.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_allocated_on_the_numa_node_of_the_nics() {
        let config = |more: &str| {
            let arm = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"";
            config::from_toml(&format!("[fastpath]\nlcores = [1]\n{more}\n{arm}")).unwrap()
        };
        let has = |more: &str, numa_node, expected: &[&str]| {
            let arguments = of(&config(more), &[], numa_node);
            arguments.windows(expected.len()).any(|run| run == expected)
        };
        assert!(has("memory_mib = 500", Some(0), &["--socket-mem=500"]));
        assert!(has("memory_mib = 500", Some(2), &["--socket-mem=0,0,500"]));
        assert!(!has("memory_mib = 500", Some(2), &["-m"]));
        assert!(has("memory_mib = 500", None, &["-m", "500"]));
        assert!(has("memory_mib = 500\nhugepages = false", Some(1), &["-m", "500"]));
        let large = "memory_mib = 1100\nhugepage_size = \"1G\"";
        assert!(has(large, Some(1), &["--socket-mem=0,2048"]));
        assert!(has(&format!("{large}\nhugepages = false"), None, &["-m", "1100"]));
    }
}
