//! YAML parser: each document of a text as a JSON value, with the positions of keys and values.
//!
//! Scalars follow the core schema of YAML 1.2, in which `yes` and `on` are strings. Anchors,
//! aliases and tags are rejected: settings do not need them, and they let a small file expand to a
//! large one.

use std::collections::BTreeMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Value};

/// Maximum nesting depth of lists and mappings.
const MAX_DEPTH: usize = 64;

/// Byte ranges of keys and values, by dotted path that may contain list indices.
pub type Spans = BTreeMap<String, (Range<usize>, Range<usize>)>;

/// One YAML document.
#[derive(Debug)]
pub struct Document {
    /// The document's value; null if it is empty.
    pub value: Value,
    /// Positions of keys and values; empty unless created by [`Documents::with_spans`].
    pub spans: Spans,
}

/// Error in a YAML text: invalid, or a feature that is not supported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{fault}")]
pub struct YamlError {
    /// Byte offset of the error in the text.
    pub at: usize,
    /// What is wrong.
    pub fault: String,
}

/// Iterator over the documents of a text; ends after the first error.
pub struct Documents<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    spans: Option<Spans>,
    /// Byte and character offset of the last position converted, since the parser counts
    /// characters.
    position: (usize, usize),
    done: bool,
}

impl<'t> Documents<'t> {
    /// Creates the iterator. [`Document::spans`] stays empty, which saves memory.
    pub fn new(text: &'t str) -> Documents<'t> {
        let parser = Parser::new_from_str(text);
        Documents { parser, text, spans: None, position: (0, 0), done: false }
    }

    /// Creates the iterator, and records the positions of keys and values.
    pub fn with_spans(text: &'t str) -> Documents<'t> {
        Documents { spans: Some(Spans::new()), ..Documents::new(text) }
    }

    fn event(&mut self) -> Result<(Event<'t>, Range<usize>), YamlError> {
        let next = self.parser.next_event();
        let (event, span) = match next {
            Some(Ok(next)) => next,
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                return Err(YamlError { at, fault: error.info().to_owned() });
            }
            None => (Event::StreamEnd, Span::default()),
        };
        let range = self.byte(span.start.index())..self.byte(span.end.index());
        let (anchor, tag) = match &event {
            Event::Alias(_) => (1, None),
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.as_ref()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.as_ref())
            }
            _ => (0, None),
        };
        let fault = match (anchor, tag) {
            (0, None) => return Ok((event, range)),
            (0, Some(tag)) => format!("tags such as `{tag}` are not supported: remove it"),
            _ => "anchors (&) and aliases (*) are not supported: write the value itself".to_owned(),
        };
        Err(YamlError { at: range.start, fault })
    }

    /// Returns the byte offset of a character.
    fn byte(&mut self, character: usize) -> usize {
        if character < self.position.1 {
            self.position = (0, 0);
        }
        let (from, characters) = self.position;
        let rest = self.text.get(from..).unwrap_or_default();
        let step = rest.char_indices().nth(character - characters).map_or(rest.len(), |(at, _)| at);
        self.position = (from + step, character);
        from + step
    }

    fn record_span(&mut self, path: &str, key: Range<usize>, value: Range<usize>) {
        if let Some(spans) = &mut self.spans {
            spans.insert(path.to_owned(), (key, value));
        }
    }

    /// Parses the value that begins with `event`, and returns it with its end in bytes.
    fn value(
        &mut self,
        (event, range): (Event<'t>, Range<usize>),
        path: &str,
        depth: usize,
    ) -> Result<(Value, usize), YamlError> {
        if depth > MAX_DEPTH {
            let fault = format!("lists and mappings are nested more than {MAX_DEPTH} deep");
            return Err(YamlError { at: range.start, fault });
        }
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok((plain(&text), range.end)),
            Event::Scalar(text, ..) => Ok((Value::String(text.into_owned()), range.end)),
            Event::SequenceStart(..) => {
                let (mut list, mut end) = (Vec::new(), range.end);
                loop {
                    let next = self.event()?;
                    if next.0 == Event::SequenceEnd {
                        return Ok((Value::Array(list), end.max(next.1.start)));
                    }
                    let path = self.below(path, list.len());
                    let start = next.1.start;
                    let (value, to) = self.value(next, &path, depth + 1)?;
                    self.record_span(&path, start..to, start..to);
                    list.push(value);
                    end = to;
                }
            }
            Event::MappingStart(..) => self.mapping(range.end, path, depth),
            _ => Err(YamlError { at: range.start, fault: "a value is missing here".to_owned() }),
        }
    }

    fn mapping(
        &mut self,
        mut end: usize,
        path: &str,
        depth: usize,
    ) -> Result<(Value, usize), YamlError> {
        let mut map = Map::new();
        loop {
            let (key, at) = match self.event()? {
                (Event::MappingEnd, at) => return Ok((Value::Object(map), end.max(at.start))),
                (Event::Scalar(key, ..), at) => (key.into_owned(), at),
                (_, at) => {
                    let fault = "a list or a mapping cannot be a key".to_owned();
                    return Err(YamlError { at: at.start, fault });
                }
            };
            let path = self.below(path, &key);
            let next = self.event()?;
            let start = next.1.start;
            let (value, to) = self.value(next, &path, depth + 1)?;
            self.record_span(&path, at.clone(), start..to);
            if map.contains_key(&key) {
                return Err(YamlError { at: at.start, fault: format!("duplicate key `{key}`") });
            }
            map.insert(key, value);
            end = to;
        }
    }

    /// Returns the path of a key below `path`; empty if positions are not recorded.
    fn below(&self, path: &str, key: impl std::fmt::Display) -> String {
        match (&self.spans, path) {
            (None, _) => String::new(),
            (_, "") => key.to_string(),
            (_, path) => format!("{path}.{key}"),
        }
    }

    fn document(&mut self) -> Result<Option<Document>, YamlError> {
        loop {
            match self.event()? {
                (Event::StreamEnd, _) => return Ok(None),
                (Event::DocumentStart(_), _) => break,
                _ => {}
            }
        }
        let first = self.event()?;
        let (value, _) = match first.0 {
            Event::DocumentEnd => (Value::Null, 0),
            _ => self.value(first, "", 0)?,
        };
        let spans = self.spans.as_mut().map(std::mem::take).unwrap_or_default();
        Ok(Some(Document { value, spans }))
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Document, YamlError>;

    fn next(&mut self) -> Option<Result<Document, YamlError>> {
        if self.done {
            return None;
        }
        let next = self.document().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Returns the line number, from 1, of a byte offset.
pub fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns the line number, from 1, of a field or of the nearest enclosing key. `document` is the
/// index of the document in the text, and `field` is a path like `spec.ports[0].port`. Parses the
/// text again.
pub fn line_of(text: &str, document: usize, field: &str) -> usize {
    let Some(Ok(document)) = Documents::with_spans(text).nth(document) else { return 1 };
    let path = field.replace('[', ".").replace(']', "");
    let mut at = path.trim_start_matches('.');
    loop {
        if let Some((key, _)) = document.spans.get(at) {
            return line(text, key.start);
        }
        match at.rsplit_once('.') {
            Some((parent, _)) => at = parent,
            None => break,
        }
    }
    let first = document.spans.values().map(|(key, _)| key.start).min();
    first.map_or(1, |first| line(text, first))
}

/// Returns the value of a plain scalar, which is written without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = match (digits.get(..2), digits.get(2..)) {
        (Some("0x"), Some(hex)) => i64::from_str_radix(hex, 16).ok(),
        (Some("0o"), Some(octal)) => i64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    };
    if let Some(number) = number {
        return number.into();
    }
    let is_float = digits.starts_with(|c: char| c == '.' || c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    match text.parse::<f64>() {
        Ok(float) if is_float => float.into(),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Vec<Value>, YamlError> {
        Documents::new(text).map(|document| Ok(document?.value)).collect()
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let text = "a: 1\nb: 0x1f\nc: -7\nd: yes\ne: True\nf: ~\ng: \"1\"\nh: 1.5\ni: 10.0.0.1\n\
                    j: 1e3\nk: [x, {y: z}]\nl: |\n  two\n  lines\nm:\nn: .inf\no: fd00::1\n";
        let expected = json!({"a": 1, "b": 31, "c": -7, "d": "yes", "e": true, "f": null, "g": "1",
            "h": 1.5, "i": "10.0.0.1", "j": 1000.0, "k": ["x", {"y": "z"}], "l": "two\nlines\n",
            "m": null, "n": ".inf", "o": "fd00::1"});
        assert_eq!(read(text).unwrap(), [expected]);
        assert_eq!(read("---\na: 1\n---\n# none\n---\nb: 2\n...\n").unwrap().len(), 3);
        assert_eq!(read("").unwrap(), [] as [Value; 0]);
    }

    #[test]
    fn spans_match_the_text() {
        let text = "ä: ö\nlist:\n- name: one\n  no: 1\n- name: two\n";
        let document = Documents::with_spans(text).next().unwrap().unwrap();
        let at = |path: &str| {
            let (key, value) = document.spans[path].clone();
            (&text[key], text[value].trim_end())
        };
        assert_eq!(at("ä"), ("ä", "ö"));
        assert_eq!(at("list.1.name"), ("name", "two"));
        assert_eq!(at("list.0").1, "name: one\n  no: 1");
        assert_eq!(line(text, document.spans["list.1.name"].0.start), 5);
    }

    #[test]
    fn reports_invalid_and_unsupported_yaml_with_position() {
        for (text, min_line, part) in [
            ("a: 1\na: 2\n", 2, "duplicate key `a`"),
            ("a: &x 1\nb: *x\n", 1, "anchors"),
            ("a: !!binary aGk=\n", 1, "tags"),
            ("? [a, b]\n: c\n", 1, "cannot be a key"),
            ("a: 1\n b: 2\n", 2, ""),
            ("a: [1, 2\nb: 3\n", 2, ""),
            (&"[".repeat(100), 1, ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.fault.contains(part), "{text:?}: {error}");
            assert!(line(text, error.at) >= min_line, "{text:?}: {error:?}");
        }
    }

    #[test]
    fn never_panics_on_mutated_text() {
        let text =
            "a: [1, {b: 'c'}]\nd: \"e\\n\"\nf: >-\n  g\n---\n- h: ~\n  i: 1.5e3\n# j\nk: &l *m\n";
        for i in 0..text.len() {
            let mut dropped = text.to_owned();
            dropped.remove(i);
            let mut swapped = text.to_owned();
            swapped.replace_range(i..=i, ["[", "{", "\"", ":", "\n", "- ", "ä", "|"][i % 8]);
            for text in [&dropped, &swapped, &text[..i]] {
                for document in Documents::with_spans(text) {
                    if let Err(error) = document {
                        assert!(error.at <= text.len() && line(text, error.at) > 0);
                    }
                }
            }
        }
    }
}
