//! Formats text tables: columns are as wide as their widest cell, numbers are right-aligned.

/// A text table.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column headings; a heading that begins with `>` right-aligns its
    /// column.
    pub fn new<S: ToString>(head: &[S]) -> Table {
        Table { head: head.iter().map(S::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table with its heading; each line ends with a newline.
    pub fn text(&self) -> String {
        self.text_in(&mut Vec::new())
    }

    /// Formats the table with at least these column widths, and raises them to the widths used. For
    /// tables that are printed in several parts.
    pub fn text_in(&self, widths: &mut Vec<usize>) -> String {
        let head: Vec<String> =
            self.head.iter().map(|h| h.trim_start_matches('>').to_owned()).collect();
        widths.resize(head.len(), 0);
        for (column, width) in widths.iter_mut().enumerate() {
            let cells = self.rows.iter().chain([&head]).filter_map(|row| row.get(column));
            *width = cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(*width);
        }
        let mut text = String::new();
        for row in [&head].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (column, width) in widths.iter().copied().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                if self.head[column].starts_with('>') {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats a number with spaces between thousands.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes with a decimal unit: 999 B, 12.3 kB, 4.5 GB.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats seconds as the two largest units: `42 s`, `3 min 5 s`, `2 h 10 min`, `4 d 1 h`.
pub fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_and_right_aligns_numbers() {
        let mut table = Table::new(&["NAME", ">PACKETS", "STATE"]);
        table.row(vec!["default/web".into(), "12".into(), "active".into()]);
        table.row(vec!["a".into(), "1 234".into()]);
        let expected = "\
NAME         PACKETS  STATE
default/web       12  active
a              1 234
";
        assert_eq!(table.text(), expected);
    }

    #[test]
    fn formats_numbers_with_groups_and_units() {
        assert_eq!((count(0), count(999), count(1000)), ("0".into(), "999".into(), "1 000".into()));
        assert_eq!(count(12_345_678), "12 345 678");
        assert_eq!((bytes(999), bytes(1000)), ("999 B".into(), "1.0 kB".into()));
        assert_eq!((bytes(999_999), bytes(4_500_000_000)), ("1.0 MB".into(), "4.5 GB".into()));
        assert!(bytes(u64::MAX).ends_with("PB"));
        assert_eq!(
            (span(59), span(60), span(7800)),
            ("59 s".into(), "1 min 0 s".into(), "2 h 10 min".into())
        );
        assert_eq!(span(349_200), "4 d 1 h");
    }
}
