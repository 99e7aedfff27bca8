//! Parts that several sections have.

use maud::{Markup, html};

/// Head of a column: of texts, or of numbers, which are aligned on the right.
pub(super) enum Head {
    Text(&'static str),
    Number(&'static str),
}

/// A table in a box of its own, which scrolls if the table is wider than the screen.
pub(super) fn table(id: &str, label: &str, heads: &[Head], rows: &Markup) -> Markup {
    html! {
        div.scroll id=(id) role="region" aria-label=(label) tabindex="0" {
            table {
                thead {
                    tr {
                        @for head in heads {
                            @match head {
                                Head::Text(head) => th scope="col" { (head) },
                                Head::Number(head) => th.number scope="col" { (head) },
                            }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// A text with a mark of its color: `good`, `bad` or `plain`. The color is never the only sign.
pub(super) fn badge(class: &str, text: &str) -> Markup {
    html! { span.badge.(class) { (text) } }
}
