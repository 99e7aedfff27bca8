//! Checks the memory: huge pages now and at boot, and their file system.

use config::checked::PageSize;
use hugepages::{Machine, Mount, Plan};

use super::context::Context;
use super::finding::Finding;
use crate::machine::processes;
use crate::tune::{BootPages, boot_pages};

const MEMORY: &str = "memory";
const BOOT: &str = "memory at boot";
const HUGETLBFS: &str = "hugetlbfs";
const SIZE: &str = "hugepage size";

/// Size of a region in bytes above which pages of 1 GiB are advised. With pages of 2 MiB, a region
/// of this size takes 2,048 TLB entries, as many as the second level of current server CPUs has.
const LARGE_REGION: u64 = 4 << 30;

const NO_START: &str = "the data plane does not get its memory and does not start";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let path = context.root.join("");
    let machine = match Machine::read(&path) {
        Ok(machine) => machine,
        Err(error) => return vec![Finding::not_checked(MEMORY, error.to_string(), "")],
    };
    let plan = hugepages::plan_below(context.config, &path);
    let result = hugepages::check(&plan, &machine);
    let program = context.data_plane();
    let running = processes(context.root).into_iter().find(|process| process.name == program);
    let mut problems = &result.problems[..];
    let mut findings = Vec::new();
    if context.is_dpdk() && plan.hugepages {
        // If a hugetlbfs has to be mounted, that is the first of the problems.
        let (mount, others) = match problems {
            [mount, others @ ..] if result.mount.is_some() => (Some(mount), others),
            all => (None, all),
        };
        problems = others;
        findings.push(hugetlbfs(&machine, &plan, mount));
        findings.extend(page_size(&machine, &plan));
    }
    match (problems, running) {
        ([], _) => findings.push(Finding::ok(MEMORY, summary(&plan))),
        // The pages of the running program are not free, so that they seem to be missing.
        (_, Some(running)) => {
            let text = format!("in use by {program} (process {}): {}", running.pid, summary(&plan));
            findings.push(Finding::ok(MEMORY, text));
        }
        (problems, None) => findings.extend(problems.iter().map(|text| problem(MEMORY, text))),
    }
    // NUMA has a check of its own.
    let numa = hugepages::numa::warnings(&plan, &machine);
    let warnings = result.warnings.iter().filter(|warning| !numa.contains(warning));
    findings.extend(warnings.map(|text| Finding::warning(MEMORY, text, "", "")));
    match boot_pages(context.root, context.config) {
        Ok(pages) if !pages.needed.is_empty() => findings.push(at_boot(context, &pages)),
        _ => {}
    }
    findings
}

fn summary(plan: &Plan) -> String {
    match plan.hugepages {
        true => format!("{} pages of {}", plan.pages(), plan.page),
        false => format!("{} MiB of ordinary memory", plan.bytes() >> 20),
    }
}

/// Returns a problem that `hugepages` found. Most texts end with a command.
fn problem(check: &'static str, text: &str) -> Finding {
    let (found, remedy) = text.split_once(": type ").unwrap_or((text, ""));
    Finding::error(check, found, NO_START, remedy)
}

/// Checks the file system of the region.
fn hugetlbfs(machine: &Machine, plan: &Plan, missing: Option<&String>) -> Finding {
    if let Some(text) = missing {
        return problem(HUGETLBFS, text);
    }
    match machine.mount_of(&plan.region_path) {
        Some(Mount { path, page_bytes: Some(bytes) }) if *bytes == plan.page.bytes() => {
            Finding::ok(HUGETLBFS, format!("pages of {}, mounted on {}", plan.page, path.display()))
        }
        _ => Finding::info(
            HUGETLBFS,
            format!("region.path = \"{}\" is not on hugetlbfs", plan.region_path.display()),
        ),
    }
}

/// Compares the page size with the size of the region, and finds free pages of the other size,
/// which Weir does not use.
fn page_size(machine: &Machine, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has_gigabytes = machine.supported.contains(&PageSize::OneGib);
    if plan.page == PageSize::TwoMib && plan.region_bytes > LARGE_REGION && has_gigabytes {
        findings.push(Finding::warning(
            SIZE,
            format!("region of {} MiB in pages of 2 MiB", plan.region_bytes >> 20),
            "its pages exceed the entries of the CPU's TLB, and lookups take longer",
            "set fastpath.hugepage_size = \"1G\", drain, and restart both processes",
        ));
    }
    for other in PageSize::ALL.into_iter().filter(|size| *size != plan.page) {
        let free: u64 = machine.nodes.iter().map(|node| node.pages(other).free).sum();
        if free > 0 {
            findings.push(Finding::info(
                SIZE,
                format!(
                    "{free} pages of {other} are reserved and free; Weir uses pages of {} \
                     (fastpath.hugepage_size)",
                    plan.page
                ),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(SIZE, format!("pages of {} only", plan.page)));
    }
    findings
}

fn at_boot(context: &Context<'_>, pages: &BootPages) -> Finding {
    let (needed, page) = (pages.total(), pages.page);
    let found = match (&pages.unit, &pages.reserved) {
        (Some(unit), _) if pages.enough() => {
            format!("{unit} reserves the pages when it starts")
        }
        (_, Some((reserved, source))) => format!("{source} reserves {reserved} pages of {page}"),
        (Some(unit), None) => format!("{unit} requests pages of {page} when it starts"),
        (None, None) => format!("nothing reserves pages of {page}"),
    };
    if pages.enough() {
        return Finding::ok(BOOT, found);
    }
    let consequence = format!(
        "after a reboot {needed} pages have to be found in fragmented memory, or fastpath does not \
         start"
    );
    Finding::warning(BOOT, found, consequence, context.boot_remedy())
}
