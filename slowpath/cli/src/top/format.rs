//! Short numbers and times for narrow columns.

/// Formats a number with at most three significant digits and a decimal prefix, in at most five
/// characters: `0`, `0.3`, `12`, `999`, `1.23k`, `45.6M`.
pub fn short(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if !value.is_finite() {
        return "-".to_owned();
    }
    match value.max(0.0) {
        value if value < 0.05 => return "0".to_owned(),
        value if value < 9.95 && (value - value.round()).abs() >= 0.05 => {
            return format!("{value:.1}");
        }
        value if value < 999.5 => return format!("{value:.0}"),
        _ => {}
    }
    let (mut value, mut prefix) = (value / 1000.0, 0);
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let prefix = PREFIXES[prefix];
    match value {
        value if value < 9.995 => format!("{value:.2}{prefix}"),
        value if value < 99.95 => format!("{value:.1}{prefix}"),
        value => format!("{value:.0}{prefix}"),
    }
}

/// Formats a count: exact below 100,000, otherwise as [`short`].
pub fn short_count(count: u64) -> String {
    if count < 100_000 { count.to_string() } else { short(count as f64) }
}

/// Formats a rate; `-` if it is not known.
pub fn short_rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), short)
}

/// Formats seconds with one unit: `42 s`, `3 min`, `2 h`, `4 d`.
pub fn short_span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_five_characters() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (0.3, "0.3"),
            (7.0, "7"),
            (9.97, "10"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (999_499.0, "999k"),
            (999_700.0, "1.00M"),
            (4.56e7, "45.6M"),
            (f64::NAN, "-"),
            (-3.0, "0"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
        let mut value = 0.001;
        while value < 1.8e19 {
            assert!(short(value).len() <= 5, "{value}: {}", short(value));
            value *= 1.37;
        }
        assert_eq!((short_count(99_999), short_count(100_000)), ("99999".into(), "100k".into()));
        assert_eq!(short_count(u64::MAX), "18.4E");
        assert_eq!((short_rate(None), short_rate(Some(1500.0))), ("-".into(), "1.50k".into()));
    }

    #[test]
    fn times_have_one_unit() {
        let all = [59, 60, 7200, 200_000].map(short_span);
        assert_eq!(all, ["59 s", "1 min", "2 h", "2 d"]);
    }
}
