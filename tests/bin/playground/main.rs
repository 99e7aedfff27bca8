//! `playground`: the demo's lab, left running in the background, with commands to try in it.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use home::Home;
use std::path::PathBuf;
use std::process::ExitCode;
use tests::lab::Result;
use tests::lab::netns::need_root;

mod background;
mod home;
mod run;

/// Leave the lab running: emulated AWS and Azure gateways, Weir, four web servers and clients.
///
/// Everything runs in its own network namespaces on virtual wires: no cloud, no NIC, no
/// hugepages. With PLANE=xdp in the environment, the XDP program in the kernel moves the packets.
#[derive(Parser)]
#[command(name = "playground")]
struct Arguments {
    /// Use this directory for the playground's files; at most one playground runs in it.
    #[arg(long, global = true, value_name = "DIR", default_value = "/run/weir-playground")]
    home: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the lab in the background and print commands to try
    Start,
    /// End the lab and remove its files
    Stop,
    /// Run the lab in the foreground until SIGINT or SIGTERM
    Run,
}

fn main() -> ExitCode {
    match execute(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("playground: {e}");
            ExitCode::from(2)
        }
    }
}

fn execute(arguments: Arguments) -> Result<()> {
    need_root()?;
    let home = Home::new(arguments.home)?;
    match arguments.command {
        Command::Start => background::start(&home),
        Command::Stop => background::stop(&home),
        Command::Run => run::run(&home),
    }
}
