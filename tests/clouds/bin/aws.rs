//! AWS on a port of this machine, for the lab and for a try by hand:
//! `AWS_ENDPOINT_URL` and `AWS_EC2_METADATA_SERVICE_ENDPOINT` lead to it.

#![forbid(unsafe_code)]

use std::time::Duration;

use clap::Parser;
use standins::Standin;
use standins::world::World;
use tokio::net::TcpListener;

/// AWS on a port of this machine: ELBv2, tagging, EC2, SSM, Auto Scaling and IMDSv2.
#[derive(Parser)]
struct Arguments {
    /// Address and port.
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: String,
    /// What the group's targets are registered by: instance or ip.
    #[arg(long, default_value = "ip", value_parser = ["instance", "ip"])]
    targets: String,
    /// A world to begin with, as `GET /_weir/world` writes it.
    #[arg(long)]
    world: Option<std::path::PathBuf>,
    /// Its clock stands until `POST /_weir/advance`.
    #[arg(long)]
    stopped: bool,
    /// Probe the targets over HTTP, and believe the answers.
    #[arg(long)]
    probe: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let world = match &arguments.world {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => World::sample(&arguments.targets),
    };
    let standin = Standin::listen(TcpListener::bind(&arguments.listen).await?, world)?;
    println!("export AWS_ENDPOINT_URL={0} AWS_EC2_METADATA_SERVICE_ENDPOINT={0}", standin.url);
    let step = Duration::from_millis(250);
    let mut ticks = tokio::time::interval(step);
    loop {
        ticks.tick().await;
        if arguments.probe {
            standin.probe().await;
        }
        if !arguments.stopped {
            standin.advance(step);
        }
    }
}
