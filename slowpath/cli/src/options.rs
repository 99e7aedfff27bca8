//! What all subcommands take.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What all subcommands take.
#[derive(Args)]
pub struct With {
    /// Configuration file [default: /etc/weir/weir.toml where it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting that overrides file and environment, as in --set ingress.mtu=9001
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// slowpath's control socket [default: control.socket of the configuration]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A table for people; JSON or YAML for programs, a document each for what goes on
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The same as --output json
    #[arg(long, global = true)]
    pub json: bool,
}

/// How documents are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For people who like it
    Yaml,
}

impl With {
    /// How to write.
    pub fn output(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}
