//! Azure on two ports of this machine, for the lab and for a try by hand: it prints what leads an
//! appliance to it.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use standins::azure::{Standin, World};
use tokio::net::TcpListener;

/// Azure on two ports of this machine: Resource Manager and login over TLS, and the metadata
/// service.
#[derive(Parser)]
struct Arguments {
    /// Address and port of Resource Manager and the login.
    #[arg(long, default_value = "127.0.0.1:4567")]
    listen: SocketAddr,
    /// Address and port of the metadata service.
    #[arg(long, default_value = "127.0.0.1:4568")]
    metadata: SocketAddr,
    /// A name by which appliances ask, where `localhost` doesn't lead here.
    #[arg(long)]
    name: Option<String>,
    /// Where the authority's certificate is written.
    #[arg(long, default_value = "weir-azure.pem")]
    ca: PathBuf,
    /// A world to begin with, as `GET /_weir/world` writes it.
    #[arg(long)]
    world: Option<PathBuf>,
    /// Its clock stands until `POST /_weir/advance`.
    #[arg(long)]
    stopped: bool,
    /// Probe the pools' members over HTTP, and believe the answers.
    #[arg(long)]
    probe: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let world = match &arguments.world {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => World::sample(),
    };
    let resources = TcpListener::bind(arguments.listen).await?;
    let metadata = TcpListener::bind(arguments.metadata).await?;
    let names: Vec<String> = arguments.name.into_iter().collect();
    let standin = Standin::listen(resources, metadata, &names, world)?;
    std::fs::write(&arguments.ca, &standin.ca)?;
    println!("export SSL_CERT_FILE={}", std::path::absolute(&arguments.ca)?.display());
    println!("export AZURE_AUTHORITY_HOST={}", standin.url);
    println!("azure.resource_manager = \"{}\"", standin.url);
    println!("azure.metadata = \"{}\"", standin.imds);
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
