//! `weir health`: shows the results of health checks for each backend.

use std::path::Path;

use clap::Args;
use health::report::Row;

use super::options::GlobalOptions;
use super::output::print;
use super::request::get;
use super::table::{Table, span};

/// Arguments of `weir health`.
#[derive(Args)]
pub struct HealthArgs {
    /// Show only services whose name contains this text
    service: Option<String>,
    /// Show only backends that are not healthy
    #[arg(long)]
    unhealthy: bool,
}

/// Runs `weir health`.
pub fn run(options: &GlobalOptions, socket: &Path, args: &HealthArgs) -> Result<(), String> {
    let mut rows: Vec<Row> = get(socket, "/checks")?;
    let part = args.service.as_deref().unwrap_or_default();
    rows.retain(|row| row.service.contains(part) && !(args.unhealthy && row.state == "healthy"));
    print(options, &rows, || table(&rows));
    Ok(())
}

pub(super) fn table(rows: &[Row]) -> String {
    let heads = ["SERVICE", "BACKEND", "STATE", ">SINCE", "LAST", ">TOOK", ">NEXT", "RESULT"];
    let mut table = Table::new(&heads);
    for row in rows {
        let ms = |ms: Option<u64>| ms.map(|ms| format!("{ms} ms")).unwrap_or_default();
        let next = match row.state.as_str() {
            "unprobed" => String::new(),
            _ => row.next_ms.map_or("now".to_owned(), |next| ms(Some(next))),
        };
        table.row(vec![
            row.service.clone(),
            row.backend.clone(),
            row.state.clone(),
            row.since_s.map(span).unwrap_or_default(),
            row.last.clone(),
            ms(row.took_ms),
            next,
            row.result.clone(),
        ]);
    }
    table.text()
}
