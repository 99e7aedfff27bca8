//! Builds the programs of `xdp/` for the kernel.

mod bpf;

fn main() -> std::process::ExitCode {
    bpf::main("..", "xdp", &["journey"])
}
