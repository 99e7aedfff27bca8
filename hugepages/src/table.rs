//! Text tables with aligned columns.

/// A table whose columns are as wide as their widest cells.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Indices of the right-aligned columns.
    right: Vec<usize>,
}

impl Table {
    /// Creates a table with a header row. The columns in `right` contain numbers and are
    /// right-aligned.
    pub(crate) fn new(head: &[&str], right: &[usize]) -> Table {
        let head = head.iter().map(|cell| (*cell).to_owned()).collect();
        Table { rows: vec![head], right: right.to_vec() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(str::to_owned).to_vec());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let width = widths[i];
                line += &if self.right.contains(&i) {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// Formats a size, for example `1.5 MiB` or `512 B`; tenths of a unit are rounded up.
pub fn bytes_text(bytes: u64) -> String {
    for (unit, name) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            let tenths = (bytes * 10).div_ceil(unit);
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}
