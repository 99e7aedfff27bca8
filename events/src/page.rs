//! The reference page of the events.

use std::fmt::Write;

use crate::list::EVENTS;

/// Returns the sections of the page: the events of the history, and those of the log alone.
pub fn sections() -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write!(page, "## Events of the history\n\n");
    rows(&mut page, true);
    let _ = write!(page, "\n## Events of the log alone\n\n");
    rows(&mut page, false);
    page
}

fn rows(page: &mut String, is_recorded: bool) {
    page.push_str("| event | severity | fields | meaning | what to do |\n|---|---|---|---|---|\n");
    for kind in EVENTS.iter().filter(|kind| kind.is_recorded == is_recorded) {
        let is_subject = |name| kind.subject_fields().contains(name);
        let field =
            |name| if is_subject(name) { format!("**`{name}`**") } else { format!("`{name}`") };
        let fields: Vec<String> = kind.fields.iter().map(field).collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            kind.name,
            kind.severity.as_str(),
            fields.join(", "),
            kind.meaning.replace('|', "\\|"),
            kind.action.replace('|', "\\|"),
        );
    }
}
