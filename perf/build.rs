//! Compiles and links the C comparison program (`peers/loop.c`) against DPDK.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=peers/loop.c");
    println!("cargo:rerun-if-changed=build.rs");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error=the C peer (perf/peers/loop.c): {reason}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let program = PathBuf::from(variable("OUT_DIR")?).join("loop");
    // Compiler and linker flags that dpdk-bindings found for the installed DPDK.
    let (flags, link) = (variable("DEP_DPDK_CFLAGS")?, variable("DEP_DPDK_LINK")?);
    // The comparison program is always optimized, whatever cargo profile is active.
    let compiler = cc::Build::new().opt_level(3).debug(false).warnings(false).get_compiler();
    let outcome = compiler
        .to_command()
        .args(flags.split_whitespace())
        .args(["-Wall", "-Werror=implicit-function-declaration", "peers/loop.c", "-o"])
        .arg(&program)
        .args(link.split_whitespace())
        .output()
        .map_err(|e| format!("{}: {e}", compiler.path().display()))?;
    if !outcome.status.success() {
        return Err(String::from_utf8_lossy(&outcome.stderr).replace('\n', " "));
    }
    println!("cargo:rustc-env=WEIR_C_LOOP={}", program.display());
    Ok(())
}
