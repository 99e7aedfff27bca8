//! Tests of the commands in README.md, CONTRIBUTING.md, the book and the examples. `commands.txt`
//! lists every command with the method by which it is tested; none may be missing.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::api::config_without_services;
use crate::appliance::{Folder, Running, weir};
use crate::command::with_an_lcore;
use crate::generation;

const LIST: &str = include_str!("commands.txt");
/// Programs whose name at the beginning of inline code makes it a command.
const PROGRAMS: [&str; 10] = [
    "weir",
    "fastpath",
    "slowpath",
    "ebpf-fallback",
    "make",
    "cargo",
    "systemctl",
    "nft",
    "sysctl",
    "curl",
];

fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the hand-written pages of the book: all except those of the reference.
fn pages() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (Vec::new(), vec![repository_path("docs/src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("reference") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

/// Returns the texts of all documents and examples.
fn documents() -> Vec<String> {
    let mut files = vec![repository_path("README.md"), repository_path("CONTRIBUTING.md")];
    files.extend(pages());
    let examples = std::fs::read_dir(repository_path("config/examples")).unwrap();
    files.extend(examples.map(|entry| entry.unwrap().path()).filter(|path| {
        path.extension().is_some_and(|end| ["toml", "yaml", "nft"].iter().any(|e| end == *e))
    }));
    assert!(files.len() > 5, "{files:?}");
    files.into_iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// Returns the fenced blocks of a language, and the text between blocks.
fn blocks(text: &str, language: &str) -> (Vec<String>, String) {
    let (mut blocks, mut rest) = (Vec::new(), String::new());
    for (i, part) in text.split("```").enumerate() {
        match part.split_once('\n') {
            Some((head, body)) if i % 2 == 1 && head == language => blocks.push(body.to_owned()),
            _ if i % 2 == 1 => {}
            _ => rest.push_str(part),
        }
    }
    (blocks, rest)
}

/// Splits a line of shell code into commands, without its comment.
fn commands_of_line(line: &str) -> Vec<String> {
    let line = line.split(" #").next().unwrap_or_default().trim();
    // Shell functions and substitutions stay whole; other lines are split at `;`.
    let unsplit = line.contains("() {") || line.contains("$(");
    let parts = if unsplit { vec![line] } else { line.split("; ").collect() };
    let plain = |part: &str| {
        let part = part.trim().trim_end_matches('&').trim();
        part.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    parts.into_iter().map(plain).filter(|one| !one.is_empty() && !one.starts_with('#')).collect()
}

/// Returns the commands in inline code: a known program with at least one argument.
fn inline(text: &str) -> Vec<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    let is_command = |piece: &&str| {
        let (program, arguments) = piece.split_once(' ').unwrap_or((piece, ""));
        PROGRAMS.contains(&program) && !arguments.is_empty() && !arguments.starts_with("= ")
    };
    pieces.filter(is_command).map(str::to_owned).collect()
}

/// Returns the commands of all documents and examples.
fn all_commands() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for text in documents() {
        let (shell, rest) = blocks(&text, "sh");
        all.extend(shell.iter().flat_map(|block| block.lines()).flat_map(commands_of_line));
        all.extend(rest.split("\n\n").flat_map(inline));
    }
    all
}

/// Returns method (such as `run 0`) and command of each entry in the list.
fn listed() -> Vec<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parted = |line: &'static str| {
        let (how, command) = line.split_once('|').unwrap_or_else(|| panic!("{line}"));
        (how.trim(), command.trim())
    };
    lines.map(parted).collect()
}

#[test]
fn every_documented_command_is_listed_once() {
    let listed = listed();
    let known: BTreeSet<String> = listed.iter().map(|(_, one)| (*one).to_owned()).collect();
    assert_eq!(known.len(), listed.len(), "one is listed twice");
    let all = all_commands();
    let missing: Vec<_> = all.difference(&known).collect();
    let stale: Vec<_> = known.difference(&all).collect();
    assert!(missing.is_empty(), "in a document, and not in commands.txt: {missing:#?}");
    assert!(stale.is_empty(), "in commands.txt, and in no document: {stale:#?}");
    assert!(all.len() > 60, "{all:#?}");
}

/// Returns the listed commands with this method.
fn commands_with_method(method: &str) -> Vec<&'static str> {
    let all: Vec<_> =
        listed().into_iter().filter(|(how, _)| *how == method).map(|(_, one)| one).collect();
    assert!(!all.is_empty(), "{method}");
    all
}

/// Returns a shell for `script` in which `weir` is the built program and Weir's default paths are
/// replaced by those of the folder.
fn shell(folder: &Folder, script: &str) -> Command {
    let socket = folder.socket();
    let config = folder.path.join("weir.toml").display().to_string();
    let script =
        script.replace("/run/weir/control.sock", &socket).replace("/etc/weir/weir.toml", &config);
    let programs = weir().parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap();
    let mut bash = Command::new("bash");
    // `curl` exits with 0 for an HTTP error; here it fails.
    let strict = r#"
        set -euo pipefail
        curl() { command curl --fail-with-body "$@"; }
        weir() {
            case " $* " in
                *" --config "*) command weir --socket "$SOCKET" "$@" ;;
                *) command weir --config "$CONFIG" --socket "$SOCKET" "$@" ;;
            esac
        }
    "#;
    bash.args(["-c", &format!("{strict}{script}")]).current_dir(&folder.path);
    bash.env("PATH", format!("{programs}:{path}"))
        .env("SOCKET", socket)
        .env("CONFIG", config)
        .stdin(Stdio::null());
    bash
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

#[test]
fn documented_commands_run_as_written() {
    let folder = Folder::new("documents");
    folder.write("weir.toml", &config_without_services(&folder));
    let object = r#"[{"kind": "Service", "name": "inventory/web", "spec": {"frontends": []}}]"#;
    folder.write("objects.json", object);
    let kubernetes = "apiVersion: v1\nkind: Service\nmetadata: {name: two, namespace: shop}\n\
                      spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n";
    folder.write("services.yaml", kubernetes);
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    with_an_lcore(&folder, || {
        folder.until(&["status"], |status| status["able"] == true);
        for (how, command) in listed() {
            if let Some(code) = how.strip_prefix("run ") {
                let out = output(&mut shell(&folder, command));
                let expected: i32 = code.parse().unwrap();
                assert_eq!(out.status.code(), Some(expected), "{command}: {out:?}");
            } else if how == "follow" {
                let mut bash = shell(
                    &folder,
                    &format!("exec {command}")
                        .replace("exec weir", "exec env weir --socket \"$SOCKET\""),
                );
                let mut running = Running(bash.stdout(Stdio::piped()).spawn().unwrap());
                let mut first = [0];
                running.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
            }
        }
        let out = output(&mut shell(&folder, &commands_with_method("shell").join("\n")));
        assert!(out.status.success(), "{out:?}");
        let made =
            folder.request("GET", "/v1/objects/service/inventory/web?source=inventory", &[], "");
        assert_eq!(made.status, 200, "{made:?}");
    });
}

#[test]
fn documented_arguments_are_accepted_by_their_programs() {
    let folder = weir().parent().unwrap().to_owned();
    for command in commands_with_method("program") {
        let mut words = command.split(' ');
        let program = folder.join(words.next().unwrap());
        assert!(
            program.exists(),
            "{program:?} does not exist; `cargo build --workspace --bins` builds it"
        );
        // An invalid argument is an error although `--help` follows it.
        let run = |more: &[&str]| output(Command::new(&program).args(words.clone()).args(more));
        let out = run(&["--help"]);
        assert!(out.status.success(), "{command}: {out:?}");
        assert!(!run(&["--no-such-thing", "--help"]).status.success(), "{command}");
    }
    for command in commands_with_method("make") {
        let out = output(
            Command::new("make")
                .arg("-n")
                .args(command.split(' ').skip(1))
                .current_dir(repository_path("")),
        );
        assert!(out.status.success(), "{command}: {out:?}");
    }
}

/// Returns a configuration in which the sections of `block` replace those of the same name.
fn with_sections(config: &str, block: &str) -> String {
    let header = |line: &str| line.trim().starts_with('[').then(|| line.trim().to_owned());
    let replaced: BTreeSet<String> = block.lines().filter_map(header).collect();
    let (mut text, mut left_out) = (String::new(), false);
    for line in config.lines() {
        if let Some(header) = header(line) {
            left_out = replaced.contains(&header);
        }
        if !left_out {
            text.push_str(line);
            text.push('\n');
        }
    }
    text + block
}

#[test]
fn documented_services_and_settings_are_accepted() {
    let folder = Folder::new("documents-toml");
    let config = config::from_toml(&folder.config()).unwrap();
    let (mut services, mut settings) = (0, 0);
    for text in documents() {
        for block in blocks(&text, "toml").0 {
            if block.contains("[[service]]") {
                services += 1;
                config::services_from_toml(&block, &config)
                    .unwrap_or_else(|e| panic!("{block}\n{}", e.render()));
            } else {
                settings += 1;
                config::from_toml(&with_sections(&folder.config(), &block))
                    .unwrap_or_else(|e| panic!("{block}\n{}", e.render()));
            }
        }
    }
    assert!(services >= 3 && settings >= 5, "{services} {settings}");
}

#[test]
fn nft_accepts_the_table_for_af_packet() {
    let script = "ip link add eth1 type veth peer name eth1p && nft -f \"$1\" && \
                  nft list table netdev weir && nft delete table netdev weir";
    let mut bash = Command::new("unshare");
    bash.args(["-n", "sh", "-c", script, "sh"])
        .arg(repository_path("config/examples/af-packet.nft"));
    let out = output(&mut bash);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("device \"eth1\""), "{out:?}");
    assert!(text.contains("policy drop"), "{text}");
}
