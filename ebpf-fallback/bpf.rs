//! Builds a workspace of BPF programs: shared by the build scripts of this crate and of
//! `tests/xdp`. Each error names the command that installs what is missing.
//!
//! rustc compiles BPF from the same sources as everything else, but its distribution contains no
//! `core` for that target. `-Zbuild-std` builds it from rust-src, and RUSTC_BOOTSTRAP permits this
//! option on a stable compiler; it is set for that command only. bpf-linker loads the LLVM of the
//! compiler that runs it, so compiler, linker and aya are one set of versions.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The compiler's target: little-endian BPF.
const TARGET: &str = "bpfel-unknown-none";
/// BTF for typed maps; v3 has atomics and 32-bit jumps, and runs on kernels from 5.12 on.
const FLAGS: [&str; 3] = ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v3"];
// The paths in an object's debug information, in place of the folders of this machine: the object
// has the same bytes wherever it was built.
/// Replaces the folder of the repository.
const REPOSITORY: &str = "/weir";
/// Replaces the sysroot of the compiler.
const RUST: &str = "/rust";
/// Replaces cargo's home, with the sources of external crates.
const CRATES: &str = "/crates";
/// The required version of bpf-linker.
const LINKER: &str = "0.10.2";

/// Builds `objects`, binaries of the workspace in the folder `programs`, and copies them to
/// `OUT_DIR`. `root` is the repository's folder. `root` and `programs` are relative to the build
/// script's crate.
pub fn main(root: &str, programs: &str, objects: &[&str]) -> ExitCode {
    match build(root, programs, objects) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{programs}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &str, programs: &str, objects: &[&str]) -> Result<(), String> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    for watched in ["src", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={programs}/{watched}");
    }
    for watched in ["ebpf-fallback/xdp/src", "packet/src", "tables/src"] {
        println!("cargo:rerun-if-changed={root}/{watched}");
    }
    println!("cargo:rerun-if-env-changed=PATH");
    let rustc = variable("RUSTC")?;
    let sysroot = PathBuf::from(first_line(Command::new(&rustc).args(["--print", "sysroot"]))?);
    let sources = sysroot.join("lib/rustlib/src/rust/library/core");
    if !sources.exists() {
        return Err(format!(
            "{} does not exist: the BPF programs need the sources of Rust's core library. Type \
             `make setup`, or `rustup component add rust-src`",
            sources.display()
        ));
    }
    let path = with_tools(&package.join(root).join(".tools/bin"))?;
    let linker = first_line(Command::new("bpf-linker").arg("--version").env("PATH", &path));
    let linker = linker.unwrap_or_else(|_| "none".into());
    if !linker.ends_with(LINKER) {
        return Err(format!(
            "the BPF programs require bpf-linker {LINKER}, found: {linker}. Type `make setup`"
        ));
    }
    // One folder for all profiles: target/bpf, derived from target/<profile>/build/<package>/out.
    let folder = out.ancestors().nth(4).unwrap_or(&out).join("bpf");
    // The feature of `tables` must be the same in the programs and in their loader.
    let next_format = env::var_os("CARGO_FEATURE_NEXT_FORMAT").is_some();
    let status = Command::new(variable("CARGO")?)
        .args(["build", "--release", "--locked", "--bins", "--target", TARGET])
        .args(next_format.then_some("--features=next-format"))
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(&folder)
        .current_dir(package.join(programs))
        .env("PATH", &path)
        .env("RUSTC", &rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&package.join(root), &sysroot)?)
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    if !status.success() {
        return Err("the BPF programs were not built; see the errors above".into());
    }
    // `include_bytes_aligned!` reads the objects from there.
    objects.iter().try_for_each(|name| {
        let from = folder.join(TARGET).join("release").join(name);
        let copied = std::fs::copy(&from, out.join(name));
        copied.map(drop).map_err(|e| format!("cannot copy {}: {e}", from.display()))
    })
}

/// Returns the compiler's flags as cargo reads them: separated by 0x1f.
fn flags(repository: &Path, sysroot: &Path) -> Result<OsString, String> {
    let absolute =
        |path: &Path| path.canonicalize().map_err(|e| format!("{}: {e}", path.display()));
    let mut flags: Vec<OsString> = FLAGS.map(OsString::from).to_vec();
    let mut remap = |from: &Path, to: &str| {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flags.push(flag);
    };
    remap(&absolute(repository)?, REPOSITORY);
    remap(sysroot, RUST);
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    if let Some(home) = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))) {
        remap(&home, CRATES);
    }
    Ok(flags.join(OsStr::new("\x1f")))
}

/// Returns the search path with the repository's own tools first.
fn with_tools(tools: &Path) -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(tools.to_owned()).chain(env::split_paths(&path));
    env::join_paths(all).map_err(|e| format!("PATH: {e}"))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"))
}

fn first_line(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
