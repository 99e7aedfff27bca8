//! The program behind `make demo PLANE=xdp`: it must end with status 0, which it does if every
//! claim holds.

use std::process::Command;

#[test]
fn the_demo_passes_with_xdp() -> Result<(), String> {
    let done = Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--requests", "1500", "--plain"])
        .env("PLANE", "xdp")
        .output()
        .map_err(|e| format!("the demo does not start: {e}"))?;
    let output = String::from_utf8_lossy(&done.stdout);
    println!("{output}");
    let failed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{output}\n{failed}");
    assert!(output.contains("the XDP program in the kernel"), "{output}");
    Ok(())
}
