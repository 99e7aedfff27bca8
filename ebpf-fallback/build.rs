//! Builds the BPF programs in `xdp/`.

mod bpf;

fn main() -> std::process::ExitCode {
    bpf::main("..", "xdp", &["pipeline", "losses"])
}
