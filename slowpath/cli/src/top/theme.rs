//! Colors and characters of the live view, as the terminal supports them.

use std::borrow::Cow;

use ratatui::style::{Color, Modifier, Style};

/// Meaning of a piece of text; [`Theme::style`] returns its appearance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Ordinary text.
    #[default]
    Plain,
    /// Name of the appliance, labels of lines.
    Title,
    /// A state as it should be.
    Good,
    /// A state that an operator should know.
    Warning,
    /// A state that affects traffic.
    Bad,
    /// Less important text.
    Dim,
    /// Headings of a table.
    Heading,
    /// The selected row and the active view.
    Selected,
    /// A sparkline.
    Spark,
}

/// Capabilities of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Theme {
    /// Whether colors are used. Without, attributes (bold, reverse) and words carry all meaning.
    pub color: bool,
    /// Whether characters outside of ASCII are used.
    pub unicode: bool,
}

/// Terminals without colors. Names that end with `-m` or `-mono` are monochrome variants.
const MONOCHROME: [&str; 7] = ["vt52", "vt100", "vt102", "vt132", "vt220", "vt320", "vt420"];

impl Theme {
    /// Returns the theme for the environment: `NO_COLOR` and `TERM` for colors; `LC_ALL`,
    /// `LC_CTYPE` and `LANG`, of which the first that is set counts, for the character set.
    pub fn from_environment(value: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name: &str| value(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let monochrome = MONOCHROME.iter().any(|name| term == *name)
            || term.ends_with("-m")
            || term.ends_with("-mono");
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        Theme {
            color: set("NO_COLOR").is_none() && !monochrome,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Returns the style of a role.
    pub fn style(&self, role: Role) -> Style {
        let colored = |color: Color, without: Style| match self.color {
            true => Style::new().fg(color),
            false => without,
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match role {
            Role::Plain => Style::new(),
            Role::Title => bold,
            Role::Good => colored(Color::Green, Style::new()),
            Role::Warning => colored(Color::Yellow, bold),
            Role::Bad => colored(Color::Red, Style::new().add_modifier(Modifier::UNDERLINED))
                .add_modifier(Modifier::BOLD),
            Role::Dim => Style::new().add_modifier(Modifier::DIM),
            Role::Heading => bold.add_modifier(Modifier::UNDERLINED),
            Role::Selected => Style::new().add_modifier(Modifier::REVERSED),
            Role::Spark => colored(Color::Cyan, Style::new()),
        }
    }

    /// Returns the mark that ends a truncated text.
    pub fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// Returns the mark of the column by which a table is sorted.
    pub fn sort_mark(&self, descending: bool) -> &'static str {
        match (self.unicode, descending) {
            (true, true) => "▼",
            (true, false) => "▲",
            (false, true) => "v",
            (false, false) => "^",
        }
    }

    /// Draws values as a line of bars, one character each, in their order; the largest has full
    /// height. A value that is not finite, such as an unknown rate, is a blank.
    pub fn sparkline(&self, values: &[f32]) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const MARKS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
        let bars = if self.unicode { BARS } else { MARKS };
        let max = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f32::max);
        let bar = |value: &f32| match value {
            value if !value.is_finite() => ' ',
            value if *value <= 0.0 || max <= 0.0 => bars[0],
            // Only zero has the lowest bar, so that it differs from small values.
            value => bars[((value / max * 7.0).ceil() as usize).clamp(1, 7)],
        };
        values.iter().map(bar).collect()
    }

    /// Returns a text without characters that a terminal acts on or that reorder or hide others:
    /// controls (also C1), marks of direction, zero-width characters. Without Unicode, all
    /// characters outside of ASCII are replaced, because in other character sets their bytes may be
    /// controls.
    pub fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let shown = |c: char| if self.unicode { !is_unsafe(c) } else { matches!(c, ' '..='~') };
        if text.chars().all(shown) {
            return Cow::Borrowed(text);
        }
        let mark = if self.unicode { '\u{fffd}' } else { '?' };
        let replaced = |c: char| match c {
            '\n' | '\t' => ' ',
            c if shown(c) => c,
            _ => mark,
        };
        Cow::Owned(text.chars().map(replaced).collect())
    }
}

/// Returns whether a character must not reach a terminal: controls, line and paragraph separators,
/// invisible characters, marks of direction (Unicode technical report 36), tags.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(environment: &[(&str, &str)]) -> Theme {
        Theme::from_environment(|name| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_determines_colors_and_characters() {
        let utf8 = ("LANG", "C.UTF-8");
        let xterm = ("TERM", "xterm-256color");
        assert_eq!(theme(&[utf8, xterm]), Theme { color: true, unicode: true });
        assert_eq!(theme(&[utf8, xterm, ("NO_COLOR", "1")]), Theme { color: false, unicode: true });
        // An empty NO_COLOR counts as unset (no-color.org).
        assert!(theme(&[utf8, xterm, ("NO_COLOR", "")]).color);
        for term in ["vt100", "vt220", "xterm-mono", "rxvt-m"] {
            assert!(!theme(&[utf8, ("TERM", term)]).color, "{term}");
        }
        assert!(!theme(&[xterm]).unicode);
        assert!(!theme(&[xterm, utf8, ("LC_ALL", "C")]).unicode);
        assert!(theme(&[xterm, ("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")]).unicode);
    }

    #[test]
    fn monochrome_styles_have_no_color() {
        let mono = Theme { color: false, unicode: true };
        for role in [
            Role::Plain,
            Role::Title,
            Role::Good,
            Role::Warning,
            Role::Bad,
            Role::Dim,
            Role::Heading,
            Role::Selected,
            Role::Spark,
        ] {
            let style = mono.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
        assert_ne!(mono.style(Role::Bad), mono.style(Role::Good));
    }

    #[test]
    fn sparklines_scale_to_their_maximum() {
        let (unicode, ascii) =
            (Theme { color: true, unicode: true }, Theme { color: true, unicode: false });
        let values = [f32::NAN, 0.0, 1.0, 50.0, 100.0];
        assert_eq!(unicode.sparkline(&values), " ▁▂▅█");
        assert_eq!(ascii.sparkline(&values), " _.=#");
        assert_eq!(unicode.sparkline(&[0.0, 0.0]), "▁▁");
        assert_eq!(unicode.sparkline(&[]), "");
        assert_eq!(unicode.sparkline(&[f32::INFINITY, 1.0]), " █");
    }

    #[test]
    fn no_control_reaches_the_terminal() {
        let unicode = Theme { color: true, unicode: true };
        let ascii = Theme { color: true, unicode: false };
        assert_eq!(unicode.clean("shop/wéb"), "shop/wéb");
        assert_eq!(ascii.clean("shop/wéb"), "shop/w?b");
        assert_eq!(unicode.clean("a\x1b[31mb\u{9b}2J\u{202e}c\r\n"), "a�[31mb�2J�c� ");
        assert_eq!(ascii.clean("a\x1b[31mb\u{9b}2J\x07\x7f"), "a?[31mb?2J??");
        for c in (0..0x3_0000u32).chain(0xe_0000..0xe_1000).filter_map(char::from_u32) {
            let text = c.to_string();
            let clean = unicode.clean(&text).into_owned();
            assert!(!clean.chars().any(char::is_control), "{:x}", u32::from(c));
            assert!(ascii.clean(&text).bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        }
    }
}
