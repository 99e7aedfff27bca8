//! The `ebpf-fallback` program: has XDP programs in the kernel move packets, and attends to them.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Weir's packet-moving programs in the kernel (plane = "xdp"), and the process that stands for
/// them. Stopped with SIGTERM it leaves them attached: packets go on.
#[derive(Parser)]
#[command(name = "ebpf-fallback", version)]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    config: PathBuf,
    /// Overrides one key, as in --set ingress.mtu=9001; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Take the programs off all interfaces, and what was added to these, and end.
    #[arg(long)]
    detach: bool,
    /// With --detach: remove the region's maps as well, with all flows.
    #[arg(long, requires = "detach")]
    purge: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match config::load_to_run(Some(&arguments.config), &arguments.sets) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    let done = match arguments.detach {
        true => ebpf_fallback::loader::detach(&config, arguments.purge),
        false => ebpf_fallback::loader::run(&config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebpf-fallback: {error}");
            ExitCode::FAILURE
        }
    }
}
