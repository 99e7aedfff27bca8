//! Numbers, durations and foreign texts as the page shows them.

use std::fmt::Write;
use std::time::Duration;

/// Returns a number with three significant digits and a prefix of the SI: `1.25 M`.
pub fn scaled(value: f64) -> String {
    const PREFIXES: [(f64, &str); 5] =
        [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
    let rounded = |value: f64| match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    // 999.6 is 1.00 k, since it is rounded to 1000.
    let found = PREFIXES.iter().find(|(size, _)| value >= size * 0.9995);
    match found {
        Some((size, prefix)) => {
            let digits = rounded(value / size);
            let digits = match digits.contains('.') {
                true => digits.trim_end_matches('0').trim_end_matches('.'),
                false => digits.as_str(),
            };
            format!("{digits}{prefix}")
        }
        None if value > 0.0005 => {
            let digits = format!("{value:.3}");
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        None => "0".to_owned(),
    }
}

/// Returns a rate in this unit per second: `1.25 Mbit/s`.
pub fn per_second(value: f64, unit: &str) -> String {
    let number = scaled(value);
    match (number.contains(' '), unit) {
        (_, "") => format!("{number}/s"),
        (true, unit) => format!("{number}{unit}/s"),
        (false, unit) => format!("{number} {unit}/s"),
    }
}

/// Returns a rate of bytes in bits.
pub fn bits(bytes_per_second: f64) -> String {
    per_second(bytes_per_second * 8.0, "bit")
}

/// Returns a count with commas: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a duration in its two largest units: `3 d 4 h`, `12 s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Returns a short duration in milliseconds, or in seconds from one on: `12.3 ms`, `1.25 s`.
pub fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1000.0),
        seconds => format!("{seconds:.2} s"),
    }
}

/// Replaces characters that are not seen, or that change how others are seen, by their numbers:
/// `\u{202e}`. It is applied to the page as a whole, after all texts were escaped, so that no text
/// is left out.
///
/// Control characters but the line feed, line and paragraph separators, and all characters of the
/// general category *format* (`Cf`) of Unicode 16: bidi controls (UAX #9), zero-width ones, tags,
/// and the signs of scripts that enclose or join others.
pub fn visible(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    for c in html.chars() {
        match c {
            '\n' => text.push(c),
            _ if c.is_control() || is_format(c) => {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "\\u{{{:x}}}", u32::from(c));
            }
            _ => text.push(c),
        }
    }
    text
}

fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            // With the separators, U+2028 and U+2029.
            | '\u{2028}'..='\u{202e}'
            // U+2065 is not assigned.
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}'
            | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            // Tags; those between U+E0001 and U+E0020 are not assigned.
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_prefix() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (9.99, "9.99"),
            (9.996, "10"),
            (12.34, "12.3"),
            (123.4, "123"),
            (999.4, "999"),
            (999.6, "1 k"),
            (1_250.0, "1.25 k"),
            (99_960.0, "100 k"),
            (2.5e6, "2.5 M"),
            (3e9, "3 G"),
            (5e15, "5000 T"),
        ];
        for (value, text) in cases {
            assert_eq!(scaled(value), text, "{value}");
        }
        assert_eq!(per_second(1_250.0, "bit"), "1.25 kbit/s");
        assert_eq!(per_second(12.0, "bit"), "12 bit/s");
        assert_eq!((per_second(12.0, ""), bits(1e6)), ("12/s".into(), "8 Mbit/s".into()));
        assert_eq!((count(0), count(999)), ("0".into(), "999".into()));
        assert_eq!((count(1_000), count(12_345_678)), ("1,000".into(), "12,345,678".into()));
        assert_eq!((duration(7), duration(3_725)), ("7 s".into(), "1 h 2 min".into()));
        assert_eq!((duration(75), duration(187_200)), ("1 min 15 s".into(), "2 d 4 h".into()));
    }

    #[test]
    fn short_times_are_in_milliseconds() {
        let text = |micros| milliseconds(Duration::from_micros(micros));
        assert_eq!((text(12_340), text(999_000)), ("12.3 ms".into(), "999.0 ms".into()));
        assert_eq!(text(1_250_000), "1.25 s");
    }

    #[test]
    fn unseen_characters_become_visible() {
        assert_eq!(visible("a\u{202e}b\u{1b}[31m\u{0}"), "a\\u{202e}b\\u{1b}[31m\\u{0}");
        assert_eq!(visible("\u{200b}\u{feff}\u{9b}"), "\\u{200b}\\u{feff}\\u{9b}");
        // Ranges of the category Cf in DerivedGeneralCategory.txt of Unicode 16.
        let format = [
            (0xad, 0xad),
            (0x600, 0x605),
            (0x61c, 0x61c),
            (0x6dd, 0x6dd),
            (0x70f, 0x70f),
            (0x890, 0x891),
            (0x8e2, 0x8e2),
            (0x180e, 0x180e),
            (0x200b, 0x200f),
            (0x202a, 0x202e),
            (0x2060, 0x2064),
            (0x2066, 0x206f),
            (0xfeff, 0xfeff),
            (0xfff9, 0xfffb),
            (0x110bd, 0x110bd),
            (0x110cd, 0x110cd),
            (0x13430, 0x1343f),
            (0x1bca0, 0x1bca3),
            (0x1d173, 0x1d17a),
            (0xe0001, 0xe0001),
            (0xe0020, 0xe007f),
        ];
        for number in format.into_iter().flat_map(|(first, last)| first..=last) {
            let text = char::from_u32(number).unwrap().to_string();
            assert_eq!(visible(&text), format!("\\u{{{number:x}}}"));
        }
        assert_eq!(visible("\u{2028}\u{2029}"), "\\u{2028}\\u{2029}");
        assert_eq!(visible("line\nöäü שלום 漢字"), "line\nöäü שלום 漢字");
    }
}
