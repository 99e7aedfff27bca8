//! Options of all subcommands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of all subcommands.
#[derive(Args)]
pub struct GlobalOptions {
    /// Configuration file [default: /etc/weir/weir.toml if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override a setting of file and environment, for example --set ingress.mtu=9001
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Control socket of slowpath [default: control.socket of the configuration]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Output format; streaming commands print one JSON or YAML document per item
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Same as --output json
    #[arg(long, global = true)]
    pub json: bool,
}

/// How long a command waits for devices at boot.
#[derive(Args, Clone, Copy, Default)]
pub struct WaitArgs {
    /// Wait up to this many seconds until the devices of the arms exist
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
}

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// Table
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl GlobalOptions {
    /// Returns the selected output format.
    pub fn output(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}
