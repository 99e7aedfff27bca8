//! A source file as the tidy test sees it: its production lines, its functions, its words.
//!
//! Not a parser: comments, strings and character literals are blanked out, then braces are counted.

use std::path::{Path, PathBuf};

/// One source file of the workspace.
pub struct Source {
    /// Path from the root of the workspace, with `/`.
    pub path: String,
    /// The lines as written.
    pub lines: Vec<String>,
    /// The same lines with everything blanked that is not code.
    pub code: Vec<String>,
    /// Per line: belongs to a test (a `#[cfg(test)]` item, a `tests.rs`).
    pub test: Vec<bool>,
}

/// A function with its place and length.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of `fn`, from 0.
    pub first: usize,
    /// Line of the closing brace, from 0.
    pub last: usize,
}

impl Function {
    /// Lines from `fn` to the closing brace.
    pub fn len(&self) -> usize {
        self.last - self.first + 1
    }
}

impl Source {
    /// Reads and splits one file.
    pub fn new(path: String, text: &str) -> Source {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let code: Vec<String> = blank(text).lines().map(str::to_owned).collect();
        let all =
            path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/fuzz/");
        let mut source = Source { test: vec![all; lines.len()], path, lines, code };
        source.mark_test_items();
        source
    }

    /// True for a Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// All functions with a body outside of tests.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for first in (0..self.code.len()).filter(|&n| !self.test[n]) {
            for (column, _) in self.code[first].match_indices("fn ") {
                let before = self.code[first][..column].chars().next_back();
                let name: String = self.code[first][column + 3..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if name.is_empty() || before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                if let Some(last) = self.end_of_item(first, column) {
                    found.push(Function { name, first, last });
                }
            }
        }
        found
    }

    /// Each word that is an identifier in the code, with its line from 0.
    pub fn identifiers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().flat_map(|(n, line)| {
            line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
                .map(move |word| (n, word))
        })
    }

    fn mark_test_items(&mut self) {
        for n in 0..self.code.len() {
            let line = self.code[n].trim_start();
            if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(any(test") {
                let start = self.code[n].find(']').map_or(0, |at| at + 1);
                let last = self.end_of_item(n, start).unwrap_or(n + 1);
                let end = (last + 1).min(self.test.len());
                self.test[n..end].fill(true);
            }
        }
    }

    /// The line on which the item that starts at (line, column) ends: at the brace that closes its
    /// first block, or at a semicolon before any block. A function without a body has no end.
    fn end_of_item(&self, first: usize, column: usize) -> Option<usize> {
        let (mut braces, mut brackets) = (0i32, 0i32);
        for (n, line) in self.code.iter().enumerate().skip(first) {
            let from = if n == first { column } else { 0 };
            for c in line[from..].chars() {
                match c {
                    '{' => braces += 1,
                    '}' => {
                        braces -= 1;
                        if braces <= 0 && brackets == 0 {
                            return Some(n);
                        }
                    }
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets -= 1,
                    ';' if braces == 0 && brackets == 0 => return (n != first).then_some(n),
                    _ => {}
                }
            }
        }
        None
    }
}

/// The text with comments, strings and character literals replaced by blanks of the same shape.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => end_of_line(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => end_of_comment(bytes, at),
            b'"' => end_of_string(bytes, at),
            b'r' if starts_raw_string(bytes, at) => end_of_raw_string(bytes, at),
            b'\'' => end_of_character(bytes, at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn end_of_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut n) = (0, at);
    while n + 1 < bytes.len() {
        match &bytes[n..n + 2] {
            b"/*" => (depth, n) = (depth + 1, n + 2),
            b"*/" => (depth, n) = (depth - 1, n + 2),
            _ => n += 1,
        }
        if depth == 0 {
            return n;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut n = at + 1;
    while n < bytes.len() {
        match bytes[n] {
            b'\\' => n += 2,
            b'"' => return n + 1,
            _ => n += 1,
        }
    }
    bytes.len()
}

fn starts_raw_string(bytes: &[u8], at: usize) -> bool {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let part_of_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let byte_string = at > 0 && bytes[at - 1] == b'b';
    bytes.get(at + 1 + hashes) == Some(&b'"') && (!part_of_word || byte_string)
}

fn end_of_raw_string(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let body = at + 2 + hashes;
    bytes[body..]
        .windows(close.len())
        .position(|w| w == close)
        .map_or(bytes.len(), |n| body + n + close.len())
}

/// The end of a character literal; a lifetime is none and blanks nothing.
fn end_of_character(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        return bytes[at + 3..].iter().position(|b| *b == b'\'').map_or(at, |n| at + n + 4);
    }
    let width = std::str::from_utf8(&bytes[at + 1..])
        .ok()
        .and_then(|rest| rest.chars().next())
        .map_or(1, char::len_utf8);
    if bytes.get(at + 1 + width) == Some(&b'\'') { at + width + 2 } else { at }
}

/// All Rust and C sources below `root`, in a stable order; build folders and dot folders left out.
pub fn all(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(root, &mut paths);
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let name = path.strip_prefix(root).ok()?.to_string_lossy().replace('\\', "/");
            Some(Source::new(name, &std::fs::read_to_string(path).ok()?))
        })
        .collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if !name.starts_with('.') && name != "target" {
                walk(&path, paths);
            }
        } else if [".rs", ".c", ".h"].iter().any(|ending| name.ends_with(ending)) {
            paths.push(path);
        }
    }
}
