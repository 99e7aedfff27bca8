//! Writes the files of Weir's package that describe what the programs contain: the SBOM, the
//! licenses, and for each program the list of its crates. `package/deb.sh` runs it.

#![forbid(unsafe_code)]

mod audit;
mod graph;
mod licenses;
mod parts;
mod sbom;

use clap::Parser;
use graph::Graph;
use parts::{Library, PROGRAMS, Parts};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Describe the contents of Weir's programs: SBOM, licenses, lists of crates
#[derive(Parser)]
struct Arguments {
    /// Write the files to this directory
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Set the version of the package
    #[arg(long)]
    version: String,
    /// Set the time in the SBOM, in RFC 3339
    #[arg(long)]
    timestamp: String,
    /// Set version and package URL (purl) of DPDK
    #[arg(long, num_args = 2, required = true, value_names = ["VERSION", "PURL"])]
    dpdk: Vec<String>,
    /// Add a Debian package with a shared library: name, version and URL (purl) of the package
    #[arg(long, num_args = 3, value_names = ["NAME", "VERSION", "PURL"])]
    shared: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("package: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let workspace = read(&root)?;
    let xdp = read(&root.join("ebpf-fallback/xdp"))?;
    let [dpdk, dpdk_purl] = arguments.dpdk.as_slice() else {
        return Err("--dpdk: found several times; give it once: --dpdk VERSION PURL".to_owned());
    };
    let rust = output(Command::new("rustc").arg("--version"))?;
    let rust = rust.split(' ').nth(1).unwrap_or_default().to_owned();
    let shared = arguments.shared.chunks_exact(3).map(|library| Library {
        name: library[0].clone(),
        version: library[1].clone(),
        purl: library[2].clone(),
        license: None,
    });
    let parts = Parts {
        workspace: &workspace,
        xdp: &xdp,
        dpdk: Library {
            name: "dpdk".into(),
            version: dpdk.clone(),
            purl: dpdk_purl.clone(),
            license: Some("BSD-3-Clause"),
        },
        standard: Library {
            name: "rust-std".into(),
            purl: format!("pkg:github/rust-lang/rust@{rust}"),
            version: rust,
            license: Some("MIT OR Apache-2.0"),
        },
        shared: shared.collect(),
    };
    let write = |name: &str, content: &[u8]| {
        let path = arguments.out.join(name);
        std::fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))
    };
    let sbom = sbom::document(&parts, &arguments.version, &arguments.timestamp)?;
    write("sbom.cdx.json", format!("{sbom:#}\n").as_bytes())?;
    write("copyright", licenses::copyright(&parts)?.as_bytes())?;
    write("third-party-licenses.txt", licenses::texts(&parts)?.as_bytes())?;
    for program in &PROGRAMS {
        let section = audit::section(&workspace, workspace.local(program.crate_name)?);
        write(&format!("{}.dep-v0", program.name), &section)?;
    }
    Ok(())
}

/// Reads the dependency graph of the workspace in a directory, by `cargo metadata`.
fn read(folder: &Path) -> Result<Graph, String> {
    let lock = folder.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let mut command = Command::new("cargo");
    command.current_dir(folder).args(["metadata", "--format-version", "1", "--locked"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    Graph::parse(&output(&mut command)?, &lock)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
