//! Tests of the drawn pages: escaping of hostile texts, and what a page has in each state.

use std::time::Duration;

use clouds::report::{Peer, Report, ReportedFinding};

use super::*;
use crate::control::report::{
    BackendReport, FlowReport, HeldSource, Lcore, Link, NicReport, ServiceReport, Status,
};
use crate::page::view::{DropRow, SHOWN_BACKENDS, ServiceRow};

/// Texts that break out of text, of an attribute, of a script or of a terminal, or that change how
/// others look.
const HOSTILE: [&str; 6] = [
    "<script>document.title='owned'</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title></style></textarea><!--",
    "\u{1b}[31mred\u{1b}[0m\u{7}\r",
    "user\u{202e}gpj.exe\u{2066}\u{200b}",
];

/// Returns a view in which each text is hostile.
fn hostile(text: &str) -> View {
    let text = || text.to_owned();
    let backend = BackendReport {
        address: text(),
        state: text(),
        mac: Some(text()),
        ..BackendReport::default()
    };
    let service = ServiceReport {
        name: text(),
        mode: text(),
        tunnel: text(),
        frontends: vec![text()],
        backends: vec![backend],
        ..ServiceReport::default()
    };
    let nic = NicReport {
        arm: text(),
        port: text(),
        driver: text(),
        state: text(),
        detail: text(),
        ..NicReport::default()
    };
    let lcore = Lcore { links: vec![Link { arm: text(), ..Link::default() }], ..Lcore::default() };
    let change = ChangeRow {
        time: text(),
        who: text(),
        call: text(),
        objects: vec![text()],
        reason: text(),
        in_force: InForce::Not(text()),
        ..ChangeRow::default()
    };
    let drop = DropRow { arm: text(), reason: text(), help: text(), ..DropRow::default() };
    let finding = ReportedFinding { name: text(), text: text(), remedy: text(), times: 1 };
    let peer = Peer { id: text(), state: text(), zone: text(), address: None };
    let cloud = Report {
        cloud: text(),
        phase: text(),
        error: text(),
        instance: text(),
        region: text(),
        zone: text(),
        group: text(),
        target: text(),
        state: text(),
        reason: text(),
        findings: vec![finding],
        peers: vec![peer],
        ..Report::default()
    };
    let status = Status {
        name: text(),
        version: text(),
        reasons: vec![text()],
        findings: vec![text()],
        held: vec![HeldSource { source: text(), message: text() }],
        bgp: text(),
        nics: vec![nic],
        ..Status::default()
    };
    View {
        user: text(),
        time: text(),
        status,
        service_filter: text(),
        service_counts: (1, 1),
        services: vec![ServiceRow { report: service, ..ServiceRow::default() }],
        drops: vec![drop],
        lcores: vec![(lcore, None)],
        changes: vec![change],
        changes_error: Some(text()),
        cloud,
        ..View::default()
    }
}

/// Returns all pages with this text wherever a text can be.
fn pages(text: &str) -> Vec<String> {
    let view = hostile(text);
    let flow = FlowReport {
        kind: text.to_owned(),
        protocol: text.to_owned(),
        client: text.to_owned(),
        frontend: text.to_owned(),
        service: text.to_owned(),
        backend: text.to_owned(),
        gateway: text.to_owned(),
        node: text.to_owned(),
        state: text.to_owned(),
        ..FlowReport::default()
    };
    let fields = || std::array::from_fn(|_| text.to_owned());
    let found = Ok(FlowPage { flows: vec![flow], ..FlowPage::default() });
    let found = FlowSearch { fields: fields(), found: Some(found) };
    let wrong = FlowSearch { fields: fields(), found: Some(Err(text.to_owned())) };
    vec![
        page(&view),
        fragment(&view),
        flow_page((text, text), &found),
        flow_page((text, text), &wrong),
        login(Some(text)),
        failure(text),
    ]
}

/// Returns the tags of a page with the names of their attributes, without values and texts.
fn structure(html: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let (mut tag, mut is_quoted, mut end) = (String::new(), false, rest.len());
        for (at, c) in rest.char_indices() {
            match c {
                '"' => is_quoted = !is_quoted,
                '>' if !is_quoted => {
                    end = at;
                    break;
                }
                _ if !is_quoted => tag.push(c),
                _ => {}
            }
        }
        tags.push(tag);
        rest = &rest[end..];
    }
    tags
}

#[test]
fn hostile_texts_add_no_tag_and_no_attribute() {
    let harmless: Vec<Vec<String>> = pages("x").iter().map(|page| structure(page)).collect();
    assert!(harmless[0].len() > 100, "the page has its sections: {}", harmless[0].len());
    for text in HOSTILE {
        for (page, expected) in pages(text).iter().zip(&harmless) {
            assert_eq!(&structure(page), expected, "{text:?}");
            let unseen =
                |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2066}\u{200b}".contains(c);
            assert!(!page.contains(unseen), "{text:?}: {page}");
        }
    }
    // The texts are shown, not removed.
    let [_, _, _, _, ansi, bidi] = HOSTILE.map(|text| page(&hostile(text)));
    assert!(ansi.contains("\\u{1b}[31mred") && bidi.contains("user\\u{202e}gpj.exe"));
    let script = page(&hostile(HOSTILE[0]));
    assert!(script.contains("&lt;script&gt;document.title='owned'&lt;/script&gt;"));
}

#[test]
fn the_page_says_why_the_appliance_is_not_able() {
    let status = Status { reasons: vec!["no lcore polls".to_owned()], ..Status::default() };
    let text = page(&View { status, ..View::default() });
    for part in ["not able", "<li>no lcore polls</li>", "No lcore has joined", "No packet was"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let able =
        page(&View { status: Status { able: true, ..Status::default() }, ..View::default() });
    assert!(able.contains(">able</span> New traffic is accepted") && !able.contains("not able"));
}

#[test]
fn unknown_rates_and_what_is_left_out_are_shown() {
    let report = ServiceReport {
        frontends: vec!["192.0.2.1:80/tcp".to_owned()],
        backends: vec![BackendReport::default(); SHOWN_BACKENDS + 7],
        ..ServiceReport::default()
    };
    let unknown = ServiceRow { report, more_frontends: 3, ..ServiceRow::default() };
    let idle = ServiceRow { rates: Some([0.0; 4]), ..ServiceRow::default() };
    let view = View {
        services: vec![unknown],
        service_counts: (1, 1),
        drops: vec![DropRow::default()],
        more_drops: 2,
        others: Some([1e6, 9.0, 5.0, 7.0]),
        ..View::default()
    };
    let text = page(&view);
    for part in [
        "<b>–</b>",
        "<dt>Packets</dt><dd>–</dd>",
        "<td class=\"number\">–</td>",
        "and 3 more",
        "and 7 more; <code>weir services</code>",
        "and 2 more; <code>weir drops</code>",
        "(others), all services without counters of their own: 8 Mbit/s, 9/s packets, 5/s new",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = page(&View { services: vec![idle], service_counts: (1, 1), ..View::default() });
    assert!(text.contains("<b>0 bit/s</b>") && text.contains("<dt>Packets</dt><dd>0/s</dd>"));
    assert!(!text.contains("(others)") && !text.contains(" more"), "{text}");
}

#[test]
fn changes_have_the_time_until_in_force() {
    let row = |in_force| ChangeRow {
        outcome: "done",
        objects: vec!["services/shop/web".to_owned()],
        in_force,
        ..ChangeRow::default()
    };
    let changes = vec![
        row(InForce::After(Duration::from_micros(12_340))),
        row(InForce::Pending),
        row(InForce::Not("shadowed".to_owned())),
    ];
    let text = page(&View { changes, ..View::default() });
    for part in ["12.3 ms", ">pending<", "not in force</span> shadowed", "services/shop/web"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for page in pages("x") {
        for tag in structure(&page) {
            let attributes = tag.split([' ', '=']).skip(1);
            let is_inline = |name: &str| name == "style" || name.starts_with("on");
            assert!(!attributes.clone().any(is_inline), "{tag}");
            assert_ne!(tag, "script", "{page}");
            assert!(!tag.starts_with("style") && !tag.starts_with("iframe"), "{tag}");
        }
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "{page}");
        assert!(!page.contains("javascript:"), "{page}");
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    assert!(!SCRIPT.contains("innerHTML = ") && !SCRIPT.contains("eval("));
    // The only values that are not escaped are constants of the templates' library.
    let sources = [
        include_str!("../render.rs"),
        include_str!("services.rs"),
        include_str!("network.rs"),
        include_str!("parts.rs"),
        include_str!("spark.rs"),
    ];
    assert!(sources.iter().all(|source| !source.contains(concat!("Pre", "Escaped"))));
}
