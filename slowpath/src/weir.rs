//! `weir`: shows and checks what the appliance does.

use std::process::ExitCode;

fn main() -> ExitCode {
    slowpath::cli::main()
}
