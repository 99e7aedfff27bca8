//! Sparklines, as SVG within the page.

use maud::{Markup, html};

use crate::page::history::POINTS;
use crate::page::view::Points;

/// Height of a sparkline in units of its own.
const HEIGHT: f32 = 20.0;

/// Returns the highest value; `None` if there is none yet.
pub(super) fn peak(points: &Points) -> Option<f64> {
    points.iter().flatten().copied().reduce(f32::max).map(f64::from)
}

/// Draws the points from 0 to their maximum. `text` formats a value for the description.
pub(super) fn spark(points: &Points, text: &dyn Fn(f64) -> String) -> Markup {
    let known = || points.iter().flatten().copied();
    let (Some(now), peak) = (known().last(), known().fold(0.0, f32::max)) else {
        return html! { svg.spark role="img" aria-label="no values yet" {} };
    };
    let label = format!("now {}, peak {}", text(now.into()), text(peak.into()));
    let height = |value: f32| {
        // A unit remains for the width of the line.
        let share = if peak > 0.0 { value / peak } else { 0.0 };
        HEIGHT - 1.0 - (share * (HEIGHT - 2.0)).round()
    };
    let mut line = String::new();
    let mut first = None;
    for (x, value) in points.iter().enumerate() {
        let Some(value) = value else { continue };
        first.get_or_insert(x);
        line += &format!("{x} {} ", height(*value));
    }
    let (first, last) = (first.unwrap_or_default(), POINTS - 1);
    let area = format!("M{first} {HEIGHT} L{line}{last} {HEIGHT}Z");
    html! {
        svg.spark viewBox={ "0 0 " (last) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label=(label) {
            title { (label) }
            path.area d=(area) {}
            polyline.line points=(line.trim_end()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_begins_with_the_first_value_and_has_a_description() {
        let mut points = [None; POINTS];
        let empty = spark(&points, &|_| String::new()).into_string();
        assert!(empty.contains("no values yet") && !empty.contains("polyline"), "{empty}");
        points[57..].copy_from_slice(&[Some(0.0), Some(8.0), Some(4.0)]);
        let svg = spark(&points, &|value| format!("{value}")).into_string();
        assert!(svg.contains("points=\"57 19 58 1 59 10\""), "{svg}");
        assert!(svg.contains("aria-label=\"now 4, peak 8\""), "{svg}");
        assert_eq!((peak(&points), peak(&[None; POINTS])), (Some(8.0), None));
        assert!(svg.contains("d=\"M57 20 L57 19 58 1 59 10 59 20Z\""), "{svg}");
        let flat = spark(&[Some(0.0); POINTS], &|_| String::new()).into_string();
        assert!(flat.contains("0 19 1 19") && !flat.contains("NaN"), "{flat}");
    }
}
