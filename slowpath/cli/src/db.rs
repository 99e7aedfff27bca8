//! `weir db`: shows the tables of the control state as text, JSON or YAML, once or continuously.

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use state::show::{Row, Table, cell};

use super::ask::{escaped, get};
use super::draw::{self, span};
use super::options::With;
use super::output::{Told, follow, print};

/// Subcommands of `weir db`.
#[derive(Subcommand)]
pub enum DbWhat {
    /// Show a table
    Show(Shown),
    /// Show the rows whose first column begins with a text, or whose address is in a network
    Prefix {
        #[command(flatten)]
        shown: Shown,
        /// Prefix of the first column (`shop/` in services, `203.0.113.10` in frontends), or a
        /// network in frontends and backends (`10.0.0.0/8`)
        prefix: Option<String>,
    },
}

/// Selection of a table and its columns.
#[derive(Args)]
pub struct Shown {
    /// Table to show
    #[arg(value_enum)]
    table: Name,
    /// Show only these columns, in this order: `--columns name,flags`
    #[arg(long, short, value_delimiter = ',', value_name = "COLUMN")]
    columns: Vec<String>,
    /// Continue until Ctrl-C, showing each row that changes or is removed
    #[arg(long, short)]
    watch: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Services,
    Frontends,
    Backends,
    Health,
}

/// Columns of the health table.
const HEALTH: &[&str] = &["name", "level", "message"];

impl Name {
    fn path(self) -> &'static str {
        self.table().map_or("health", Table::name)
    }

    fn table(self) -> Option<Table> {
        match self {
            Name::Services => Some(Table::Services),
            Name::Frontends => Some(Table::Frontends),
            Name::Backends => Some(Table::Backends),
            Name::Health => None,
        }
    }

    fn columns(self) -> &'static [&'static str] {
        self.table().map_or(HEALTH, Table::columns)
    }
}

/// Runs `weir db`.
pub fn run(with: &With, socket: &Path, what: &DbWhat) -> Result<(), String> {
    let (shown, prefix) = match what {
        DbWhat::Show(shown) => (shown, ""),
        DbWhat::Prefix { shown, prefix } => (shown, prefix.as_deref().unwrap_or_default()),
    };
    let columns = columns(shown)?;
    let path = format!("/db/{}?prefix={}", shown.table.path(), escaped(prefix));
    if shown.watch {
        return watch(with, socket, &path, &columns);
    }
    let rows: Vec<Row> = get(socket, &path)?;
    let rows: Vec<Row> = rows.into_iter().map(|row| chosen(row, &columns)).collect();
    print(with, &rows, || table(&rows, &columns).text());
    Ok(())
}

fn columns(shown: &Shown) -> Result<Vec<&'static str>, String> {
    let known = shown.table.columns();
    if shown.columns.is_empty() {
        return Ok(known.to_vec());
    }
    let find = |wanted: &String| {
        let found = known.iter().find(|column| column.eq_ignore_ascii_case(wanted.trim()));
        found.copied().ok_or_else(|| {
            let table = shown.table.path();
            format!("--columns {wanted}: {table} has {}", known.join(", "))
        })
    };
    shown.columns.iter().map(find).collect()
}

fn chosen(row: Row, columns: &[&str]) -> Row {
    row.into_iter().filter(|(column, _)| columns.contains(&column.as_str())).collect()
}

pub(super) fn table(rows: &[Row], columns: &[&'static str]) -> draw::Table {
    let heads: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let mut table = draw::Table::new(&heads);
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

fn watch(with: &With, socket: &Path, path: &str, columns: &[&'static str]) -> Result<(), String> {
    follow(with, socket, &format!("{path}&watch=true"), |change| {
        if let Some(error) = change.get("error").and_then(Value::as_str) {
            return Err(error.to_owned());
        }
        Ok(match change.get("row").and_then(Value::as_object) {
            Some(row) => Told::Row(table(std::slice::from_ref(row), columns)),
            None => Told::Gone(change.get("gone").map(cell).unwrap_or_default()),
        })
    })
}
