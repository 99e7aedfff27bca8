//! The kernel's version and modules.

use crate::Root;
use crate::driver::Version;

/// Returns the kernel's version, `6.1` of `6.1.0-56-cloud-amd64`.
pub fn kernel_version(root: &Root) -> Option<Version> {
    let release = root.read("proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns whether a module is loaded or built in. `/sys/module` has all loaded modules, but of
/// built-in ones only those with parameters or a version; the others are in `modules.builtin`.
pub fn module_loaded(root: &Root, name: &str) -> bool {
    let name = name.replace('-', "_");
    root.exists(format!("sys/module/{name}")) || is_listed(root, "modules.builtin", &name)
}

/// Returns whether a module can be loaded; `None` if the kernel's list of modules cannot be read.
pub fn module_available(root: &Root, name: &str) -> Option<bool> {
    let name = name.replace('-', "_");
    let release = root.read("proc/sys/kernel/osrelease")?;
    root.read(format!("lib/modules/{release}/modules.dep"))?;
    Some(is_listed(root, "modules.dep", &name) || is_listed(root, "modules.builtin", &name))
}

/// Returns whether the file `list` of the running kernel names the module. Each line begins with
/// the path of a module: `kernel/drivers/vfio/pci/vfio-pci.ko.xz:`.
fn is_listed(root: &Root, list: &str, name: &str) -> bool {
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let text = root.read(format!("lib/modules/{release}/{list}")).unwrap_or_default();
    text.lines().any(|line| {
        let path = line.split(':').next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        file.split(".ko").next().is_some_and(|stem| stem.replace('-', "_") == name)
    })
}
