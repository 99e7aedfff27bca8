//! Parts that several sections have.

use maud::{Markup, html};

/// A table in a box of its own, which scrolls if the table is wider than the screen.
pub(super) fn table(id: &str, label: &str, heads: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll id=(id) role="region" aria-label=(label) tabindex="0" {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// A text with a mark of its color: `good`, `bad` or `plain`. The color is never the only sign.
pub(super) fn badge(class: &str, text: &str) -> Markup {
    html! { span.badge.(class) { (text) } }
}
