//! Azure emulator on two local ports, for the lab and for manual trials. It prints the settings
//! that point an appliance to it.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use cloud_emulators::azure::{AzureState, Emulator};
use tokio::net::TcpListener;

/// Emulate Azure on two local ports: Resource Manager and login over TLS, and the metadata service
#[derive(Parser)]
struct Arguments {
    /// Listen on this address and port for Resource Manager and login
    #[arg(long, default_value = "127.0.0.1:4567")]
    listen: SocketAddr,
    /// Listen on this address and port for the metadata service
    #[arg(long, default_value = "127.0.0.1:4568")]
    metadata: SocketAddr,
    /// Add this name to the certificate, for appliances that cannot use `localhost`
    #[arg(long)]
    name: Option<String>,
    /// Write the certificate authority's certificate to this file
    #[arg(long, default_value = "weir-azure.pem")]
    ca: PathBuf,
    /// Start with this state, as returned by `GET /_weir/state`
    #[arg(long)]
    state: Option<PathBuf>,
    /// Stop the clock; advance it by `POST /_weir/advance`
    #[arg(long)]
    stopped: bool,
    /// Probe the pools' members over HTTP or TCP, and use the results as their health
    #[arg(long)]
    probe: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let cloud = match &arguments.state {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => AzureState::sample(),
    };
    let resources = TcpListener::bind(arguments.listen).await?;
    let metadata = TcpListener::bind(arguments.metadata).await?;
    let names: Vec<String> = arguments.name.into_iter().collect();
    let emulator = Emulator::listen(resources, metadata, &names, cloud)?;
    std::fs::write(&arguments.ca, &emulator.ca)?;
    println!("export SSL_CERT_FILE={}", std::path::absolute(&arguments.ca)?.display());
    println!("export AZURE_AUTHORITY_HOST={}", emulator.url);
    println!("azure.resource_manager = \"{}\"", emulator.url);
    println!("azure.metadata = \"{}\"", emulator.imds);
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
