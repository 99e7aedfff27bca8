//! AWS emulator on a local port, for the lab and for manual trials. It prints the environment
//! variables that point an appliance to it.

#![forbid(unsafe_code)]

use std::time::Duration;

use clap::Parser;
use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use tokio::net::TcpListener;

/// Emulate AWS on a local port: ELBv2, tagging, EC2, SSM, Auto Scaling and IMDSv2
#[derive(Parser)]
struct Arguments {
    /// Listen on this address and port
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: String,
    /// Register targets of the group by instance or ip
    #[arg(long, default_value = "ip", value_parser = ["instance", "ip"])]
    targets: String,
    /// Start with this state, as returned by `GET /_weir/state`
    #[arg(long)]
    state: Option<std::path::PathBuf>,
    /// Stop the clock; advance it by `POST /_weir/advance`
    #[arg(long)]
    stopped: bool,
    /// Probe the targets over HTTP, and use the results as their health
    #[arg(long)]
    probe: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let cloud = match &arguments.state {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => AwsState::sample(&arguments.targets),
    };
    let emulator = Emulator::listen(TcpListener::bind(&arguments.listen).await?, cloud)?;
    println!("export AWS_ENDPOINT_URL={0} AWS_EC2_METADATA_SERVICE_ENDPOINT={0}", emulator.url);
    let step = Duration::from_millis(250);
    let mut ticks = tokio::time::interval(step);
    loop {
        ticks.tick().await;
        if arguments.probe {
            emulator.probe().await;
        }
        if !arguments.stopped {
            emulator.advance(step);
        }
    }
}
