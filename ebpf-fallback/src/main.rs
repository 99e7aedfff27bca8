//! The `ebpf-fallback` program: loads the XDP data plane and performs its background work.

use clap::{CommandFactory, Parser};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the XDP data plane (plane = "xdp").
///
/// Loads and attaches the BPF programs, and performs their background work: status, commands,
/// expiry of flows. On SIGTERM or SIGINT it exits, and the programs stay attached and keep
/// forwarding.
#[derive(Parser)]
#[command(name = "ebpf-fallback", version)]
struct Arguments {
    /// Read the configuration from this file.
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    config: PathBuf,
    /// Override one key, as in --set ingress.mtu=9001; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Detach the programs from all interfaces, remove what Weir added to them, and exit.
    #[arg(long)]
    detach: bool,
    /// With --detach: also remove the region's maps, with all flows.
    #[arg(long, requires = "detach")]
    purge: bool,
    /// Print the man page, and exit.
    #[arg(long, hide = true)]
    man: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.man {
        return match clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ebpf-fallback: standard output: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let config = match config::load_to_run(Some(&arguments.config), &arguments.sets) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    if let Some(error) = hugepages::upgrade::hand_over(&config, "ebpf-fallback") {
        eprintln!("ebpf-fallback: {error}");
        return ExitCode::FAILURE;
    }
    // The guard is dropped last, so that all lines are written.
    let _log = match events::log::start("ebpf-fallback", &config.log) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("ebpf-fallback: starting the log's thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match arguments.detach {
        true => ebpf_fallback::loader::detach(&config, arguments.purge),
        false => ebpf_fallback::loader::run(&config),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match arguments.detach {
                true => eprintln!("ebpf-fallback: {error}"),
                false => tracing::error!(event = "data_plane_failed", %error, "data plane failed"),
            }
            if error.is_permanent() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
