//! Tests of the live view on a terminal in memory: every view, sizes, colors, keys and failures.

use std::time::{Duration, Instant};

use ::health::report::Row as Check;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use serde_json::json;
use slowpath::control::report::*;

use super::app::{Action, App};
use super::draw::draw;
use super::has_cursor;
use super::page::{Kind, View};
use super::sample::{Extra, MAX_LISTED, Query, Sample, Source};
use super::theme::Theme;

const COLOR: Theme = Theme { color: true, unicode: true };
const MONOCHROME: Theme = Theme { color: false, unicode: false };

/// Counters after this many seconds of constant traffic.
fn sample(start: Instant, second: u64) -> Sample {
    let backend = |id: u32, name: &str, rate: u64| BackendReport {
        id,
        address: name.into(),
        port: 8080,
        state: if id == 3 { "terminating" } else { "active" }.into(),
        weight: 100,
        share: 0.5,
        packets: 1_000_000 + rate * second,
        bytes: 9_000_000 + rate * second * 500,
        new_flows: 1000 + second * 10,
        flows: 40,
        mac: Some("02:00:00:00:00:0b".into()),
        ..BackendReport::default()
    };
    let service = |name: &str, rate: u64, backends| ServiceReport {
        name: name.into(),
        mode: "nat".into(),
        frontends: vec!["203.0.113.10:80/tcp".into(), "[2001:db8::10]:80/tcp".into()],
        packets: 2_000_000 + rate * second,
        bytes: 30_000_000 + rate * second * 500,
        new_flows: 2000 + second * 20,
        flows: 80,
        drops: second * 2,
        backends,
        ..ServiceReport::default()
    };
    let services = vec![
        service("shop/quiet", 10, vec![backend(4, "10.0.3.11", 10)]),
        service(
            "shop/web",
            9000,
            vec![
                backend(1, "10.0.2.11", 6000),
                backend(2, "10.0.2.12", 2000),
                backend(3, "10.0.2.13", 1000),
            ],
        ),
    ];
    let drop = |arm: &str, reason: &str, packets, help: &str| DropReport {
        arm: arm.into(),
        reason: reason.into(),
        packets,
        help: help.into(),
    };
    let link = |arm: &str| Link { arm: arm.into(), up: true, share: Some(0.5) };
    let lcore = |id, busy| Lcore {
        id,
        polling: true,
        acknowledged: 7,
        busy,
        links: vec![link("ingress"), link("egress")],
        ..Lcore::default()
    };
    let nic = |arm: &str, rate: u64| NicReport {
        arm: arm.into(),
        port: "0000:00:06.0".into(),
        driver: "net_ena".into(),
        state: "running".into(),
        link_up: true,
        speed_mbps: 10_000,
        mac: "02:00:00:00:00:01".into(),
        rx_queues: 2,
        arrived: rate * second + 5,
        taken: rate * second,
        counters: [("missed_packets", second), ("received_bytes", rate * second * 500)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        driver_counters: [
            ("rx_q0_packets", rate * second / 2),
            ("rx_q1_packets", rate * second / 2),
            ("rx_q1_bytes", rate * second * 250),
            ("rx_q1_errors", 0),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        ..NicReport::default()
    };
    let status = Status {
        name: "weir-1".into(),
        uptime_s: 185 + second,
        able: true,
        ready: true,
        cloud: "aws: ready, 10.0.1.11 is healthy".into(),
        bgp: "1 of 2 sessions established".into(),
        generation: 7,
        acknowledged: 7,
        lcores: vec![lcore(0, 0.25), lcore(1, 0.5)],
        next_hops: NextHopStatus { needed: 3, known: 3, error: None },
        flows: Use { used: 1200, max: 65_536 },
        frontends: Frontends { done: 2, ..Frontends::default() },
        services: 2,
        backends: 4,
        ..Status::default()
    };
    Sample {
        at: start + Duration::from_secs(second),
        took: Duration::from_millis(20),
        status,
        services,
        drops: vec![
            drop("ingress", "no_route", 3 * second, "No route to the next hop: add one."),
            drop("egress", "no_flow", 70, "No flow."),
            drop("egress", "malformed", 0, "Malformed."),
        ],
        nics: vec![nic("ingress", 9010), nic("egress", 9010)],
        caption: String::new(),
    }
}

fn flow(path: u32) -> FlowReport {
    FlowReport {
        path,
        kind: "nat".into(),
        protocol: "tcp".into(),
        client: format!("192.0.2.{}:{}", path % 250, 40_000 + path),
        frontend: "203.0.113.10:80".into(),
        service: "shop/web".into(),
        backend: "10.0.2.11:8080".into(),
        source: "10.0.2.10:2000".into(),
        gateway: "aws".into(),
        node: "10.0.1.5".into(),
        state: "established".into(),
        idle_s: path,
    }
}

/// The response that slowpath would give to any query.
fn extra() -> Extra {
    let peer = |peer: &str, state: &str, uptime: Option<f64>| {
        json!({ "node": "weir-1", "local_asn": 64_512, "peer_asn": 65_001, "peer": peer,
            "state": state, "uptime_s": uptime, "family": "ipv4-unicast", "received": 0,
            "advertised": 2 })
    };
    let peers = json!([
        peer("192.0.2.253:179", "established", Some(61.0)),
        peer("192.0.2.254:179", "idle", None)
    ]);
    let route = json!({ "node": "weir-1", "router": 64_512, "peer": "192.0.2.253:179",
        "prefix": "203.0.113.10/32", "next_hop": "10.0.1.10", "age_s": 5.0,
        "attributes": "origin IGP" });
    let neighbor = json!({ "peer": "192.0.2.253:179", "peer_asn": 65_001, "local_asn": 64_512,
        "router_id": "192.0.2.10", "state": "established", "since_s": 61.0, "connection": null,
        "families": [{ "family": "ipv4-unicast", "agreed": false }], "flaps": 2, "refused": 0,
        "last_sent": null, "last_received": null, "last_lost": null, "error": null,
        "bfd": { "up": true } });
    let check = |backend: &str, state: &str, result: &str| Check {
        service: "shop/web".into(),
        backend: format!("{backend}:8080/TCP"),
        state: state.into(),
        since_s: Some(30),
        last: "good".into(),
        result: result.into(),
        took_ms: Some(3),
        ..Check::default()
    };
    Extra {
        checks: vec![
            check("10.0.2.11", "healthy", "200 OK"),
            check("10.0.2.12", "unhealthy", "connection refused"),
        ],
        flows: FlowPage {
            flows: (1..4).map(flow).collect(),
            next: Some(4),
            total: Use { used: 1200, max: 65_536 },
        },
        bgp: serde_json::from_value(json!({ "node": "weir-1", "policies": 1, "policy": "edge",
            "routers": [64_512], "neighbors": 2, "established": 1, "error": "" }))
        .unwrap(),
        peers: serde_json::from_value(peers).unwrap(),
        neighbor: json!({ "peers": [neighbor], "listeners": [], "bfd_error": null }),
        routes: serde_json::from_value(json!([route])).unwrap(),
        all_routes: 1,
        cloud: clouds::report::Report {
            cloud: "aws".into(),
            phase: "ready".into(),
            ready: true,
            instance: "i-1".into(),
            zone: "eu-central-1a".into(),
            group: "arn:group".into(),
            target: "10.0.1.11".into(),
            state: "healthy".into(),
            peers: vec![clouds::report::Peer {
                id: "10.0.1.11".into(),
                address: "10.0.1.11".parse().ok(),
                state: "healthy".into(),
                zone: "eu-central-1a".into(),
            }],
            ..clouds::report::Report::default()
        },
    }
}

/// A live view on a terminal in memory.
struct Screen {
    app: App,
    terminal: Terminal<TestBackend>,
    start: Instant,
}

impl Screen {
    /// Starts with two samples, one second apart.
    fn new(theme: Theme, (width, height): (u16, u16)) -> Screen {
        let start = Instant::now();
        let mut screen = Screen::with(theme, (width, height), start, sample(start, 0));
        screen.second(1);
        screen
    }

    fn with(theme: Theme, size: (u16, u16), start: Instant, first: Sample) -> Screen {
        let app = App::new(theme, first, View::Overview, Duration::from_secs(1));
        let terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        Screen { app, terminal, start }
    }

    /// Takes the sample of a second.
    fn second(&mut self, second: u64) {
        self.app.now = self.start + Duration::from_secs(second);
        self.app.accept(Ok(sample(self.start, second)));
    }

    /// Draws, after slowpath has responded to the page's query; returns the text.
    fn draw(&mut self) -> String {
        let query = self.app.query();
        if self.app.data.extra(&query).is_none() {
            self.app.accept_extra(query, Ok(extra()));
        }
        self.draw_without_response()
    }

    fn draw_without_response(&mut self) -> String {
        self.terminal.draw(|frame| draw(frame, &mut self.app)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(buffer.area().width).max(1));
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            text.trim_end().to_owned()
        };
        lines.map(line).collect::<Vec<_>>().join("\n")
    }

    /// Presses keys: one for each character, `\n` for Enter, `\x1b` for Esc.
    fn press(&mut self, keys: &str) -> Action {
        let mut action = Action::Continue;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                '\t' => KeyCode::Tab,
                c => KeyCode::Char(c),
            };
            action = self.code(code);
        }
        action
    }

    fn code(&mut self, code: KeyCode) -> Action {
        self.app.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn control(&mut self, c: char) -> Action {
        self.app.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
    }

    /// Presses keys, draws, and returns the text.
    fn after(&mut self, keys: &str) -> String {
        self.press(keys);
        self.draw()
    }

    /// Returns the first line that contains a text.
    fn line(&mut self, part: &str) -> String {
        let text = self.draw();
        let line = text.lines().find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("no {part:?} in\n{text}")).to_owned()
    }
}

/// Keys that show each page, with texts that it contains.
const PAGES: &[(&str, &[&str])] = &[
    ("1", &["able to serve", "traffic", "9.01k packets/s", "shop/web", "lcores", "aws: ready"]),
    ("2", &["SERVICE", "shop/web", "9.00k", "36.0M", "2/3"]),
    ("2\n", &["services > shop/web", "203.0.113.10:80/tcp", "10.0.2.11:8080", "unhealthy"]),
    ("2\n\n", &["shop/web > 10.0.2.11:8080", "200 OK", "192.0.2.1:40001", "established"]),
    ("2\n\n\n", &["> tcp 192.0.2.1:40001", "10.0.2.10:2000", "weir trace --client 192.0.2.1"]),
    ("3", &["10.0.2.13:8080", "terminating", "healthy", "6.00k"]),
    ("4", &["192.0.2.3:40003", "203.0.113.10:80", "the first 500 that match; 1 200 of 65 536"]),
    ("5", &["no_route", "3", "egress", "missed_packets", "1 reasons without drops", "No route"]),
    ("5\n", &["drops > ingress no_route", "3/s", "add one."]),
    ("6", &["lcore 0", "25 %", "ingress NIC", "9.01k", "ingress rx 1", "queue"]),
    ("6\n", &["lcores > lcore 0", "7 of 7", "50.0 % of the NIC's packets"]),
    ("6jj\n", &["lcores > ingress NIC", "10000 Mbit/s", "missed_packets", "rx_q0_packets"]),
    ("7", &["1 of 2 established", "192.0.2.253:179", "Established", "Idle", "ADVERTISED"]),
    ("7\n", &["bgp > 192.0.2.253:179", "203.0.113.10/32", "10.0.1.10", "flaps"]),
    ("8", &["the cloud may send traffic", "i-1 in eu-central-1a", "this machine"]),
    ("?", &["Ctrl-L", "client=, frontend=", "quit"]),
];

#[test]
fn every_page_is_drawn_on_small_and_large_terminals() {
    for theme in [COLOR, MONOCHROME] {
        for size in [(80, 24), (200, 50)] {
            for (keys, texts) in PAGES {
                let mut screen = Screen::new(theme, size);
                screen.press("1");
                let mut text = String::new();
                for key in keys.chars() {
                    text = screen.after(&key.to_string());
                }
                for expected in *texts {
                    assert!(text.contains(expected), "{keys:?} {size:?}: no {expected:?}\n{text}");
                }
                let last = text.lines().last().unwrap_or_default();
                assert!(last.contains("Enter details") && last.contains("q quit"), "{text}");
            }
        }
    }
}

#[test]
fn the_overview_fits_into_80_columns() {
    let mut screen = Screen::new(MONOCHROME, (80, 24));
    let expected = "\
weir-1  able to serve  up 3 min 6 s, generation 7                      every 1 s
1 overview  2 services  3 backends  4 flows  5 drops  6 lcores  7 bgp  8 cloud

traffic  9.01k packets/s, 36.0 Mbit/s                                         #
flows    40/s new; 1 200 of 65 536 in use (2 %)                               #
drops    3/s: ingress no_route 3                                              #
lcores   busy 25 %, 50 %                                                     ##
ingress  net_ena up; 9.01k packets/s taken, -/s lost                          #
egress   net_ena up; 9.01k packets/s taken, -/s lost                          #
state    generation 7; 2 services, 4 backends; 2 frontends done; next hops 3/3
cloud    aws: ready, 10.0.1.11 is healthy
bgp      1 of 2 sessions established

SERVICE UP FLOWS NEW/S PKT/Sv BIT/S DROP/S HISTORY
shop/web 2/3 80 20 9.00k 36.0M 2 #
shop/quiet 1/1 80 20 10 40.0k 2 #
";
    let text = screen.draw();
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let shown = lines(&text);
    for (line, expected) in shown.iter().zip(&lines(expected)) {
        assert_eq!(line, expected, "\n{text}");
    }
}

#[test]
fn monochrome_terminals_get_no_color_and_no_other_characters_than_ascii() {
    for (keys, _) in PAGES {
        let mut screen = Screen::new(MONOCHROME, (200, 50));
        screen.app.accept(Err("gone".into()));
        for key in keys.chars() {
            screen.after(&key.to_string());
        }
        for cell in screen.terminal.backend().buffer().content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{keys:?}: {cell:?}");
            assert!(cell.symbol().is_ascii(), "{keys:?}: {cell:?}");
        }
    }
    // The same page with colors has some, and the selected row is reversed on both.
    for (theme, colored) in [(COLOR, true), (MONOCHROME, false)] {
        let mut screen = Screen::new(theme, (80, 24));
        screen.after("3");
        let cells = screen.terminal.backend().buffer().content();
        assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset), colored);
        let reversed = cells.iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED));
        assert!(reversed.count() >= 80, "{theme:?}");
    }
}

#[test]
fn an_empty_appliance_shows_what_is_missing() {
    let start = Instant::now();
    let empty = || Sample {
        at: start,
        took: Duration::ZERO,
        status: Status { reasons: vec!["no lcore polls".into()], ..Status::default() },
        services: Vec::new(),
        drops: Vec::new(),
        nics: Vec::new(),
        caption: String::new(),
    };
    for size in [(80, 24), (200, 50)] {
        for (keys, expected) in [
            ("1", "no lcore polls"),
            ("1", "the data plane is not running"),
            ("2", "no services; `weir status`"),
            ("3", "no backends"),
            ("4", "no flows"),
            ("5", "nothing was dropped"),
            ("6", "the data plane is not running"),
            ("7", "none of 0 policies selects this appliance"),
            ("8", "no section [aws] or [azure]"),
        ] {
            let mut screen = Screen::with(COLOR, size, start, empty());
            screen.press(keys);
            let query = screen.app.query();
            screen.app.accept_extra(query, Ok(Extra::default()));
            let text = screen.draw_without_response();
            assert!(text.contains(expected), "{keys}: no {expected:?}\n{text}");
            assert!(text.contains("UNABLE to serve"), "{text}");
            // Keys have nothing to act on.
            screen.press("jkGg\nsSsS/x\n\x1b\x1bp");
            screen.draw_without_response();
        }
    }
}

#[test]
fn thousands_of_services_are_sorted_filtered_and_scrolled() {
    let start = Instant::now();
    let many = |second: u64| {
        let mut sample = sample(start, second);
        let (prototype, backends) =
            (sample.services[0].clone(), sample.services[1].backends.clone());
        sample.services = (0..5000_u64)
            .map(|n| ServiceReport {
                name: format!("team-{}/service-{n}", n % 7),
                packets: n * second,
                backends: backends
                    .iter()
                    .map(|backend| BackendReport {
                        id: n as u32 * 3 + backend.id,
                        packets: n * second,
                        ..backend.clone()
                    })
                    .collect(),
                ..prototype.clone()
            })
            .collect();
        sample
    };
    let mut screen = Screen::with(COLOR, (80, 24), start, many(0));
    for second in 1..=3 {
        screen.app.accept(Ok(many(second)));
        screen.after("2");
    }
    let text = screen.draw();
    assert!(text.contains("service-4999") && text.contains("1 of 5 000"), "{text}");
    screen.code(KeyCode::PageDown);
    screen.code(KeyCode::Down);
    let text = screen.draw();
    assert!(text.contains("of 5 000") && !text.contains("service-4999 "), "{text}");
    let text = screen.after("G");
    assert!(text.contains("5 000 of 5 000") && text.contains("service-0 "), "{text}");
    let text = screen.after("/TEAM-3/ service-77");
    assert!(text.contains("filter: TEAM-3/ service-77"), "{text}");
    assert!(text.contains("team-3/service-773") && text.contains("1 of 1"), "{text}");
    let text = screen.after("\n3");
    assert!(text.contains("1 of 15 000"), "{text}");
    screen.press("G");
    let text = screen.draw();
    assert!(text.contains("15 000 of 15 000"), "{text}");
}

#[test]
fn hostile_and_long_names_cannot_control_the_terminal() {
    let start = Instant::now();
    let evil = |n: usize| {
        let text = format!("\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}txt\u{200b}\r\n\tZ͑ͫ̓ͪ̂{n} 界🦀");
        text + &"x".repeat(10_000)
    };
    let hostile = || {
        let mut sample = sample(start, 1);
        sample.caption = evil(1);
        let status = &mut sample.status;
        (status.name, status.cloud, status.bgp) = (evil(2), evil(3), evil(4));
        (status.reasons, status.findings) = (vec![evil(5)], vec![evil(6); 9]);
        status.next_hops.error = Some(evil(7));
        status.config_file.error = Some(evil(8));
        for lcore in &mut status.lcores {
            lcore.links[0].arm = evil(9);
        }
        for service in &mut sample.services {
            (service.name, service.mode, service.tunnel) = (evil(10), evil(11), evil(12));
            service.frontends = vec![evil(13); 20];
            for backend in &mut service.backends {
                (backend.address, backend.state) = (evil(14), evil(15));
                backend.mac = Some(evil(16));
            }
        }
        for drop in &mut sample.drops {
            (drop.arm, drop.reason, drop.help) = (evil(17), evil(18), evil(19));
        }
        for nic in &mut sample.nics {
            (nic.arm, nic.port, nic.driver) = (evil(20), evil(21), evil(22));
            (nic.state, nic.detail, nic.mac) = (evil(23), evil(24), evil(25));
            nic.counters.insert(evil(26), 3);
            nic.driver_counters.insert(evil(27), 3);
        }
        sample
    };
    let mut response = extra();
    for flow in &mut response.flows.flows {
        (flow.client, flow.frontend, flow.service) = (evil(30), evil(31), evil(32));
        (flow.backend, flow.state, flow.gateway) = (evil(33), evil(34), evil(35));
    }
    for check in &mut response.checks {
        (check.state, check.result) = (evil(36), evil(37));
    }
    (response.cloud.group, response.cloud.error) = (evil(38), evil(39));
    response.cloud.peers[0].id = evil(40);
    response.bgp.error = evil(41);
    response.routes[0].attributes = evil(42);
    response.neighbor["peers"][0]["error"] = evil(43).into();
    for theme in [COLOR, MONOCHROME] {
        for size in [(80, 24), (200, 50)] {
            for (keys, _) in PAGES {
                let mut screen = Screen::with(theme, size, start, hostile());
                screen.app.accept(Ok(hostile()));
                for failure in [false, true] {
                    if failure {
                        screen.app.accept(Err(evil(50)));
                    }
                    for key in keys.chars() {
                        screen.press(&key.to_string());
                        let query = screen.app.query();
                        screen.app.accept_extra(query, Ok(response.clone()));
                        screen.draw_without_response();
                    }
                    for cell in screen.terminal.backend().buffer().content() {
                        let symbol = cell.symbol();
                        let unsafe_one = |c: char| {
                            c.is_control()
                                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
                        };
                        assert!(!symbol.contains(unsafe_one), "{keys:?}: {symbol:?}");
                        assert!(theme.unicode || symbol.is_ascii(), "{keys:?}: {symbol:?}");
                    }
                }
            }
        }
    }
    // What the operator types is text as well.
    let mut screen = Screen::new(COLOR, (80, 24));
    let text = screen.after("/\u{9b}31m\x07");
    assert!(!text.contains('\u{9b}') && !text.contains('\x07') && text.contains("31m"), "{text}");
}

#[test]
fn data_and_their_age_are_shown_while_slowpath_does_not_respond() {
    let mut screen = Screen::new(COLOR, (120, 24));
    screen.second(2);
    let before = screen.after("2");
    screen.app.now = screen.start + Duration::from_secs(14);
    screen.app.accept(Err("no slowpath listens on /run/weir/control.sock".into()));
    let text = screen.draw();
    let message = "data of 12 s ago: no slowpath listens on /run/weir/control.sock";
    assert!(text.contains(message), "{text}");
    let table = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(table(&text), table(&before));
    // Other views still have their data, and the age grows.
    screen.app.now += Duration::from_secs(60);
    let text = screen.after("6");
    assert!(text.contains("data of 1 min 12 s ago") && text.contains("lcore 1"), "{text}");
    // A view without a response shows that it waits for it.
    screen.press("7");
    let query = screen.app.query();
    screen.app.accept_extra(query, Err("no slowpath listens".into()));
    let text = screen.draw_without_response();
    assert!(text.contains("waiting for slowpath's response"), "{text}");
    // slowpath responds again: rates are averages over the whole gap.
    screen.second(92);
    let text = screen.after("2");
    assert!(!text.contains("data of") && text.contains("9.00k"), "{text}");
}

#[test]
fn a_failed_query_is_shown_until_the_page_changes() {
    let mut screen = Screen::new(COLOR, (120, 24));
    screen.press("4/client=nonsense\n");
    let query = screen.app.query();
    assert_eq!(query, Query::Flows("&client=nonsense".into()));
    screen.app.accept_extra(query, Err("--client nonsense: write ADDRESS:PORT".into()));
    let text = screen.draw_without_response();
    assert!(text.contains("--client nonsense: write ADDRESS:PORT"), "{text}");
    let text = screen.after("\x1b");
    assert!(!text.contains("write ADDRESS:PORT") && text.contains("192.0.2.1:40001"), "{text}");
}

#[test]
fn responses_to_another_page_are_ignored() {
    let mut screen = Screen::new(COLOR, (120, 24));
    screen.press("4");
    let flows = screen.app.query();
    screen.press("8");
    screen.app.accept_extra(flows.clone(), Ok(extra()));
    assert!(screen.app.data.extra(&flows).is_none());
    let text = screen.draw_without_response();
    assert!(text.contains("waiting for slowpath's response"), "{text}");
}

#[test]
fn every_size_is_drawn() {
    let sizes = [1, 2, 3, 9, 10, 11, 20, 39, 40, 41, 79, 80, 120, 300];
    for (keys, _) in PAGES {
        let mut screen = Screen::new(COLOR, (80, 24));
        for key in keys.chars() {
            screen.after(&key.to_string());
        }
        for width in sizes {
            for height in sizes {
                // The same terminal with another size, as after SIGWINCH.
                screen.terminal.backend_mut().resize(width, height);
                let text = screen.draw();
                if width >= 40 && height >= 10 {
                    assert!(text.contains("weir-1  able"), "{width}x{height}\n{text}");
                } else if width >= 20 && height > 1 {
                    assert!(text.contains("is too small"), "{width}x{height}\n{text}");
                }
            }
        }
        screen.terminal.backend_mut().resize(80, 24);
        assert!(screen.draw().contains("q quit"));
    }
}

#[test]
fn a_small_terminal_keeps_the_selected_row_visible() {
    let mut screen = Screen::new(COLOR, (80, 24));
    screen.after("6");
    screen.press("G");
    screen.terminal.backend_mut().resize(80, 10);
    let text = screen.draw();
    assert!(text.contains("egress rx 1") && text.contains("8 of 8"), "{text}");
    assert!(!text.contains("lcore 0"), "{text}");
}

#[test]
fn reset_counters_have_no_rate() {
    let mut screen = Screen::new(COLOR, (120, 24));
    screen.press("2");
    assert!(screen.line("shop/web").contains("9.00k"));
    let mut reset = sample(screen.start, 2);
    reset.services[1].packets = 5;
    screen.app.accept(Ok(reset));
    let line = screen.line("shop/web");
    assert!(line.contains(" -  ") && !line.contains("9.00k"), "{line}");
    let mut next = sample(screen.start, 3);
    next.services[1].packets = 105;
    next.services[1].bytes = 40_000_000;
    screen.app.accept(Ok(next));
    assert!(screen.line("shop/web").contains(" 100 "), "{}", screen.draw());
}

#[test]
fn views_are_selected_by_number_by_name_and_with_tab() {
    let mut screen = Screen::new(COLOR, (80, 24));
    for (index, view) in View::ALL.into_iter().enumerate() {
        screen.press(&(index + 1).to_string());
        assert_eq!(screen.app.view(), view);
        screen.press(&format!(":{}\n", view.name()));
        assert_eq!(screen.app.view(), view);
    }
    screen.press("8\t");
    assert_eq!(screen.app.view(), View::Overview);
    screen.code(KeyCode::BackTab);
    assert_eq!(screen.app.view(), View::Cloud);
    let text = screen.after(":bax");
    assert!(text.ends_with(":bax"), "{text}");
    assert!(screen.terminal.backend().cursor_visible());
    let text = screen.after("\n");
    assert!(text.contains("no view `bax`; views: overview, services"), "{text}");
    assert_eq!(
        (screen.press("\x1b:fl\x08l\n"), screen.app.view()),
        (Action::Continue, View::Flows)
    );
    assert!(!screen.draw().contains("no view"));
}

#[test]
fn details_open_and_close_and_a_page_keeps_its_selection_and_filter() {
    let mut screen = Screen::new(COLOR, (120, 30));
    let text = screen.after("2j\n");
    assert!(text.contains("services > shop/quiet") && text.contains("10.0.3.11:8080"), "{text}");
    let text = screen.after("\n");
    assert!(text.contains("services > shop/quiet > 10.0.3.11:8080"), "{text}");
    let address = "10.0.3.11:8080".to_owned();
    let service = "shop/quiet".to_owned();
    assert_eq!(screen.app.page().kind, Kind::Backend { service, id: 4, address });
    let expected = "&service=shop%2Fquiet&backend=10.0.3.11%3A8080";
    assert_eq!(screen.app.query(), Query::ChecksAndFlows(expected.into()));
    let text = screen.after("\x1b\x1b");
    assert!(text.contains("\nservices ") && text.contains("2 of 2"), "{text}");
    // Esc has nowhere to go from a view, and clears its filter.
    screen.press("\x1b");
    assert_eq!(screen.app.view(), View::Services);
    assert!(screen.after("/quiet\n").contains("1 of 1"));
    assert!(screen.after("/nothing\n").contains("none of 2 rows matches"));
    assert!(screen.after("\x1b").contains("of 2"));
    // A filter that is given up leaves the one before.
    screen.press("/web\n/quiet\x1b");
    assert_eq!(screen.app.page().filter, "web");
    // A service that was removed meanwhile is shown as removed.
    screen.press("\x1b\n");
    let mut without = sample(screen.start, 2);
    without.services.clear();
    screen.app.accept(Ok(without));
    assert!(screen.draw().contains("there is no service shop/web any more"));
    screen.after("8");
    assert!(screen.after("\n").contains("no details"));
}

#[test]
fn rows_are_sorted_and_the_selection_follows_its_row() {
    let mut screen = Screen::new(COLOR, (120, 24));
    let order = |text: &str| {
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
        at("shop/web") < at("shop/quiet")
    };
    let text = screen.after("2");
    assert!(order(&text) && text.contains("PKT/S▼"), "{text}");
    let text = screen.after("S");
    assert!(!order(&text) && text.contains("PKT/S▲"), "{text}");
    // After the last column comes the order of the response, then the first column.
    let mut seen = Vec::new();
    for _ in 0..9 {
        let text = screen.after("s");
        let heading = text.lines().find(|line| line.contains("SERVICE")).unwrap().to_owned();
        seen.push(
            heading.split_whitespace().find(|word| word.contains(['▼', '▲'])).map(str::to_owned),
        );
    }
    let expected = [Some("BIT/S▼"), Some("DROP/S▼"), None, Some("SERVICE▲")];
    for (seen, expected) in seen.iter().zip(expected) {
        // The next heading may follow the mark directly.
        let seen = seen.as_deref().unwrap_or_default();
        assert!(seen.starts_with(expected.unwrap_or_default()), "{seen}");
        assert_eq!(seen.is_empty(), expected.is_none(), "{seen}");
    }
    // The selected service stays selected when the other one overtakes it.
    let mut screen = Screen::new(COLOR, (120, 24));
    screen.after("2j");
    assert!(screen.draw().contains("2 of 2"));
    let mut busy = sample(screen.start, 2);
    busy.services[0].packets += 1_000_000;
    screen.app.accept(Ok(busy));
    assert!(screen.draw().contains("1 of 2"));
    assert!(screen.after("\n").contains("services > shop/quiet"));
}

#[test]
fn a_paused_view_ignores_samples_and_requests_only_missing_responses() {
    let mut screen = Screen::new(COLOR, (120, 24));
    let before = screen.after("2");
    assert_eq!(screen.app.needs(), (true, Query::None));
    screen.press("p");
    assert!(screen.app.paused);
    screen.second(9);
    let text = screen.draw();
    assert!(text.contains("PAUSED") && text.contains("paused: data of 8 s ago"), "{text}");
    let table = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(table(&text), table(&before));
    // A page without a response requests it once.
    screen.press("4");
    let query = Query::Flows(String::new());
    assert_eq!(screen.app.needs(), (false, query.clone()));
    screen.draw();
    assert_eq!(screen.app.needs(), (false, Query::None));
    screen.press(" ");
    assert_eq!(screen.app.needs(), (true, query));
    screen.second(10);
    assert!(!screen.draw().contains("PAUSED"));
}

#[test]
fn keys_quit_interrupt_suspend_and_draw_again() {
    let mut screen = Screen::new(COLOR, (80, 24));
    assert_eq!(screen.press("q"), Action::Quit);
    assert_eq!(screen.control('c'), Action::Interrupt);
    assert_eq!(screen.control('z'), Action::Suspend);
    assert_eq!(screen.control('l'), Action::Redraw);
    // While a filter is typed, letters are letters.
    assert_eq!((screen.press("/q"), screen.control('c')), (Action::Continue, Action::Interrupt));
    assert_eq!(screen.app.page().filter, "q");
    screen.press("\x1b");
    // Most keys close the help; those other than `?`, Esc and Enter also have their effect.
    assert!(screen.after("?").contains("Shift-Tab"));
    assert!(!screen.after("?").contains("Shift-Tab"));
    screen.press("?3");
    assert!(!screen.app.help && screen.app.view() == View::Backends);
    assert_eq!(screen.press("?q"), Action::Quit);
}

#[test]
fn flows_are_limited_and_the_number_of_all_is_shown() {
    let mut screen = Screen::new(COLOR, (80, 24));
    screen.press("4");
    let mut many = extra();
    many.flows.flows = (0..MAX_LISTED as u32).map(flow).collect();
    screen.app.accept_extra(Query::Flows(String::new()), Ok(many.clone()));
    let text = screen.draw();
    assert!(text.contains("the first 500 that match; 1 200 of 65 536 in use"), "{text}");
    assert!(text.contains("1 of 500"), "{text}");
    many.flows.next = None;
    screen.app.accept_extra(Query::Flows(String::new()), Ok(many));
    let text = screen.draw();
    assert!(text.contains("(1 200 of 65 536 in use)"), "{text}");
    // A flow that ended while its page is open.
    screen.press("\n");
    let query = screen.app.query();
    let expected = "&client=192.0.2.0%3A40000&frontend=203.0.113.10%3A80&protocol=tcp";
    assert_eq!(query, Query::Flows(expected.into()));
    screen.app.accept_extra(query, Ok(Extra::default()));
    assert!(screen.draw().contains("the flow table has no such flow any more"));
    assert!(Query::Flows(String::new()).min_interval() >= Duration::from_secs(2));
}

#[test]
fn a_failure_is_shown_in_place_of_the_caption() {
    let mut screen = Screen::new(COLOR, (80, 24));
    let mut captioned = sample(screen.start, 2);
    captioned.caption = "web-4 was added".into();
    screen.app.accept(Ok(captioned));
    assert!(screen.draw().contains("\nweb-4 was added\n"));
    screen.app.accept(Err("gone".into()));
    let text = screen.draw();
    assert!(text.contains("ago: gone") && !text.contains("web-4 was added"), "{text}");
}

#[test]
fn samples_are_less_frequent_if_responses_are_slow() {
    let source = Source { socket: "/".into(), caption: None, every: Duration::from_secs(1) };
    assert_eq!(source.interval(Duration::from_millis(100)), Duration::from_secs(1));
    assert_eq!(source.interval(Duration::from_secs(2)), Duration::from_secs(8));
}

#[test]
fn terminals_without_cursor_positions_get_text() {
    for term in [None, Some(""), Some("dumb"), Some("unknown")] {
        assert!(!has_cursor(term.map(str::to_owned)), "{term:?}");
    }
    for term in ["vt100", "xterm-256color", "linux", "screen"] {
        assert!(has_cursor(Some(term.to_owned())), "{term}");
    }
}
