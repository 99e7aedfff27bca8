//! `weir db`: shows the tables of the control state as text, JSON or YAML, once or continuously.

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use state::show::{Row, Table, cell};

use super::options::GlobalOptions;
use super::output::{StreamEvent, follow, print};
use super::request::{escaped, get};
use super::table::{self, span};

/// Subcommands of `weir db`.
#[derive(Subcommand)]
pub enum DbCommand {
    /// Show one table of the control state
    Show(TableArgs),
    /// Show the rows whose first column begins with a text, or whose address is in a network
    Prefix {
        #[command(flatten)]
        args: TableArgs,
        /// Prefix of the first column (`shop/` in services, `203.0.113.10` in frontends), or a
        /// network in frontends and backends (`10.0.0.0/8`)
        prefix: Option<String>,
    },
}

/// Selection of a table and its columns.
#[derive(Args)]
pub struct TableArgs {
    /// Table to show
    #[arg(value_enum)]
    table: TableName,
    /// Show only these columns, in this order: `--columns name,flags`
    #[arg(long, short, value_delimiter = ',', value_name = "COLUMN")]
    columns: Vec<String>,
    /// Continue until Ctrl-C, showing each row that changes or is removed
    #[arg(long, short)]
    watch: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum TableName {
    Services,
    Frontends,
    Backends,
    Health,
}

/// Columns of the table of component health.
const HEALTH: &[&str] = &["name", "level", "message"];

impl TableName {
    fn path(self) -> &'static str {
        self.table().map_or("health", Table::name)
    }

    fn table(self) -> Option<Table> {
        match self {
            TableName::Services => Some(Table::Services),
            TableName::Frontends => Some(Table::Frontends),
            TableName::Backends => Some(Table::Backends),
            TableName::Health => None,
        }
    }

    fn columns(self) -> &'static [&'static str] {
        self.table().map_or(HEALTH, Table::columns)
    }
}

/// Runs `weir db`.
pub fn run(options: &GlobalOptions, socket: &Path, command: &DbCommand) -> Result<(), String> {
    let (args, prefix) = match command {
        DbCommand::Show(args) => (args, ""),
        DbCommand::Prefix { args, prefix } => (args, prefix.as_deref().unwrap_or_default()),
    };
    let columns = columns(args)?;
    let path = format!("/db/{}?prefix={}", args.table.path(), escaped(prefix));
    if args.watch {
        return watch(options, socket, &path, &columns);
    }
    let rows: Vec<Row> = get(socket, &path)?;
    let rows: Vec<Row> = rows.into_iter().map(|row| select_columns(row, &columns)).collect();
    print(options, &rows, || table(&rows, &columns).text());
    Ok(())
}

fn columns(args: &TableArgs) -> Result<Vec<&'static str>, String> {
    let known = args.table.columns();
    if args.columns.is_empty() {
        return Ok(known.to_vec());
    }
    let find = |requested: &String| {
        let found = known.iter().find(|column| column.eq_ignore_ascii_case(requested.trim()));
        found.copied().ok_or_else(|| {
            let table = args.table.path();
            format!("--columns {requested}: no such column; {table} has {}", known.join(", "))
        })
    };
    args.columns.iter().map(find).collect()
}

fn select_columns(row: Row, columns: &[&str]) -> Row {
    row.into_iter().filter(|(column, _)| columns.contains(&column.as_str())).collect()
}

pub(super) fn table(rows: &[Row], columns: &[&'static str]) -> table::Table {
    let heads: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let mut table = table::Table::new(&heads);
    for row in rows {
        table.row(columns.iter().map(|column| text(column, row.get(*column))).collect());
    }
    table
}

fn text(column: &str, value: Option<&Value>) -> String {
    match (column, value) {
        ("since", Some(Value::Number(at))) => {
            let at = Duration::from_millis(at.as_u64().unwrap_or_default());
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            format!("{} ago", span(now.saturating_sub(at).as_secs()))
        }
        (_, value) => value.map(cell).unwrap_or_default(),
    }
}

fn watch(
    options: &GlobalOptions,
    socket: &Path,
    path: &str,
    columns: &[&'static str],
) -> Result<(), String> {
    follow(options, socket, &format!("{path}&watch=true"), |change| {
        if let Some(error) = change.get("error").and_then(Value::as_str) {
            return Err(error.to_owned());
        }
        Ok(match change.get("row").and_then(Value::as_object) {
            Some(row) => StreamEvent::Row(table(std::slice::from_ref(row), columns)),
            None => StreamEvent::Removed(change.get("removed").map(cell).unwrap_or_default()),
        })
    })
}
