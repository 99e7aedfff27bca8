//! Builds the programs of `bpf/` for the kernel.

#[path = "../../ebpf-fallback/bpf.rs"]
mod bpf;

fn main() -> std::process::ExitCode {
    bpf::main("../..", "bpf", &["bench", "floor", "tables"])
}
