//! Draws the live view: title, views, a message, lines and a table, and the keys.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::app::{App, Input};
use super::history::HISTORY;
use super::page::{Cell, Column, Line, View};
use super::theme::{Role, Theme};
use crate::table::{count, span};

/// Columns and lines of the smallest terminal in which pages are drawn.
const MIN_SIZE: (u16, u16) = (40, 10);
/// Lines below the table for the meaning of the selected row.
const MEANING_LINES: u16 = 3;
/// Maximum number of characters of a text that are drawn; bounds the time to measure widths.
const MAX_TEXT: usize = 4096;
/// Maximum width of labels in columns.
const MAX_LABEL: usize = 20;

/// The last line, unless something is typed on it.
const KEYS: &str = "1-8 views  Enter details  Esc back  / filter  s sort  p pause  ? help  q quit";

/// Keys and what they do; texts fit into terminals of 80 columns.
const HELP: &[(&str, &str)] = &[
    ("1 - 8, Tab, Shift-Tab", "show a view"),
    (":NAME Enter", "show a view by its name, for example :flows"),
    ("up, down, j, k", "select a row, scroll"),
    ("PgUp, PgDn, Home, End, g, G", "by pages, to the first or the last row"),
    ("Enter", "details: of a service its backends, of a backend"),
    ("", "its flows, of a NIC its counters, of a BGP"),
    ("", "neighbor its routes"),
    ("Esc, Backspace", "clear the filter, go back"),
    ("/WORDS Enter", "show only the rows that contain these words"),
    ("", "flows: client=, frontend=, backend=, service= and"),
    ("", "protocol= select in the whole flow table"),
    ("s", "sort by the next column"),
    ("S, r", "reverse the order"),
    ("p, Space", "pause: keep what is shown, take no samples"),
    ("Ctrl-L, Ctrl-Z", "draw again, suspend"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// Writes texts into the buffer. All drawn text passes through it, and loses control characters.
struct Painter<'b> {
    buffer: &'b mut Buffer,
    theme: Theme,
}

impl Painter<'_> {
    /// Writes a text into `width` columns, truncated if necessary; returns the column after it.
    fn put(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) -> u16 {
        let area = *self.buffer.area();
        if y < area.top() || y >= area.bottom() || x >= area.right() {
            return x;
        }
        let width = width.min(area.right() - x);
        let text = self.theme.clean(shortened(text));
        if width == 0 || text.is_empty() {
            return x;
        }
        if Span::raw(text.as_ref()).width() <= usize::from(width) {
            return self.buffer.set_stringn(x, y, text, usize::from(width), style).0;
        }
        let (end, _) = self.buffer.set_stringn(x, y, text, usize::from(width) - 1, style);
        self.buffer.set_stringn(end, y, self.theme.ellipsis(), 1, style).0
    }

    /// Writes a text at the right end of `width` columns.
    fn put_right(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
        let length = Span::raw(self.theme.clean(shortened(text)).as_ref()).width();
        let blank = usize::from(width).saturating_sub(length) as u16;
        self.put((x + blank, y), width - blank, text, style);
    }

    /// Writes a text like [`Painter::put`], in the style of a role.
    fn role(&mut self, at: (u16, u16), width: u16, text: &str, role: Role) -> u16 {
        let style = self.theme.style(role);
        self.put(at, width, text, style)
    }
}

/// Returns at most the first [`MAX_TEXT`] characters.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(MAX_TEXT).map_or(text, |(end, _)| &text[..end])
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    app.prepare();
    let area = frame.area();
    let mut painter = Painter { buffer: frame.buffer_mut(), theme: app.theme };
    let (width, height) = (area.width, area.height);
    title(&mut painter, width, app);
    if width < MIN_SIZE.0 || height < MIN_SIZE.1 {
        let (columns, lines) = MIN_SIZE;
        let text = format!("{width}x{height} is too small: at least {columns}x{lines}");
        painter.role((0, 1), width, &text, Role::Warning);
        return;
    }
    tabs(&mut painter, width, app.view());
    message(&mut painter, width, app);
    let body = Rect { x: 0, y: 3, width, height: height - 5 };
    match app.help {
        true => help(&mut painter, body),
        false => page(&mut painter, body, app),
    }
    note(&mut painter, (width, height - 2), app);
    let cursor = footer(&mut painter, (width, height - 1), app);
    if let Some(x) = cursor {
        frame.set_cursor_position((x.min(width - 1), height - 1));
    }
}

fn title(painter: &mut Painter<'_>, width: u16, app: &App) {
    let status = &app.data.sample.status;
    let right = match app.paused {
        true => "PAUSED".to_owned(),
        false => format!("every {:.1} s", app.interval.as_secs_f64()).replace(".0 s", " s"),
    };
    let left = width.saturating_sub(right.len() as u16 + 1);
    let x = painter.role((0, 0), left / 2, &status.name, Role::Title);
    let (able, role) = match status.able {
        true => ("able to serve", Role::Good),
        false => ("UNABLE to serve", Role::Bad),
    };
    let x = painter.role((x + 2, 0), left.saturating_sub(x + 2), able, role);
    let text = format!("up {}, generation {}", span(status.uptime_s), status.generation);
    painter.role((x + 2, 0), left.saturating_sub(x + 2), &text, Role::Plain);
    let role = if app.paused { Role::Warning } else { Role::Dim };
    painter.role((width.saturating_sub(right.len() as u16), 0), width, &right, role);
}

fn tabs(painter: &mut Painter<'_>, width: u16, shown: View) {
    let mut x = 0;
    for (index, view) in View::ALL.into_iter().enumerate() {
        let role = if view == shown { Role::Selected } else { Role::Plain };
        let text = format!("{} {}", index + 1, view.name());
        x = painter.role((x, 1), width.saturating_sub(x), &text, role) + 2;
    }
}

/// Draws the most important message: a failed sample, else a message for the operator, else a
/// failed query, else the pause, else the caption.
fn message(painter: &mut Painter<'_>, width: u16, app: &App) {
    let age = |since| span(app.now.saturating_duration_since(since).as_secs());
    let extra_failure = app.extra_failure.as_ref().filter(|(query, _)| *query == app.query());
    let (text, role) = if let Some(failure) = &app.failure {
        let text = format!("data of {} ago: {}", age(app.data.sample.at), failure.text);
        (text, Role::Bad)
    } else if !app.message.is_empty() {
        (app.message.clone(), Role::Warning)
    } else if let Some((_, text)) = extra_failure {
        (text.clone(), Role::Bad)
    } else if app.paused {
        let text = format!("paused: data of {} ago; p continues", age(app.data.sample.at));
        (text, Role::Warning)
    } else {
        (app.data.sample.caption.clone(), Role::Title)
    };
    painter.role((0, 2), width, &text, role);
}

fn help(painter: &mut Painter<'_>, body: Rect) {
    let lines = HELP.iter().zip(body.top()..body.bottom());
    for ((keys, text), y) in lines {
        painter.role((1, y), 28, keys, Role::Title);
        painter.role((30, y), body.width.saturating_sub(30), text, Role::Plain);
    }
}

/// A line as it is drawn. A wrapped [`Line`] is several of them.
struct DrawnLine<'l> {
    label: &'l str,
    text: String,
    role: Role,
    values: &'l [f32],
}

/// Wraps the lines of a page into a width; returns them with the width of the labels.
fn drawn_lines<'l>(lines: &'l [Line], width: u16, theme: Theme) -> (Vec<DrawnLine<'l>>, u16) {
    let label = lines.iter().map(|line| line.label.chars().count()).max().unwrap_or_default();
    let label = if label == 0 { 0 } else { label.min(MAX_LABEL) as u16 + 2 };
    let mut drawn = Vec::new();
    for line in lines {
        let spark = if line.values.is_empty() { 0 } else { spark_width(width) + 2 };
        let space = width.saturating_sub(label + spark);
        for (index, text) in wrapped(&line.text, usize::from(space), theme).into_iter().enumerate()
        {
            let (label, values) = match index {
                0 => (line.label.as_str(), line.values.as_slice()),
                _ => ("", &[][..]),
            };
            drawn.push(DrawnLine { label, text, role: line.role, values });
        }
    }
    (drawn, label)
}

fn spark_width(width: u16) -> u16 {
    (width / 4).min(HISTORY as u16)
}

/// Breaks a text into lines of a width, between words where possible.
fn wrapped(text: &str, width: usize, theme: Theme) -> Vec<String> {
    let text = theme.clean(shortened(text));
    let width = width.max(1);
    let width_of = |text: &str| Span::raw(text).width();
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && width_of(&line) + 1 + width_of(word) > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        if width_of(&line) + width_of(word) <= width {
            line.push_str(word);
            continue;
        }
        for c in word.chars() {
            if !line.is_empty() && width_of(&line) + width_of(c.encode_utf8(&mut [0; 4])) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

fn page(painter: &mut Painter<'_>, body: Rect, app: &mut App) {
    let theme = app.theme;
    let content = app.content().lines.clone();
    let (lines, label) = drawn_lines(&content, body.width, theme);
    let has_table = !app.content().columns.is_empty();
    let all = lines.len();
    if !has_table {
        app.fit(usize::from(body.height), all);
        let offset = app.page().offset;
        for (line, y) in lines.iter().skip(offset).zip(body.top()..body.bottom()) {
            draw_line(painter, (body.width, y), label, line);
        }
        return;
    }
    // The table keeps at least its heading and five rows, or all of its rows.
    let rows = app.content().rows.len().clamp(1, 5) as u16;
    let most = body.height.saturating_sub(rows + 2);
    let shown = all.min(usize::from(most));
    let mut y = body.top();
    for (index, line) in lines.iter().take(shown).enumerate() {
        if index + 1 == shown && shown < all {
            let text = format!("{} more lines in a higher terminal", all + 1 - shown);
            painter.role((0, y), body.width, &text, Role::Dim);
        } else {
            draw_line(painter, (body.width, y), label, line);
        }
        y += 1;
    }
    if shown > 0 {
        y += 1;
    }
    let table = Rect { y, height: body.bottom().saturating_sub(y), ..body };
    draw_table(painter, table, app);
}

fn draw_line(painter: &mut Painter<'_>, (width, y): (u16, u16), label: u16, line: &DrawnLine<'_>) {
    painter.role((0, y), label.saturating_sub(1), line.label, Role::Title);
    let spark = if line.values.is_empty() { 0 } else { spark_width(width) };
    let space = width.saturating_sub(label + spark);
    painter.role((label, y), space, &line.text, line.role);
    if spark > 0 {
        let last = line.values.len().saturating_sub(usize::from(spark));
        let bars = painter.theme.sparkline(&line.values[last..]);
        let style = painter.theme.style(Role::Spark);
        painter.put_right((width - spark, y), spark, &bars, style);
    }
}

/// Returns the columns that fit into a width, each with its width.
fn fitting(columns: &[Column], width: u16) -> Vec<(usize, u16)> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| -> u16 {
        // A blank between two columns, and one for the mark of the order after the last.
        shown.iter().map(|index| columns[*index].width + 1).sum()
    };
    while needed(&shown) > width {
        let last = shown.iter().copied().max_by_key(|index| (columns[*index].rank, *index));
        match last.filter(|index| columns[*index].rank > 0) {
            Some(last) => shown.retain(|index| *index != last),
            None => break,
        }
    }
    let mut left = width.saturating_sub(needed(&shown));
    let mut grow: u16 = shown.iter().map(|index| columns[*index].grow).sum();
    let fitted = shown.into_iter().map(|index| {
        let column = &columns[index];
        let share = u32::from(left) * u32::from(column.grow) / u32::from(grow.max(1));
        let more = if column.grow == 0 { 0 } else { share as u16 };
        let most = if column.title == "HISTORY" { HISTORY as u16 } else { u16::MAX };
        let fitted = (column.width + more).min(most);
        (left, grow) = (left - (fitted - column.width), grow - column.grow);
        (index, fitted)
    });
    fitted.collect()
}

fn draw_table(painter: &mut Painter<'_>, area: Rect, app: &mut App) {
    let columns = fitting(&app.content().columns, area.width);
    let is_hidden = |title: &str| {
        let at = app.content().columns.iter().position(|column| column.title == title);
        at.is_some_and(|at| columns.iter().all(|(index, _)| *index != at))
    };
    let meaning = match app.content().meanings.is_empty() || !is_hidden("MEANING") {
        true => 0,
        false => MEANING_LINES.min(area.height / 3),
    };
    let visible = area.height.saturating_sub(1 + meaning);
    app.fit(usize::from(visible), 0);
    let (content, page) = (app.content(), app.page());
    let mut x = area.x;
    let heading = painter.theme.style(Role::Heading);
    for (index, width) in &columns {
        let column = &content.columns[*index];
        match column.right {
            true => painter.put_right((x, area.y), *width, column.title, heading),
            false => {
                painter.put((x, area.y), *width, column.title, heading);
            }
        }
        if let Some((_, descending)) = page.sort.filter(|(sorted, _)| sorted == index) {
            let end = match column.right {
                true => x + width,
                false => x + (column.title.len() as u16).min(*width),
            };
            let mark = painter.theme.sort_mark(descending);
            painter.role((end, area.y), 1, mark, Role::Title);
        }
        x += width + 1;
    }
    if content.rows.is_empty() {
        let text = match content.all_rows {
            0 => content.empty.clone(),
            all => format!("none of {} rows matches; Esc clears the filter", count(all as u64)),
        };
        painter.role((area.x, area.y + 1), area.width, &text, Role::Dim);
        return;
    }
    let rows = content.rows.iter().enumerate().skip(page.offset);
    for ((number, row), y) in rows.zip(area.y + 1..area.y + 1 + visible) {
        let selected = number == page.selected;
        if selected {
            let line = Rect { y, height: 1, ..area };
            painter.buffer.set_style(line, painter.theme.style(Role::Selected));
        }
        let mut x = area.x;
        for (index, width) in &columns {
            let cell = row.cells.get(*index).unwrap_or(&Cell::Empty);
            let (text, role) = match cell {
                Cell::History => {
                    let series = app.data.series(&row.key);
                    let values = series.map(|series| series.last(usize::from(*width)));
                    let bars = painter.theme.sparkline(&values.unwrap_or_default());
                    // The newest value is at the right, as in wide terminals.
                    (format!("{bars:>width$}", width = usize::from(*width)), Role::Spark)
                }
                cell => cell.show(),
            };
            let style = match selected {
                true => painter.theme.style(Role::Selected),
                false => painter.theme.style(role),
            };
            match content.columns[*index].right {
                true => painter.put_right((x, y), *width, &text, style),
                false => {
                    painter.put((x, y), *width, &text, style);
                }
            }
            x += width + 1;
        }
    }
    if meaning > 0 {
        let row = &content.rows[page.selected.min(content.rows.len() - 1)];
        let found = content.meanings.iter().find(|(key, _)| key.is_same_row(&row.key));
        let text = found.map(|(_, text)| text.as_str()).unwrap_or_default();
        let lines = wrapped(text, usize::from(area.width), painter.theme);
        for (line, y) in lines.iter().zip(area.bottom() - meaning..area.bottom()) {
            painter.role((area.x, y), area.width, line, Role::Dim);
        }
    }
}

/// Draws the titles of the page and those above it, its filter and note, and the number of the
/// selected row.
fn note(painter: &mut Painter<'_>, (width, y): (u16, u16), app: &App) {
    let (content, page) = (app.content(), app.page());
    let position = match content.columns.is_empty() || content.rows.is_empty() || app.help {
        true => String::new(),
        false => {
            let (row, rows) = (page.selected as u64 + 1, content.rows.len() as u64);
            format!("{} of {}", count(row), count(rows))
        }
    };
    let mut text = match app.help {
        true => "help".to_owned(),
        false => app.titles().join(" > "),
    };
    if !page.filter.is_empty() {
        text.push_str(&format!("  filter: {}", page.filter));
    }
    if !content.note.is_empty() && !app.help {
        text.push_str(&format!("  ({})", content.note));
    }
    let space = width.saturating_sub(position.len() as u16 + 1);
    painter.role((0, y), space, &text, Role::Dim);
    painter.role((width - position.len() as u16, y), width, &position, Role::Dim);
}

/// Draws the keys, or what is being typed; returns the column of the cursor if there is one.
fn footer(painter: &mut Painter<'_>, (width, y): (u16, u16), app: &App) -> Option<u16> {
    let (prompt, text) = match &app.input {
        Some(Input::Filter(text, _)) => ("/", text),
        Some(Input::Command(text)) => (":", text),
        None => {
            painter.role((0, y), width, KEYS, Role::Dim);
            return None;
        }
    };
    let x = painter.role((0, y), width, prompt, Role::Title);
    Some(painter.role((x, y), width.saturating_sub(x), text, Role::Plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::page::{history, number, text};

    #[test]
    fn columns_with_the_highest_rank_are_left_out_first() {
        let columns = [text("A", 10, 0), number("B", 6, 2), number("C", 6, 1), history(3)];
        let of = |width| fitting(&columns, width);
        assert_eq!(of(34), [(0, 10), (1, 6), (2, 6), (3, 8)]);
        assert_eq!(of(33), [(0, 10), (1, 6), (2, 6), (3, 7)]);
        assert_eq!(of(32), [(0, 17), (1, 6), (2, 6)]);
        assert_eq!(of(20), [(0, 12), (2, 6)]);
        assert_eq!((of(12), of(3)), (vec![(0, 11)], vec![(0, 10)]));
        // The sparkline takes no more than it has values.
        let wide = of(300);
        assert_eq!(wide[3], (3, HISTORY as u16));
        for width in 0..400 {
            let total: u16 = of(width).iter().map(|(_, width)| width + 1).sum();
            assert!(total <= width.max(11), "{width}: {total}");
        }
    }

    #[test]
    fn the_help_fits_into_80_columns_and_24_lines() {
        assert!(HELP.len() <= 19, "{}", HELP.len());
        assert!(
            KEYS.len() <= 80
                && HELP.iter().all(|(keys, text)| { keys.len() <= 28 && text.len() <= 50 })
        );
    }

    #[test]
    fn text_is_wrapped_between_words() {
        let theme = Theme { color: true, unicode: true };
        let lines = wrapped("one two  three\x1b[2J 0123456789ABC", 9, theme);
        assert_eq!(lines, ["one two ", "three�[2J", "012345678", "9ABC"]);
        assert_eq!(wrapped("", 5, theme), [""]);
        assert_eq!(wrapped("界界界", 5, theme), ["界界", "界"]);
        assert_eq!(wrapped("ab", 0, theme), ["a", "b"]);
    }
}
