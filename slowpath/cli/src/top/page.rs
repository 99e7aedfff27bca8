//! Pages of the live view: which one is shown, its selection, order and filter; and the lines and
//! tables that a page consists of.

use std::cmp::Ordering;

use slowpath::control::report::FlowReport;

use super::format::{short_count, short_rate, short_span};
use super::sample::Query;
use super::theme::Role;
use crate::request::escaped;

/// A view, selected by its number or name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum View {
    /// The whole appliance
    #[default]
    Overview,
    /// Services
    Services,
    /// Backends of all services
    Backends,
    /// Flows of the flow table
    Flows,
    /// Drops by arm and reason, and losses at the NICs
    Drops,
    /// Lcores, NICs and their queues
    Lcores,
    /// BGP sessions
    Bgp,
    /// Registration at the cloud
    Cloud,
}

impl View {
    /// All views, in the order of their numbers, which begin with 1.
    pub const ALL: [View; 8] = [
        View::Overview,
        View::Services,
        View::Backends,
        View::Flows,
        View::Drops,
        View::Lcores,
        View::Bgp,
        View::Cloud,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            View::Overview => "overview",
            View::Services => "services",
            View::Backends => "backends",
            View::Flows => "flows",
            View::Drops => "drops",
            View::Lcores => "lcores",
            View::Bgp => "bgp",
            View::Cloud => "cloud",
        }
    }

    /// Returns the first view whose name begins with a text.
    pub fn from_prefix(text: &str) -> Option<View> {
        let text = text.trim().to_ascii_lowercase();
        let mut all = View::ALL.into_iter().filter(|_| !text.is_empty());
        all.find(|view| view.name().starts_with(&text))
    }
}

/// What a page shows.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A view.
    View(View),
    /// A service with its backends.
    Service(String),
    /// A backend of a service with its flows.
    Backend {
        /// Name of the service.
        service: String,
        /// Id in the region.
        id: u32,
        /// Address and port.
        address: String,
    },
    /// A flow, as it was when the page was opened.
    Flow(Box<FlowReport>),
    /// A drop reason.
    Drop {
        /// Arm.
        arm: String,
        /// Name of the reason.
        reason: String,
    },
    /// An lcore.
    Lcore(u32),
    /// The NIC of an arm.
    Nic(String),
    /// A BGP neighbor.
    Neighbor {
        /// AS number of the local router.
        router: u32,
        /// Address and port of the neighbor.
        peer: String,
    },
}

impl Kind {
    /// Returns the title of the page.
    pub fn title(&self) -> String {
        match self {
            Kind::View(view) => view.name().to_owned(),
            Kind::Service(name) => name.clone(),
            Kind::Backend { address, .. } => address.clone(),
            Kind::Flow(flow) => format!("{} {}", flow.protocol, flow.client),
            Kind::Drop { arm, reason } => format!("{arm} {reason}"),
            Kind::Lcore(id) => format!("lcore {id}"),
            Kind::Nic(arm) => format!("{arm} NIC"),
            Kind::Neighbor { peer, .. } => peer.clone(),
        }
    }
}

/// Identity of a row, by which the selection follows it when the order changes.
#[derive(Clone, PartialEq, Debug)]
pub enum RowKey {
    /// A service by name.
    Service(String),
    /// A backend of a service.
    Backend {
        /// Name of the service.
        service: String,
        /// Id in the region.
        id: u32,
        /// Address and port.
        address: String,
    },
    /// A flow.
    Flow(Box<FlowReport>),
    /// Drops of an arm by reason.
    Drop(String, String),
    /// A counter of an arm's NIC.
    Counter(String, String),
    /// An lcore.
    Lcore(u32),
    /// The NIC of an arm.
    Nic(String),
    /// A BGP session and an address family.
    Neighbor {
        /// AS number of the local router.
        router: u32,
        /// Address and port of the neighbor.
        peer: String,
        /// Address family.
        family: String,
    },
    /// A row without details.
    Other(String),
}

impl RowKey {
    /// Returns whether two keys are of the same row.
    pub fn is_same_row(&self, other: &RowKey) -> bool {
        match (self, other) {
            (RowKey::Flow(one), RowKey::Flow(other)) => {
                (one.path, &one.client, &one.frontend)
                    == (other.path, &other.client, &other.frontend)
            }
            _ => self == other,
        }
    }

    /// Returns the page with the details of the row; `None` if there are none.
    pub fn details(&self) -> Option<Kind> {
        Some(match self.clone() {
            RowKey::Service(name) => Kind::Service(name),
            RowKey::Backend { service, id, address } => Kind::Backend { service, id, address },
            RowKey::Flow(flow) => Kind::Flow(flow),
            RowKey::Drop(arm, reason) => Kind::Drop { arm, reason },
            RowKey::Lcore(id) => Kind::Lcore(id),
            RowKey::Nic(arm) => Kind::Nic(arm),
            RowKey::Neighbor { router, peer, .. } => Kind::Neighbor { router, peer },
            RowKey::Counter(..) | RowKey::Other(_) => return None,
        })
    }
}

/// A page, with the selection, order and filter that the operator set.
#[derive(Clone, Debug)]
pub struct Page {
    /// What is shown.
    pub kind: Kind,
    /// Index of the selected row.
    pub selected: usize,
    /// The selected row; `None` before the first selection.
    pub key: Option<RowKey>,
    /// Index of the first row on the screen, or of the first line of a page without a table.
    pub offset: usize,
    /// Column by which the rows are sorted, and whether the largest comes first; `None` is the
    /// order of the response.
    pub sort: Option<(usize, bool)>,
    /// The filter as entered.
    pub filter: String,
}

/// Names of the conditions in a filter of flows, which slowpath applies; those of `weir flows`.
const CONDITIONS: [&str; 5] = ["client", "frontend", "backend", "service", "protocol"];

impl Page {
    /// Creates a page; `sort` is its initial order.
    pub fn new(kind: Kind, sort: Option<(usize, bool)>) -> Page {
        Page { kind, selected: 0, key: None, offset: 0, sort, filter: String::new() }
    }

    fn has_conditions(&self) -> bool {
        matches!(self.kind, Kind::View(View::Flows) | Kind::Backend { .. })
    }

    /// Returns the part of the filter that selects among the rows: words without a condition.
    pub fn words(&self) -> Vec<String> {
        let words = self.filter.split_whitespace();
        let words = words.filter(|word| !(self.has_conditions() && condition(word).is_some()));
        words.map(str::to_lowercase).collect()
    }

    /// Returns the conditions of the filter as query parameters.
    fn conditions(&self) -> String {
        let conditions = self.filter.split_whitespace().filter_map(condition);
        conditions.map(|(name, value)| format!("&{name}={}", escaped(value))).collect()
    }

    /// Returns what the page needs in addition to a sample.
    pub fn query(&self) -> Query {
        match &self.kind {
            Kind::View(View::Backends) | Kind::Service(_) => Query::Checks,
            Kind::View(View::Flows) => Query::Flows(self.conditions()),
            Kind::View(View::Bgp) => Query::Bgp,
            Kind::View(View::Cloud) => Query::Cloud,
            Kind::View(_) | Kind::Drop { .. } | Kind::Lcore(_) | Kind::Nic(_) => Query::None,
            Kind::Backend { service, address, .. } => {
                let (service, backend) = (escaped(service), escaped(address));
                let conditions = self.conditions();
                Query::ChecksAndFlows(format!("&service={service}&backend={backend}{conditions}"))
            }
            Kind::Flow(flow) => {
                let (client, frontend) = (escaped(&flow.client), escaped(&flow.frontend));
                let protocol = escaped(&flow.protocol);
                let ends = format!("&client={client}&frontend={frontend}");
                Query::Flows(format!("{ends}&protocol={protocol}"))
            }
            Kind::Neighbor { router, peer } => {
                Query::Neighbor { router: *router, peer: peer.clone() }
            }
        }
    }
}

/// Splits `client=192.0.2.1`; `None` if the word is no condition.
fn condition(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let known = CONDITIONS.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
    (!value.is_empty()).then_some((known, value))
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub title: &'static str,
    /// Width, or the smallest one if the column grows.
    pub width: u16,
    /// Share of the column in the width that is left; 0 for a fixed width.
    pub grow: u16,
    /// Columns with the highest rank are left out first where the terminal is too narrow; rank 0
    /// always stays.
    pub rank: u8,
    /// Whether the column is aligned at the right.
    pub right: bool,
}

/// Returns a column for text, which grows.
pub const fn text(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, grow: 1, rank, right: false }
}

/// Returns a column for a word of a fixed width.
pub const fn word(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, grow: 0, rank, right: false }
}

/// Returns a column for numbers.
pub const fn number(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, grow: 0, rank, right: true }
}

/// Returns the column for sparklines.
pub const fn history(rank: u8) -> Column {
    Column { title: "HISTORY", width: 7, grow: 1, rank, right: false }
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text with its role.
    Text(String, Role),
    /// A count.
    Count(u64),
    /// A number per second; `None` if it is not known.
    Rate(Option<f64>),
    /// A share, 0 to 1; shown in percent.
    Share(f64),
    /// Seconds.
    Span(u64),
    /// A number of items, and the number of all; shown as `2/3`.
    Of(usize, usize),
    /// The sparkline of the row.
    History,
    /// Nothing.
    Empty,
}

impl Cell {
    /// Creates a cell with ordinary text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into(), Role::Plain)
    }

    /// Returns the text and its role. The sparkline is empty here, because it depends on the row
    /// and the width.
    pub fn show(&self) -> (String, Role) {
        let text = match self {
            Cell::Text(text, role) => return (text.clone(), *role),
            Cell::Count(count) => short_count(*count),
            Cell::Rate(rate) => short_rate(*rate),
            Cell::Share(share) => format!("{:.0} %", share * 100.0),
            Cell::Span(seconds) => short_span(*seconds),
            Cell::Of(some, all) => {
                let role = if some < all { Role::Warning } else { Role::Plain };
                return (format!("{some}/{all}"), role);
            }
            Cell::History | Cell::Empty => String::new(),
        };
        (text, Role::Plain)
    }

    fn number(&self) -> Option<f64> {
        match self {
            Cell::Count(count) | Cell::Span(count) => Some(*count as f64),
            Cell::Rate(rate) => *rate,
            Cell::Share(share) => Some(*share),
            Cell::Of(some, _) => Some(*some as f64),
            Cell::Text(..) | Cell::History | Cell::Empty => None,
        }
    }

    /// Compares two cells of a column. Unknown values come last in either order.
    pub fn compare(&self, other: &Cell, descending: bool) -> Ordering {
        let directed = |order: Ordering| if descending { order.reverse() } else { order };
        match (self, other) {
            (Cell::Text(one, _), Cell::Text(other, _)) => directed(natural(one, other)),
            _ => match (self.number(), other.number()) {
                (Some(one), Some(other)) => directed(one.total_cmp(&other)),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
        }
    }
}

/// Compares texts so that numbers in them are in numeric order: `10.0.0.9` before `10.0.0.10`.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    while let (Some(first), Some(second)) = (one.first(), other.first()) {
        let (lengths, order) = match (digits(one), digits(other)) {
            (0, _) | (_, 0) => ((1, 1), first.cmp(second)),
            (length, length_of_other) => {
                let significant = |text: &'_ [u8]| {
                    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
                    text[zeros..].to_vec()
                };
                let number = significant(&one[..length]);
                let number_of_other = significant(&other[..length_of_other]);
                let order = number.len().cmp(&number_of_other.len());
                ((length, length_of_other), order.then(number.cmp(&number_of_other)))
            }
        };
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (&one[lengths.0..], &other[lengths.1..]);
    }
    one.len().cmp(&other.len())
}

/// A row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Identity.
    pub key: RowKey,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// A line above the table.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Label; empty for a continued text.
    pub label: String,
    /// Text, which is wrapped.
    pub text: String,
    /// Role of the text.
    pub role: Role,
    /// Values of a sparkline at the right; empty for none.
    pub values: Vec<f32>,
}

/// What is on a page.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Lines above the table.
    pub lines: Vec<Line>,
    /// Columns of the table; empty if the page has none, and its lines can be scrolled.
    pub columns: Vec<Column>,
    /// Rows of the table, in the order of the page and as its filter selects.
    pub rows: Vec<Row>,
    /// Number of rows before the filter.
    pub all_rows: usize,
    /// Shown in place of a table without rows.
    pub empty: String,
    /// Note about the table, for example how many of all rows it shows.
    pub note: String,
    /// Meanings of rows by key; that of the selected row is shown below the table.
    pub meanings: Vec<(RowKey, String)>,
}

impl Content {
    /// Adds a line with a label.
    pub fn line(&mut self, label: &str, text: impl Into<String>, role: Role) {
        let (label, text) = (label.to_owned(), text.into());
        self.lines.push(Line { label, text, role, values: Vec::new() });
    }

    /// Adds a line with a label and a sparkline.
    pub fn line_with_values(
        &mut self,
        label: &str,
        text: impl Into<String>,
        role: Role,
        values: Vec<f32>,
    ) {
        let (label, text) = (label.to_owned(), text.into());
        self.lines.push(Line { label, text, role, values });
    }

    /// Adds a line with a label, unless the text is empty.
    pub fn line_if_any(&mut self, label: &str, text: &str, role: Role) {
        if !text.is_empty() {
            self.line(label, text, role);
        }
    }

    /// Adds a row.
    pub fn row(&mut self, key: RowKey, cells: Vec<Cell>) {
        self.rows.push(Row { key, cells });
    }

    /// Applies filter and order of a page to the rows.
    pub fn arrange(&mut self, page: &Page) {
        self.all_rows = self.rows.len();
        let words = page.words();
        if !words.is_empty() {
            self.rows.retain(|row| {
                let texts = row.cells.iter().filter_map(|cell| match cell {
                    Cell::Text(text, _) => Some(text.to_lowercase()),
                    _ => None,
                });
                let texts: Vec<String> = texts.collect();
                words.iter().all(|word| texts.iter().any(|text| text.contains(word.as_str())))
            });
        }
        if let Some((column, descending)) = page.sort {
            self.rows.sort_by(|one, other| {
                match (one.cells.get(column), other.cells.get(column)) {
                    (Some(one), Some(other)) => one.compare(other, descending),
                    _ => Ordering::Equal,
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_found_by_a_prefix_of_their_name() {
        assert_eq!(View::from_prefix("fl"), Some(View::Flows));
        assert_eq!(View::from_prefix(" BGP"), Some(View::Bgp));
        assert_eq!((View::from_prefix(""), View::from_prefix("flowss")), (None, None));
        for view in View::ALL {
            assert_eq!(View::from_prefix(view.name()), Some(view));
        }
    }

    #[test]
    fn numbers_in_texts_are_compared_in_numeric_order() {
        let sorted =
            ["", "10.0.0.2:80", "10.0.0.2:8080", "10.0.0.10:80", "10.0.0.010:81", "a", "b2"];
        for (index, one) in sorted.iter().enumerate() {
            for (index_of_other, other) in sorted.iter().enumerate() {
                assert_eq!(natural(one, other), index.cmp(&index_of_other), "{one} {other}");
            }
        }
        let huge = "9".repeat(400);
        assert_eq!(natural(&huge, "1"), Ordering::Greater);
    }

    #[test]
    fn unknown_values_come_last_in_either_order() {
        for descending in [false, true] {
            let order = Cell::Rate(None).compare(&Cell::Rate(Some(0.0)), descending);
            assert_eq!(order, Ordering::Greater);
        }
        assert_eq!(Cell::Count(2).compare(&Cell::Count(10), true), Ordering::Greater);
        assert_eq!(Cell::text("b").compare(&Cell::text("a"), false), Ordering::Greater);
    }

    #[test]
    fn conditions_of_the_flows_filter_go_to_slowpath() {
        let mut page = Page::new(Kind::View(View::Flows), None);
        page.filter = "Client=[2001:db8::1]:80 ESTAB protocol=tcp service= x=y".into();
        let conditions = "&client=%5B2001%3Adb8%3A%3A1%5D%3A80&protocol=tcp";
        assert_eq!(page.query(), Query::Flows(conditions.into()));
        assert_eq!(page.words(), ["estab", "service=", "x=y"]);
        // Elsewhere all words select among the rows.
        page.kind = Kind::View(View::Services);
        assert_eq!(page.words().len(), 5);
        let address = "10.0.2.1:80".to_owned();
        page.kind = Kind::Backend { service: "a/b".into(), id: 1, address };
        page.filter = "client=192.0.2.1".into();
        let expected = "&service=a%2Fb&backend=10.0.2.1%3A80&client=192.0.2.1";
        assert_eq!(page.query(), Query::ChecksAndFlows(expected.into()));
    }
}
