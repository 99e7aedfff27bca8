//! Output of documents: text (tables and messages) for people, JSON or YAML for programs.

use std::io::{BufRead, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::options::{GlobalOptions, Output};
use super::request::{self, RequestError};
use super::table::Table;

/// Prints a document in the selected output format; `text` formats the document for output `table`.
pub fn print<T: Serialize>(options: &GlobalOptions, document: &T, text: impl FnOnce() -> String) {
    match options.output() {
        Output::Table => write_stdout(&text()),
        other => write_stdout(&serialize(document, other)),
    }
}

/// Serializes a document as JSON or YAML.
pub fn serialize<T: Serialize>(document: &T, output: Output) -> String {
    let json = || serde_json::to_string_pretty(document).unwrap_or_default() + "\n";
    match output {
        Output::Yaml => serde_saphyr::to_string(document).unwrap_or_else(|_| json()),
        Output::Table | Output::Json => json(),
    }
}

/// Prints one of several documents as soon as it is available: a line of JSON, or a document of
/// YAML.
pub fn print_next<T: Serialize>(document: &T, output: Output) {
    match output {
        Output::Yaml => write_stdout(&format!("---\n{}", serialize(document, output))),
        _ => write_stdout(&(serde_json::to_string(document).unwrap_or_default() + "\n")),
    }
}

/// Writes to stdout. If that fails, ends the process: with exit code 0 if the reader has closed the
/// pipe (`weir flows | head`), and with an error and exit code 2 otherwise (a full disk).
pub fn write_stdout(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("weir: cannot write to standard output: {error}; the output is incomplete");
            std::process::exit(2);
        }
    }
}

/// An event of a stream, as classified by the caller of [`follow`].
pub enum StreamEvent {
    /// A row was added or changed.
    Row(Table),
    /// The item of this name was removed.
    Removed(String),
    /// A bookmark (the revision reached). It is omitted from text output.
    Bookmark,
    /// An event that does not match the filter.
    Filtered,
}

/// Idle timeout of a followed stream: in effect none, since the user ends the command with Ctrl-C.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

/// Follows a stream: prints the existing items and then each change, as classified by `read`. The
/// end of the stream is an error, so that the function returns only errors.
pub fn follow(
    options: &GlobalOptions,
    socket: &Path,
    path: &str,
    read: impl Fn(&Value) -> Result<StreamEvent, String>,
) -> Result<(), String> {
    let answer = request::lines(socket, path, FOLLOW_TIMEOUT).map_err(|e| e.to_string())?;
    let (mut has_heading, mut widths) = (false, Vec::new());
    for line in answer.lines() {
        let line = line.map_err(|e| RequestError::Truncated(e).to_string())?;
        let change: Value = serde_json::from_str(&line)
            .map_err(|e| RequestError::Malformed(e.to_string()).to_string())?;
        match (read(&change)?, options.output()) {
            (StreamEvent::Filtered, _) | (StreamEvent::Bookmark, Output::Table) => {}
            (StreamEvent::Row(table), Output::Table) => {
                let text = table.text_in(&mut widths);
                let skip = usize::from(std::mem::replace(&mut has_heading, true));
                let lines: Vec<&str> = text.lines().skip(skip).collect();
                write_stdout(&(lines.join("\n") + "\n"));
            }
            (StreamEvent::Removed(name), Output::Table) => {
                write_stdout(&format!("{name}  removed\n"))
            }
            (_, output) => print_next(&change, output),
        }
    }
    Err("the stream ended: slowpath stopped or closed the connection".to_owned())
}
