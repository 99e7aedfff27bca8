//! Tests of the text output, of the command line, and of its reference page.

use super::*;
use slowpath::control::report::*;
use std::path::Path;
use std::time::{Duration, Instant};

fn a_status() -> Status {
    let link = |arm: &str, up| Link { arm: arm.into(), up, share: None };
    Status {
        name: "weir-1".into(),
        version: "0.1.0".into(),
        uptime_s: 185,
        region: "/dev/shm/weir/region".into(),
        seed_fingerprint: "a47fae25".into(),
        able: true,
        reasons: vec![],
        ready: true,
        cloud: "aws: ready, 10.0.1.11 is healthy".into(),
        listeners: Vec::new(),
        secrets: Vec::new(),
        audit: AuditStatus::default(),
        bgp: "2 of 2 sessions established".into(),
        generation: 7,
        acknowledged: 7,
        config_file: FileStatus {
            path: "/etc/weir/weir.toml".into(),
            applied_s_ago: Some(90),
            error: None,
        },
        services_file: FileStatus {
            path: "/etc/weir/services.toml".into(),
            applied_s_ago: Some(30),
            error: None,
        },
        lcores: vec![Lcore {
            id: 0,
            polling: true,
            acknowledged: 7,
            late: false,
            links: vec![link("ingress", true), link("egress", true)],
            busy: 0.25,
        }],
        next_hops: NextHopStatus { needed: 3, known: 3, error: None },
        flows: Use { used: 1200, max: 65_536 },
        frontends: Frontends { done: 1, ..Frontends::default() },
        services: 1,
        backends: 2,
        store: StoreStatus::default(),
        held: Vec::new(),
        nics: Vec::new(),
        findings: Vec::new(),
    }
}

fn a_backend(last: u8, packets: u64) -> BackendReport {
    BackendReport {
        id: u32::from(last),
        address: format!("10.0.2.{last}"),
        port: 8080,
        state: "active".into(),
        weight: 100,
        share: 0.5,
        packets,
        bytes: packets * 1000,
        new_flows: packets / 10,
        flows: 3,
        shared: false,
        in_others: false,
        mac: (last == 11).then(|| "02:00:00:00:00:0b".into()),
    }
}

fn a_service() -> ServiceReport {
    ServiceReport {
        id: 0,
        name: "default/web".into(),
        mode: "nat".into(),
        tunnel: String::new(),
        frontends: vec!["203.0.113.10:80/tcp".into()],
        table_size: 16_381,
        packets: 123_456,
        bytes: 9_876_543,
        new_flows: 1234,
        flows: 6,
        drops: 0,
        in_others: false,
        backends: vec![a_backend(11, 60_000), a_backend(12, 63_456)],
    }
}

#[test]
fn status_of_an_able_appliance() {
    let expected = "\
weir-1 is able to serve: new traffic is accepted
ready          yes
cloud          aws: ready, 10.0.1.11 is healthy
bgp            2 of 2 sessions established
slowpath       0.1.0, up 3 min 5 s
region         /dev/shm/weir/region
seed           a47fae25
generation     7 (served by all lcores)
services       1 with 2 backends
frontends      1 done
configuration  /etc/weir/weir.toml (applied 1 min 30 s ago)
services file  /etc/weir/services.toml (applied 30 s ago)
next hops      3 known of 3 needed
flows          1 200 of 65 536

LCORE  STATE    GENERATION  BUSY  LINKS
0      polling           7  25 %  ingress up, egress up
";
    assert_eq!(show::status(&a_status()), expected);
}

/// A NIC that missed packets.
fn a_nic() -> NicReport {
    let counters = [("received_packets", 1_000_000), ("missed_packets", 60_098)];
    NicReport {
        arm: "ingress".into(),
        port: "0000:00:06.0".into(),
        driver: "net_ena".into(),
        state: "running".into(),
        link_up: true,
        speed_mbps: 25_000,
        arrived: 1_060_098,
        taken: 1_000_000,
        counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
        ..NicReport::default()
    }
}

#[test]
fn status_shows_nics_with_their_losses_and_states_and_findings() {
    let mut status = a_status();
    let away = NicReport {
        arm: "egress".into(),
        port: "0000:00:07.0".into(),
        state: "removed".into(),
        detail: "it is being removed from the machine".into(),
        ..NicReport::default()
    };
    status.nics = vec![a_nic(), away];
    status.findings = vec!["lcore 1 receives 60 % of the packets of ingress".into()];
    let text = show::status(&status);
    let expected = "
ARM      NIC           DRIVER   STATE    LINK             ARRIVED      TAKEN  MISSED  ERRORS
ingress  0000:00:06.0  net_ena  running  up, 25 Gbit/s  1 060 098  1 000 000  60 098       0
egress   0000:00:07.0           REMOVED  DOWN                   0          0       0       0
egress: it is being removed from the machine
";
    let shown = text.split("\nARM").nth(1).map(|table| format!("\nARM{table}"));
    assert_eq!(shown.as_deref(), Some(expected));
    assert!(text.contains("\nfinding: lcore 1 receives 60 %"), "{text}");
}

#[test]
fn losses_at_the_nic_are_shown_with_their_meaning() {
    let text = show::nic_losses(&[a_nic()]);
    assert!(text.contains("missed_packets") && text.contains("60 098"), "{text}");
    assert!(text.contains("rx_descriptors"), "{text}");
    assert_eq!(show::nic_losses(&[NicReport::default()]), "");
    // Losses after the XDP programs: redirected or sent frames that the kernel dropped.
    let counters = [("xdp_redirects_refused", 3), ("xdp_sends_dropped", 4), ("xdp_aborted", 0)];
    let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    let nic = NicReport { counters, ..a_nic() };
    let text = show::nic_losses(std::slice::from_ref(&nic));
    assert!(text.contains("xdp_redirects_refused") && text.contains("ip link"), "{text}");
    assert!(text.contains("xdp_sends_dropped") && !text.contains("xdp_aborted"), "{text}");
    assert!(show::nics(&[nic]).ends_with("       0       7\n"), "MISSED and ERRORS");
}

#[test]
fn status_of_an_unable_appliance_shows_reasons_and_rejected_files() {
    let mut status = a_status();
    (status.able, status.ready) = (false, false);
    status.cloud.clear();
    status.bgp.clear();
    status.reasons = vec!["lcore 0 does not poll".into()];
    status.services_file.error = Some("services.toml: unknown key `prot`".into());
    status.config_file.error = Some("ingress.device requires a restart".into());
    status.acknowledged = 6;
    status.listeners.push(FailingListener {
        key: "health.listen".into(),
        address: "0.0.0.0:8080".into(),
        error: "health.listen: 0.0.0.0:8080 is in use".into(),
        failing_for_s: 65,
    });
    status.lcores.clear();
    status.secrets.push(SecretStatus {
        key: "api.token_file".into(),
        error: Some("api.token_file = \"/t\": no such file".into()),
        warnings: vec!["every local user can access /t".into()],
        overlap_left_s: Some(65),
        ..SecretStatus::default()
    });
    let text = show::status(&status);
    assert!(
        text.contains("\nsecret rejected; if one was in force, it stays: api.token_file ="),
        "{text}"
    );
    assert!(text.contains("\nsecret: every local user can access /t\n"), "{text}");
    let overlap = "\napi.token_file: the replaced token is accepted for 1 min 5 s more\n";
    assert!(text.contains(overlap), "{text}");
    assert!(text.starts_with("weir-1 is UNABLE to serve:\n  - lcore 0 does not poll\n"), "{text}");
    assert!(text.contains("\nready          no\n") && !text.contains("\ncloud"), "{text}");
    assert!(!text.contains("\nbgp"), "{text}");
    assert!(text.contains("7 (lcores serve 6)") && text.contains("REJECTED"), "{text}");
    assert!(text.contains("unknown key `prot`"), "{text}");
    let listener = "not listening (for 1 min 5 s): health.listen: 0.0.0.0:8080 is in use\n";
    assert!(text.contains(listener), "{text}");
    assert!(text.contains("the configuration was rejected:\ningress.device requires"), "{text}");
    // The error of a file is shown once, with the rejected file.
    let held = |source: &str| HeldSource { source: source.into(), message: format!("{source}!") };
    status.held = vec![held("file"), held("inventory")];
    let text = show::status(&status);
    assert!(text.contains("\ninventory!\n") && !text.contains("file!"), "{text}");
    assert!(text.ends_with("no lcore: the data plane is not running\n"), "{text}");
}

#[test]
fn services_with_their_backends() {
    let expected = "\
default/web  (nat)
  frontends  203.0.113.10:80/tcp
  traffic    123 456 packets, 9.9 MB, 6 live flows, 1 234 begun, 0 drops
  BACKEND         STATE   WEIGHT   SHARE  FLOWS  BEGUN  PACKETS    BYTES  MAC
  10.0.2.11:8080  active     100  50.0 %      3  6 000   60 000  60.0 MB  02:00:00:00:00:0b
  10.0.2.12:8080  active     100  50.0 %      3  6 345   63 456  63.5 MB  unknown
";
    assert_eq!(show::services(&[a_service()]), expected);
    assert!(show::services(&[]).contains("weir status"));
    let mut shared = a_service();
    shared.backends[1].shared = true;
    let text = show::services(&[shared]);
    assert!(
        text.contains("10.0.2.12:8080 *") && text.contains("counts are those of all"),
        "{text}"
    );
}

#[test]
fn services_and_backends_without_counters_of_their_own() {
    let mut uncounted = a_service();
    (uncounted.in_others, uncounted.backends[1].in_others) = (true, true);
    let backend = uncounted.backends[1].clone();
    let backend = BackendReport { address: "(others)".into(), packets: 63_456, ..backend };
    let backend = BackendReport { port: 0, in_others: false, ..backend };
    let others = ServiceReport { name: "(others)".into(), packets: 777, ..a_service() };
    let others = ServiceReport { backends: vec![backend], ..others };
    let text = show::services(&[uncounted, others]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], "  counted in (others), in whole or in part");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(lines[6])[5..9], ["(others)", "(others)", "(others)", "(others)"]);
    assert!(lines[8].starts_with("(others)") && lines[8].contains("region.counted_services"));
    assert!(lines[9].contains("777 packets"), "{text}");
    assert!(lines[11].contains("(others)") && lines[11].contains("63 456"), "{text}");
}

#[test]
fn flows_with_their_gateway() {
    let flow = FlowReport {
        path: 5,
        kind: "nat".into(),
        protocol: "tcp".into(),
        client: "192.0.2.7:40001".into(),
        frontend: "203.0.113.10:80".into(),
        service: "default/web".into(),
        backend: "10.0.2.11:8080".into(),
        source: "10.0.2.10:1024".into(),
        gateway: "aws".into(),
        node: "10.0.1.200".into(),
        state: "established".into(),
        idle_s: 3,
    };
    let page = FlowPage { flows: vec![flow], next: Some(6), total: Use { used: 2, max: 256 } };
    let expected = "\
PROTO  CLIENT           FRONTEND         KIND  SERVICE      BACKEND         SOURCE          \
GATEWAY         STATE        IDLE
tcp    192.0.2.7:40001  203.0.113.10:80  nat   default/web  10.0.2.11:8080  10.0.2.10:1024  \
aws 10.0.1.200  established   3 s
1 shown, 2 of 256 in use; there are more (--limit, --all)
";
    assert_eq!(show::flows(&page), expected);
}

#[test]
fn drops_omit_zero_counters() {
    let drop = |reason: &str, packets| DropReport {
        arm: "ingress".into(),
        reason: reason.into(),
        packets,
        help: "Why.".into(),
    };
    let drops = [drop("no_service", 0), drop("no_backend", 12)];
    let expected = "\
ARM      REASON      PACKETS  MEANING
ingress  no_backend       12  Why.
";
    assert_eq!(show::drops(&drops, false), expected);
    assert_eq!(show::drops(&drops, true).lines().count(), 3);
    assert_eq!(show::drops(&drops[..1], false), "nothing was dropped\n");
}

#[test]
fn text_of_weir_top_shows_rates_between_two_samples() {
    let at = Instant::now();
    let drop = DropReport {
        arm: "egress".into(),
        reason: "no_flow".into(),
        packets: 4,
        help: String::new(),
    };
    let mut before = top::plain::Sample {
        at,
        status: a_status(),
        services: vec![a_service()],
        drops: vec![drop.clone()],
    };
    before.services[0].backends[0].packets = 58_000;
    before.drops[0].packets = 2;
    let at = at + Duration::from_secs(2);
    let now = top::plain::Sample {
        at,
        status: a_status(),
        services: vec![a_service()],
        drops: vec![drop],
    };
    let expected = "\
weir-1 able to serve, up 3 min 5 s, generation 7, flows 1 200 of 65 536, lcores busy 25 %

SERVICE      BACKEND         STATE    SHARE  FLOWS  BEGUN  PACKETS  PACKETS/S
default/web
             10.0.2.11:8080  active  50.0 %      3  6 000   60 000      1 000
             10.0.2.12:8080  active  50.0 %      3  6 345   63 456          0

DROPS   REASON   PACKETS  PACKETS/S
egress  no_flow        4          1
";
    assert_eq!(top::plain::render(&now, Some(&before)), expected);
    assert!(top::plain::render(&now, None).contains("60 000          -"));
}

#[test]
fn filters_are_escaped_for_the_query() {
    let filter = flows::FlowFilter {
        client: Some("[2001:db8::1]:80".into()),
        frontend: None,
        backend: None,
        service: Some("default/web & co".into()),
        protocol: None,
    };
    assert_eq!(
        filter.query(),
        "&client=%5B2001%3Adb8%3A%3A1%5D%3A80&service=default%2Fweb%20%26%20co"
    );
}

#[test]
fn missing_slowpath_is_explained() {
    let error = request::get_json::<Status>(Path::new("/nonexistent/weir.sock"), "/status");
    let text = error.unwrap_err().to_string();
    assert!(text.contains("start it with `slowpath"), "{text}");
}

#[test]
fn command_line_definition_is_valid() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_the_output_option() {
    use clap::CommandFactory;
    fn walk(command: &clap::Command, path: &str, commands: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            walk(below, &format!("{path} {}", below.get_name()), commands);
        }
        if command.has_subcommands() {
            return;
        }
        let output = command.get_arguments().find(|arg| arg.get_long() == Some("output"));
        let output = output.unwrap_or_else(|| panic!("{path} has no --output"));
        let values: Vec<String> =
            output.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(
            (values, output.get_short()),
            (vec!["table".into(), "json".into(), "yaml".into()], Some('o')),
            "{path}"
        );
        commands.push(path.to_owned());
    }
    let mut command = Cli::command();
    command.build();
    let mut commands = Vec::new();
    walk(&command, "weir", &mut commands);
    for path in ["weir status", "weir apply", "weir service set", "weir backend drain", "weir man"]
        .into_iter()
        .chain(["weir pls list", "weir pls show", "weir pls approve", "weir pls resume"])
        .chain(["weir bgp peers", "weir bgp routes advertised", "weir bgp policies"])
    {
        assert!(commands.iter().any(|one| one == path), "{path} is not in {commands:?}");
    }
}

#[test]
fn aligns_rows_and_truncates_long_lists() {
    let row = |name: &str, backends: usize| -> state::show::Row {
        let backends: Vec<String> = (1..=backends).map(|n| format!("10.0.0.{n}:80/TCP")).collect();
        let row = serde_json::json!({
            "address": name, "type": "LoadBalancer", "backends": backends, "status": "Done"
        });
        row.as_object().unwrap().clone()
    };
    let columns = ["address", "status", "backends"];
    let rows = [row("203.0.113.10:80/TCP", 1), row("[::1]:80/TCP/i", 7)];
    let expected = "\
ADDRESS              STATUS  BACKENDS
203.0.113.10:80/TCP  Done    10.0.0.1:80/TCP
[::1]:80/TCP/i       Done    10.0.0.1:80/TCP, 10.0.0.2:80/TCP, 10.0.0.3:80/TCP, \
10.0.0.4:80/TCP, 10.0.0.5:80/TCP + 2 more
";
    assert_eq!(db::table(&rows, &columns).text(), expected);
}

/// The commands of README.md, CONTRIBUTING.md, the book and the examples. A test of `slowpath` runs
/// those in the same file, whose first lines explain the words before `|`.
const LISTED: &str = include_str!("../../tests/process/commands.txt");

#[test]
fn documented_commands_parse() {
    let mut parsed = 0;
    for line in LISTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (how, command) = line.split_once('|').unwrap();
        let (how, command) = (how.trim(), command.trim());
        // `other`: not parsed. `named`: without its required arguments.
        if !command.starts_with("weir ") || how == "other" {
            continue;
        }
        parsed += 1;
        let escaped = command.split(" > ").next().unwrap().replace('\'', "\u{1}");
        // At most one argument is quoted; the text between the quotes is one argument.
        let mut quoted = escaped.split('\u{1}');
        let mut arguments: Vec<&str> = quoted.next().unwrap().split_whitespace().collect();
        arguments.extend(quoted.next());
        match Cli::try_parse_from(&arguments) {
            Ok(_) => assert_ne!(how, "named", "{command}"),
            Err(error) => {
                assert_eq!(how, "named", "{command}: {error}");
                // A command without all of its arguments, or a group of commands.
                let missing = [
                    clap::error::ErrorKind::MissingRequiredArgument,
                    clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ];
                assert!(missing.contains(&error.kind()), "{command}: {error}");
            }
        }
    }
    assert!(parsed > 30, "{parsed}");
}

/// Escapes a text for the cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// Appends a table with a row for each argument of a command that `fits` selects.
fn rows(page: &mut String, command: &clap::Command, fits: impl Fn(&clap::Arg) -> bool) {
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set() && fits(one));
    let row = |one: &clap::Arg| {
        let names = one.get_value_names().unwrap_or_default();
        let takes = one.get_action().takes_values();
        let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
        let values = if takes { values.join(" ") } else { String::new() };
        let long = one.get_long().map(|long| format!("--{long}"));
        let short = one.get_short().map(|short| format!("-{short}"));
        let flags: Vec<String> = short.into_iter().chain(long).collect();
        let name = format!("{} {values}", flags.join(", "));
        let mut help = one.get_help().map(ToString::to_string).unwrap_or_default();
        let choices = one.get_possible_values();
        if takes && !choices.is_empty() {
            let choices: Vec<String> =
                choices.iter().map(|choice| format!("`{}`", choice.get_name())).collect();
            help += &format!(" ({})", choices.join(", "));
        }
        let default = one.get_default_values();
        if takes && !default.is_empty() {
            let default: Vec<_> = default.iter().map(|value| value.to_string_lossy()).collect();
            help += &format!(" [default: {}]", default.join(" "));
        }
        format!("| `{}` | {} |\n", name.trim().replace('|', "\\|"), cell(&help))
    };
    let rows: String = arguments.map(row).collect();
    if !rows.is_empty() {
        page.push_str("\n| argument | meaning |\n|---|---|\n");
        page.push_str(&rows);
    }
}

/// Appends a section for a command, and then those of its subcommands.
fn section(page: &mut String, command: &clap::Command, path: &str) {
    let path = format!("{path} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string().replace("Usage: ", "");
    page.push_str(&format!("\n## {path}\n\n{}.\n", about.replace('<', "&lt;")));
    let subcommands: Vec<_> =
        command.get_subcommands().filter(|one| one.get_name() != "help").collect();
    if subcommands.is_empty() {
        page.push_str(&format!("\n```text\n{usage}\n```\n"));
    }
    let own = |one: &clap::Arg| {
        !one.is_global_set() && !["help", "version"].contains(&one.get_id().as_str())
    };
    rows(page, command, own);
    subcommands.into_iter().for_each(|one| section(page, one, &path));
}

#[test]
fn the_reference_of_the_commands_is_current() {
    let mut command = <Cli as clap::CommandFactory>::command();
    command.build();
    let mut page = String::from(
        "# The weir command\n\nGenerated by `make reference`; do not edit.\n\n`weir` queries \
         `slowpath` over the control socket. Exit codes: 0 for success, 1 for a negative result \
         (unable to serve, a difference, not ready), 2 for errors, unless a command states \
         otherwise. `weir man` writes this reference as man pages.\n\n## Options of all commands\n",
    );
    rows(&mut page, &command, clap::Arg::is_global_set);
    let subcommands = command.get_subcommands().filter(|one| one.get_name() != "help");
    subcommands.for_each(|one| section(&mut page, one, "weir"));
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/cli.md");
    if std::env::var_os("WEIR_REFERENCE").is_some_and(|value| value == "write") {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "cli.md is out of date; type: make reference\n{page}");
}
