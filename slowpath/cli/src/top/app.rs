//! State of the live view and its transitions: keys and responses go in, an action comes out.
//! Nothing here reads a clock, a terminal or a socket.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::content::{content, first_order};
use super::data::Data;
use super::page::{Content, Kind, Page, View};
use super::sample::{Extra, Query, Sample};
use super::theme::Theme;

/// What the caller does after an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Draw, and continue.
    Continue,
    /// End with success: the operator pressed `q`.
    Quit,
    /// End as after SIGINT.
    Interrupt,
    /// Stop the process as after SIGTSTP.
    Suspend,
    /// Draw the whole screen again.
    Redraw,
}

/// What the operator types on the last line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A filter, and the one before, which Esc restores.
    Filter(String, String),
    /// The name of a view.
    Command(String),
}

/// A failure to get data.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What failed, and why.
    pub text: String,
    /// Time of the first failure after the last success.
    pub since: Instant,
}

/// State of the live view.
#[derive(Debug)]
pub struct App {
    /// Appearance.
    pub theme: Theme,
    /// Data and what was computed from it.
    pub data: Data,
    /// Time between two samples, as set by the sampler.
    pub interval: Duration,
    /// The current time, set by the caller.
    pub now: Instant,
    /// Why the last sample failed; `None` if it did not.
    pub failure: Option<Failure>,
    /// The last query of a page that failed, and why.
    pub extra_failure: Option<(Query, String)>,
    /// Whether samples are ignored.
    pub paused: bool,
    /// Whether the help is shown.
    pub help: bool,
    /// What is being typed.
    pub input: Option<Input>,
    /// A message for the operator, until the next key.
    pub message: String,
    /// Index of the view in [`View::ALL`].
    view: usize,
    /// The first page of each view.
    pages: Vec<Page>,
    /// Pages of details above that of the view.
    details: Vec<Page>,
    content: Content,
    /// Whether `content` must be computed again.
    stale: bool,
    /// Number of rows or lines that fit on the screen, as drawn last.
    visible: usize,
    /// Number of lines of a page without a table, as drawn last.
    lines: usize,
}

impl App {
    /// Starts with a first sample.
    pub fn new(theme: Theme, sample: Sample, view: View, interval: Duration) -> App {
        let page = |view: View| Page::new(Kind::View(view), first_order(&Kind::View(view)));
        App {
            theme,
            now: sample.at,
            data: Data::new(sample),
            interval,
            failure: None,
            extra_failure: None,
            paused: false,
            help: false,
            input: None,
            message: String::new(),
            view: View::ALL.iter().position(|one| *one == view).unwrap_or_default(),
            pages: View::ALL.map(page).to_vec(),
            details: Vec::new(),
            content: Content::default(),
            stale: true,
            visible: 1,
            lines: 0,
        }
    }

    /// Returns the view.
    pub fn view(&self) -> View {
        View::ALL[self.view]
    }

    /// Returns the page that is shown.
    pub fn page(&self) -> &Page {
        self.details.last().unwrap_or(&self.pages[self.view])
    }

    fn page_mut(&mut self) -> &mut Page {
        self.details.last_mut().unwrap_or(&mut self.pages[self.view])
    }

    /// Returns the titles of the pages from that of the view to the one that is shown.
    pub fn titles(&self) -> Vec<String> {
        let first = &self.pages[self.view];
        [first].into_iter().chain(&self.details).map(|page| page.kind.title()).collect()
    }

    /// Returns what the shown page needs in addition to samples.
    pub fn query(&self) -> Query {
        self.page().query()
    }

    /// Returns the content of the page, with the selection moved to the selected row.
    pub fn prepare(&mut self) -> &Content {
        if std::mem::take(&mut self.stale) {
            self.content = content(&self.data, self.page());
            let rows = &self.content.rows;
            let page = self.details.last_mut().unwrap_or(&mut self.pages[self.view]);
            let found = page.key.as_ref().and_then(|key| {
                // Usually the order has not changed.
                let same = rows.get(page.selected).filter(|row| row.key.is_same_row(key));
                same.map(|_| page.selected)
                    .or_else(|| rows.iter().position(|row| row.key.is_same_row(key)))
            });
            page.selected = found.unwrap_or(page.selected).min(rows.len().saturating_sub(1));
            if page.key.is_some() && found.is_none() {
                page.key = rows.get(page.selected).map(|row| row.key.clone());
            }
        }
        &self.content
    }

    /// Returns the content as prepared last.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Sets the number of rows or lines that fit on the screen and the number of lines of the page,
    /// and moves the offset so that the selection is visible.
    pub fn fit(&mut self, visible: usize, lines: usize) {
        (self.visible, self.lines) = (visible.max(1), lines);
        let (visible, rows) = (self.visible, self.content.rows.len());
        let has_table = !self.content.columns.is_empty();
        let page = self.page_mut();
        if has_table {
            let last = rows.saturating_sub(visible);
            let first = page.selected.saturating_sub(visible - 1);
            page.offset = page.offset.clamp(first.min(last), page.selected.min(last));
        } else {
            page.offset = page.offset.min(lines.saturating_sub(visible));
        }
    }

    /// Processes a sample, or the reason why there is none. Ignores both while paused.
    pub fn accept(&mut self, sample: Result<Sample, String>) {
        if self.paused {
            return;
        }
        match sample {
            Ok(sample) => {
                self.failure = None;
                self.data.accept(sample);
                self.stale = true;
            }
            Err(text) => {
                let since = self.failure.as_ref().map_or(self.now, |failure| failure.since);
                self.failure = Some(Failure { text, since });
            }
        }
    }

    /// Processes a response to the query of the shown page, or the reason why there is none.
    /// Ignores responses to other pages' queries.
    pub fn accept_extra(&mut self, query: Query, extra: Result<Extra, String>) {
        if query != self.query() {
            return;
        }
        match extra {
            Ok(extra) => {
                self.extra_failure = None;
                self.data.extra = Some((query, extra, self.now));
                self.stale = true;
            }
            Err(text) => self.extra_failure = Some((query, text)),
        }
    }

    /// Returns whether samples are needed, and the query of the page. A paused view needs no
    /// samples, and a query only if its page has no response to it yet.
    pub fn needs(&self) -> (bool, Query) {
        let query = self.query();
        match self.paused && self.data.extra(&query).is_some() {
            true => (false, Query::None),
            false => (!self.paused, query),
        }
    }

    /// Processes a key.
    pub fn press(&mut self, key: KeyEvent) -> Action {
        self.message.clear();
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Action::Interrupt,
            KeyCode::Char('z') if control => return Action::Suspend,
            KeyCode::Char('l') if control => return Action::Redraw,
            _ => {}
        }
        if self.input.is_some() {
            self.edit(key.code);
            return Action::Continue;
        }
        if self.help {
            self.help = false;
            // Any key closes the help. Those other than `?`, F1, Esc and Enter also have their
            // effect.
            if matches!(
                key.code,
                KeyCode::Char('?') | KeyCode::F(1) | KeyCode::Esc | KeyCode::Enter
            ) {
                return Action::Continue;
            }
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.help = true,
            KeyCode::Char(digit @ '1'..='8') => {
                self.show(usize::from(digit as u8 - b'1'));
            }
            KeyCode::Tab => self.show((self.view + 1) % View::ALL.len()),
            KeyCode::BackTab => self.show((self.view + View::ALL.len() - 1) % View::ALL.len()),
            KeyCode::Char('/') => {
                let filter = self.page().filter.clone();
                self.input = Some(Input::Filter(filter.clone(), filter));
            }
            KeyCode::Char(':') => self.input = Some(Input::Command(String::new())),
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char('S' | 'r') => self.reverse(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Enter => self.open(),
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            code => self.scroll(code, control),
        }
        Action::Continue
    }

    /// Shows the first page of a view.
    fn show(&mut self, view: usize) {
        self.view = view;
        self.details.clear();
        self.stale = true;
    }

    fn edit(&mut self, code: KeyCode) {
        let Some(input) = &mut self.input else { return };
        let text = match input {
            Input::Filter(text, _) | Input::Command(text) => text,
        };
        match code {
            // The length in bytes is bounded, because no useful filter or command is longer.
            KeyCode::Char(c) if text.len() < 256 => text.push(c),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Enter => {
                match self.input.take() {
                    Some(Input::Command(name)) => self.command(&name),
                    Some(Input::Filter(text, _)) => self.filter(text),
                    None => {}
                }
                return;
            }
            KeyCode::Esc => {
                if let Some(Input::Filter(_, before)) = self.input.take() {
                    self.filter(before);
                }
                return;
            }
            _ => return,
        }
        // Words of a filter apply while they are typed; conditions when they are complete.
        if let Some(Input::Filter(text, _)) = &self.input
            && !text.contains('=')
        {
            self.filter(text.clone());
        }
    }

    fn filter(&mut self, text: String) {
        let page = self.page_mut();
        if page.filter != text {
            page.filter = text;
            (page.selected, page.offset, page.key) = (0, 0, None);
            self.stale = true;
        }
    }

    fn command(&mut self, name: &str) {
        match View::from_prefix(name) {
            Some(view) => self.show(View::ALL.iter().position(|one| *one == view).unwrap_or(0)),
            None if name.trim().is_empty() => {}
            None => {
                let names = View::ALL.map(View::name).join(", ");
                self.message = format!("no view `{name}`; views: {names}");
            }
        }
    }

    fn sort_by_next(&mut self) {
        self.prepare();
        let columns: Vec<&str> = self.content.columns.iter().map(|column| column.title).collect();
        let first_row = self.content.rows.first().map(|row| row.cells.clone());
        let page = self.page_mut();
        let sortable =
            |index: &usize| !["HISTORY", "MEANING", "DETAILS", ""].contains(&columns[*index]);
        let from = page.sort.map_or(0, |(column, _)| column + 1);
        page.sort = (from..columns.len()).find(sortable).map(|column| {
            let cell = first_row.as_ref().and_then(|cells| cells.get(column));
            // By default, numbers are sorted with the largest first, and texts in alphabetic order.
            (column, !matches!(cell, Some(super::page::Cell::Text(..))))
        });
        self.select_first_row();
    }

    fn reverse(&mut self) {
        let page = self.page_mut();
        page.sort = page.sort.map(|(column, descending)| (column, !descending));
        self.select_first_row();
    }

    /// Selects the first row after a change of the order.
    fn select_first_row(&mut self) {
        let page = self.page_mut();
        (page.selected, page.offset, page.key) = (0, 0, None);
        self.stale = true;
    }

    fn open(&mut self) {
        self.prepare();
        let Some(row) = self.content.rows.get(self.page().selected) else { return };
        let Some(kind) = row.key.details() else {
            "this row has no details".clone_into(&mut self.message);
            return;
        };
        self.page_mut().key = Some(self.content.rows[self.page().selected].key.clone());
        let order = first_order(&kind);
        self.details.push(Page::new(kind, order));
        self.stale = true;
    }

    /// Clears the filter, or if there is none, shows the page from which this one was opened.
    fn back(&mut self) {
        if !self.page().filter.is_empty() {
            self.filter(String::new());
        } else if self.details.pop().is_some() {
            self.stale = true;
        }
    }

    fn scroll(&mut self, code: KeyCode, control: bool) {
        self.prepare();
        let visible = self.visible as isize;
        let step: isize = match code {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -visible,
            KeyCode::PageDown => visible,
            KeyCode::Char('b') if control => -visible,
            KeyCode::Char('f') if control => visible,
            KeyCode::Char('u') if control => -(visible / 2),
            KeyCode::Char('d') if control => visible / 2,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            _ => return,
        };
        let (rows, lines) = (self.content.rows.len(), self.lines);
        if self.content.columns.is_empty() {
            let last = lines.saturating_sub(self.visible);
            let page = self.page_mut();
            page.offset = page.offset.saturating_add_signed(step).min(last);
            return;
        }
        let selected = self.page().selected.saturating_add_signed(step);
        let selected = selected.min(rows.saturating_sub(1));
        // The first row has no key: the selection stays at the top when the order changes.
        let row = self.content.rows.get(selected).filter(|_| selected > 0);
        let key = row.map(|row| row.key.clone());
        let page = self.page_mut();
        (page.selected, page.key) = (selected, key);
    }
}
