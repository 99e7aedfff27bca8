//! Locates the installed DPDK, generates bindings of its headers and links its static archives.
//!
//! Static linking improves the throughput of a small forwarder by 22 %
//! (docs/decisions/0070-dpdk.md) and avoids a plug-in folder. Only the drivers listed here are
//! linked.

use std::ffi::{OsStr, OsString};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A driver, and the libraries outside of DPDK that it must be linked with.
struct Driver {
    name: &'static str,
    system: &'static [&'static str],
}

const fn driver(name: &'static str, system: &'static [&'static str]) -> Driver {
    Driver { name, system }
}

/// The drivers to link if the installed DPDK has them, with the buses and shared code that they
/// need. Debian 12's package lacks net_mana. `make dpdk` (build-dpdk.sh) reads this table to build
/// each of them.
const DRIVERS: &[Driver] = &[
    driver("bus_pci", &[]),
    driver("bus_vdev", &[]),
    driver("bus_vmbus", &[]),
    driver("mempool_ring", &[]),
    driver("net_null", &[]),
    driver("net_ring", &[]),
    driver("net_pcap", &["pcap"]),
    driver("net_memif", &[]),
    driver("net_af_packet", &[]),
    driver("net_af_xdp", &["xdp", "bpf", "elf", "z"]),
    driver("net_tap", &[]),
    driver("net_virtio", &[]),
    driver("net_vhost", &[]),
    driver("net_ena", &[]),
    driver("net_netvsc", &[]),
    driver("net_vdev_netvsc", &[]),
    driver("net_failsafe", &[]),
    driver("net_mana", &["mana", "ibverbs"]),
    driver("bus_auxiliary", &[]),
    driver("common_mlx5", &["mlx5", "ibverbs"]),
    driver("net_mlx5", &[]),
    driver("net_vmxnet3", &[]),
    driver("net_e1000", &[]),
    driver("net_ixgbe", &[]),
    driver("net_i40e", &[]),
    driver("common_iavf", &[]),
    driver("net_iavf", &[]),
    driver("net_ice", &[]),
];

/// DPDK's libraries; their order is irrelevant because of `--whole-archive`. Those that the
/// installed release does not have are skipped: `log` and `argparse` are not in 22.11.
const LIBRARIES: &[&str] = &[
    "gso",
    "ip_frag",
    "timer",
    "hash",
    "rcu",
    "vhost",
    "cryptodev",
    "dmadev",
    "ethdev",
    "meter",
    "net",
    "mbuf",
    "mempool",
    "pci",
    "ring",
    "eal",
    "telemetry",
    "kvargs",
    "log",
    "argparse",
    "security",
];

/// Archives that every build needs. They are looked for before linking, so that a missing one is
/// reported with what to install instead of as a linker error.
const REQUIRED: &[&str] = &["bus_vdev", "mempool_ring", "ethdev", "mbuf", "mempool", "eal"];

fn main() -> ExitCode {
    for file in ["build.rs", "wrapper.h", "shim.h", "shim.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=LIBCLANG_PATH");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // cargo prints this as an error message, apart from the script's other output.
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(|_| "OUT_DIR is not set: run cargo")?);
    // The pkg-config crate drops the required flags "-include rte_config.h" and "-march".
    let flags: Vec<String> =
        pkg_config(&["--cflags"])?.split_whitespace().map(String::from).collect();
    println!("cargo:cflags={}", flags.join(" "));
    let folder = pkg_config(&["--variable=libdir"])?;
    // Runs again when another DPDK is installed: bindings of one release with the archives of
    // another are undefined behavior.
    let pc_dir = pkg_config(&["--variable=pcfiledir"])?;
    println!("cargo:rerun-if-changed={}/libdpdk.pc", pc_dir.trim());
    link(Path::new(folder.trim()))?;
    bind(&flags, &out)?;
    let mut shim = cc::Build::new();
    shim.file("shim.c").include(".").opt_level(3).warnings(false);
    // A call without a declaration would silently truncate pointers.
    shim.flag("-Werror=implicit-function-declaration");
    for flag in &flags {
        shim.flag(flag);
    }
    let compiled = shim.try_compile("weir_dpdk_shim");
    compiled.map_err(|e| format!("cannot compile the C shim (shim.c): {e}"))
}

fn pkg_config(arguments: &[&str]) -> Result<String, String> {
    let missing = "DPDK is not installed (pkg-config libdpdk): run `make setup`";
    let mut command = Command::new("pkg-config");
    if let Some(path) = std::env::var_os("PKG_CONFIG_PATH") {
        command.env("PKG_CONFIG_PATH", resolve_from_repository_root(&path)?);
    }
    let output = command
        .args(arguments)
        .arg("libdpdk")
        .output()
        .map_err(|e| format!("{missing} (cannot run pkg-config: {e})"))?;
    if !output.status.success() {
        return Err(missing.to_string());
    }
    String::from_utf8(output.stdout).map_err(|_| "pkg-config: output is not UTF-8".to_string())
}

/// Resolves the relative entries of PKG_CONFIG_PATH (`.tools/dpdk/...`) against the repository's
/// root. Cargo runs this script in the crate's directory, where pkg-config would not find them and
/// would describe the DPDK of the system instead.
fn resolve_from_repository_root(path: &OsStr) -> Result<OsString, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::join_paths(
        std::env::split_paths(path)
            .map(|entry| if entry.as_os_str().is_empty() { entry } else { root.join(entry) }),
    )
    .map_err(|e| format!("PKG_CONFIG_PATH: {e}"))
}

fn link(folder: &Path) -> Result<(), String> {
    println!("cargo:rustc-link-search=native={}", folder.display());
    let has = |name: &str| folder.join(format!("librte_{name}.a")).exists();
    if let Some(name) = REQUIRED.iter().find(|name| !has(name)) {
        return Err(format!(
            "DPDK has no static archive librte_{name}.a in {}: install libdpdk-dev \
             (`make setup`), or build DPDK with its default_library option static or both",
            folder.display()
        ));
    }
    let mut c_arguments = vec![format!("-L{}", folder.display()), "-Wl,--whole-archive".into()];
    let names = DRIVERS.iter().map(|d| d.name).chain(LIBRARIES.iter().copied());
    for name in names.filter(|name| has(name)) {
        // Drivers register themselves in constructors to which nothing refers.
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=rte_{name}");
        c_arguments.push(format!("-l:librte_{name}.a"));
    }
    let linked: Vec<&str> = DRIVERS
        .iter()
        .map(|d| d.name)
        .filter(|name| name.starts_with("net_") && has(name))
        .collect();
    println!("cargo:rustc-env=WEIR_DPDK_DRIVERS={}", linked.join(","));
    c_arguments.push("-Wl,--no-whole-archive".into());
    let system = DRIVERS.iter().filter(|d| has(d.name)).flat_map(|d| d.system.iter().copied());
    for name in system.chain(["numa", "bsd", "m", "dl", "pthread"]) {
        println!("cargo:rustc-link-lib={name}");
        c_arguments.push(format!("-l{name}"));
    }
    // For build scripts of crates that depend on this one (perf/peers/loop.c): DEP_DPDK_LINK.
    println!("cargo:link={}", c_arguments.join(" "));
    Ok(())
}

fn bind(flags: &[String], out: &Path) -> Result<(), String> {
    let builder = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(flags)
        // libclang has its own headers; a clang on the PATH may be of another version.
        .detect_include_paths(false)
        .allowlist_function("weir_.*")
        .allowlist_function("rte_eal_(init|cleanup|remote_launch|wait_lcore)")
        .allowlist_function("rte_(strerror|get_tsc_hz|get_main_lcore|get_next_lcore)")
        .allowlist_function("rte_(thread_register|thread_unregister)")
        .allowlist_function("rte_pktmbuf_(pool_create|free_bulk)")
        .allowlist_function("rte_mempool_avail_count")
        .allowlist_function("rte_eth_dev_(configure|start|stop|close|info_get|socket_id)")
        .allowlist_function("rte_eth_dev_(get_port_by_name|get_name_by_port|get_mtu|set_mtu)")
        .allowlist_function("rte_eth_dev_(adjust_nb_rx_tx_desc|count_avail|is_valid_port)")
        .allowlist_function("rte_eth_dev_(callback_register|reset)")
        .allowlist_function("rte_eth_(stats_reset|xstats_reset)")
        .allowlist_function("rte_dev_(probe|remove|name|event_callback_register)")
        .allowlist_function("rte_dev_(event_monitor_start|hotplug_handle_enable)")
        .allowlist_function("rte_devargs_(parse|reset)")
        .allowlist_function("rte_timer_manage")
        .allowlist_function("rte_eth_(rx|tx)_queue_setup")
        .allowlist_function("rte_eth_(macaddr_get|stats_get|xstats_get|xstats_get_names)")
        .allowlist_function("rte_eth_allmulticast_(enable|disable)")
        .allowlist_var("rte_eth_fp_ops|WEIR_.*")
        .allowlist_var("RTE_(MAX_LCORE|MAX_ETHPORTS|PKTMBUF_HEADROOM|MEMPOOL_CACHE_MAX_SIZE)")
        .allowlist_var("RTE_ETH_NAME_MAX_LEN")
        .allowlist_type("weir_mbuf_layout|rte_eth_rx_mq_mode|rte_eth_event_type|rte_dev_event_type")
        // Rust accesses these types by offsets (WEIR_MBUF_*), never by their fields.
        .opaque_type("rte_mbuf|rte_mempool")
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .layout_tests(false)
        .generate_comments(false)
        .derive_default(true)
        .rust_edition(bindgen::RustEdition::Edition2024);
    // bindgen panics if it finds no libclang.
    let failed = "bindgen cannot read DPDK's headers (`make setup` installs libclang)";
    let bindings = std::panic::catch_unwind(AssertUnwindSafe(|| builder.generate()))
        .map_err(|_| format!("{failed}: no libclang was found"))?
        .map_err(|e| format!("{failed}: {}", e.to_string().replace('\n', "; ")))?;
    let file = out.join("dpdk.rs");
    bindings.write_to_file(&file).map_err(|e| format!("cannot write {}: {e}", file.display()))
}
