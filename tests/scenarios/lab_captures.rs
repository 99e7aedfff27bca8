//! `weir capture` on both planes, with traffic of both gateways: tshark reads the files with the
//! decisions as comments, captures end by themselves, and no packet is lost or changed.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::lab::capture::tshark;
use tests::lab::process::find;
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::{Plane, Settings};
use tests::lab::topology::{AWS_CLIENTS, FRONTEND, HTTP, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Serializes the tests: two labs on two cores would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

const PAUSE: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts `weir capture` with these arguments.
fn start(lab: &Lab, arguments: &[&str]) -> Outcome<Child> {
    let weir = find("weir", "cli")?;
    let config = lab.folder.file("weir.toml");
    let mut command = Command::new(weir);
    command.arg("--config").arg(config).arg("capture").args(arguments);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

fn text(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs `weir capture` to its end, which must be a success; returns the rows of the file.
fn capture(lab: &Lab, name: &str, arguments: &[&str]) -> Outcome<Vec<Row>> {
    let path = lab.folder.file(name);
    let file = path.display().to_string();
    let output = start(lab, &[&["-w", &file], arguments].concat())?.wait_with_output()?;
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    assert!(text(&output).contains(", 0 lost"), "{}", text(&output));
    rows(&path)
}

/// A frame of a capture, as tshark shows it.
#[derive(Debug)]
struct Row {
    id: u64,
    interface: String,
    /// The keys and values of the comment.
    comment: BTreeMap<String, String>,
    /// Source and destination addresses, outermost first.
    sources: Vec<String>,
    destinations: Vec<String>,
}

impl Row {
    fn get(&self, key: &str) -> &str {
        self.comment.get(key).map_or("", String::as_str)
    }
}

fn rows(path: &Path) -> Outcome<Vec<Row>> {
    let fields = ["frame.packet_id", "frame.interface_name", "frame.comment", "ip.src", "ip.dst"];
    let rows = tshark(path, "frame", &fields)?;
    rows.into_iter()
        .map(|row| {
            let [id, interface, comment, source, destination] = &row[..] else {
                return Err(format!("unexpected row {row:?}").into());
            };
            let pairs = comment.split(' ').filter_map(|pair| pair.split_once('='));
            let list = |text: &str| text.split(',').map(str::to_owned).collect();
            Ok(Row {
                id: id.parse()?,
                interface: interface.clone(),
                comment: pairs.map(|(key, value)| (key.into(), value.into())).collect(),
                sources: list(source),
                destinations: list(destination),
            })
        })
        .collect()
}

/// Returns the rows by packet: before, and after the rewrite.
fn pairs(rows: &[Row]) -> BTreeMap<u64, Vec<&Row>> {
    let mut packets: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| packets.entry(row.id).or_default().push(row));
    packets
}

fn captures_of(plane: Plane) -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let two = [service(&lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::start(&lab, &Settings { plane, ..Settings::default() }, &two)?;
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(100)?;

    all_packets_of_the_service(&lab)?;
    replies_to_one_client(&lab)?;
    packets_without_a_service(&lab)?;
    wrong_requests_and_busy_arms(&lab)?;
    to_a_pipe(&lab)?;
    traces(&lab)?;
    let answered = traffic.answered();
    traffic.wait_for_responses(answered + 200)?;

    // slowpath is killed during a capture: the file is readable, the data plane stops copying, and
    // captures of the next slowpath work.
    let path = lab.folder.file("killed.pcapng");
    let file = path.display().to_string();
    let killed = start(&lab, &["-w", &file, "--count", "1000000", "--seconds", "600"])?;
    wait_for_size(&path)?;
    weir.kill_slowpath()?;
    let output = killed.wait_with_output()?;
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("slowpath"), "{}", text(&output));
    assert!(!rows(&path)?.is_empty());
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let again = capture(&lab, "again.pcapng", &["--count", "10"])?;
    assert_eq!(pairs(&again).len(), 10);

    let clients = traffic.finish()?;
    for (name, stats) in &clients {
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
    at_rest(&lab, &mut weir, &before, &wires)?;
    let report = gateway.stop()?;
    assert!(report.clean(), "{report}");

    dropped_packets(&lab, &mut weir)?;
    weir.stop()?;
    Ok(())
}

fn wait_for_size(path: &Path) -> Outcome {
    patience::poll("a file with packets", TIMEOUT, || {
        let size = std::fs::metadata(path).map_or(0, |about| about.len());
        patience::check(size > 100_000, || format!("{size} bytes"))
    })?;
    Ok(())
}

fn all_packets_of_the_service(lab: &Lab) -> Outcome {
    let rows = capture(lab, "service.pcapng", &["--service", "lab/web", "--count", "300"])?;
    let packets = pairs(&rows);
    assert_eq!((packets.len(), rows.len()), (300, 600));
    let mut seen = BTreeMap::new();
    for rows in packets.values() {
        let [before, after] = rows[..] else { return Err(format!("{rows:?}").into()) };
        let stages = (before.get("stage"), after.get("stage"));
        assert_eq!(stages, ("before", "after"));
        for key in ["verdict", "reason", "service", "backend", "arm", "exit", "lcore"] {
            assert_eq!(before.get(key), after.get(key), "{key}: {rows:?}");
        }
        assert_eq!((before.get("service"), before.get("reason")), ("lab/web", "-"));
        assert_eq!(before.interface, before.get("arm"));
        assert_eq!(after.interface, after.get("exit"));
        let backends = lab.hosts.iter().map(|host| format!("{}:{HTTP}", host.address));
        assert!(backends.into_iter().any(|backend| before.get("backend") == backend), "{before:?}");
        let frontend = FRONTEND.to_string();
        match before.get("verdict") {
            // In the gateway's tunnel to the frontend; without a tunnel to the backend.
            "nat" => {
                assert_eq!(before.get("arm"), "ingress");
                assert!(before.destinations.len() > 1 && before.destinations.contains(&frontend));
                assert!(before.get("backend").starts_with(&after.destinations[0]), "{rows:?}");
            }
            "answer" => {
                assert_eq!(before.get("arm"), "egress");
                assert!(before.get("backend").starts_with(&before.sources[0]), "{rows:?}");
                assert!(after.sources.contains(&frontend), "{rows:?}");
            }
            other => return Err(format!("verdict {other}: {rows:?}").into()),
        }
        *seen.entry(before.get("verdict").to_owned()).or_insert(0) += 1;
    }
    assert!(seen.len() == 2 && seen.values().all(|count| *count > 20), "{seen:?}");
    Ok(())
}

fn replies_to_one_client(lab: &Lab) -> Outcome {
    let client = IpAddr::V4(AWS_CLIENTS[0]).to_string();
    let filter = ["--client", &client, "--service", "lab/web", "--direction", "reply"];
    let more = ["--arm", "egress", "--stage", "after", "--count", "20"];
    let rows = capture(lab, "replies.pcapng", &[&filter[..], &more].concat())?;
    assert_eq!(rows.len(), 20);
    for row in &rows {
        assert_eq!((row.get("verdict"), row.get("stage")), ("answer", "after"));
        // A reply of a NAT backend has the client's address only when it leaves.
        assert!(row.destinations.contains(&client), "{row:?}");
    }
    Ok(())
}

fn packets_without_a_service(lab: &Lab) -> Outcome {
    let rows = capture(lab, "ingress.pcapng", &["--arm", "ingress", "--count", "400"])?;
    let returned: Vec<_> = rows.iter().filter(|row| row.get("verdict") == "return").collect();
    assert!(returned.len() > 20, "{}", returned.len());
    assert!(returned.iter().all(|row| row.get("service") == "-" && row.get("exit") == "ingress"));
    Ok(())
}

fn wrong_requests_and_busy_arms(lab: &Lab) -> Outcome {
    let file = |name: &str| lab.folder.file(name).display().to_string();
    let wrong = start(lab, &["-w", &file("wrong.pcapng"), "--snap", "1000"])?.wait_with_output()?;
    assert!(
        text(&wrong).contains("--snap 1000: write a number from 64 to 256"),
        "{}",
        text(&wrong)
    );
    assert!(!lab.folder.file("wrong.pcapng").exists(), "no file for a rejected request");
    let path = lab.folder.file("long.pcapng");
    let long = path.display().to_string();
    let mut running = start(lab, &["-w", &long, "--arm", "ingress", "--count", "1000000"])?;
    wait_for_size(&path)?;
    let other = start(lab, &["-w", &file("busy.pcapng")])?.wait_with_output()?;
    assert!(text(&other).contains("another capture runs on"), "{}", text(&other));
    // The other arm is free.
    let other = capture(lab, "egress.pcapng", &["--arm", "egress", "--count", "10"])?;
    assert!(other.iter().all(|row| row.get("arm") == "egress"));
    running.kill()?;
    running.wait()?;
    // The file of a client that was killed has whole blocks.
    assert!(!rows(&path)?.is_empty());
    let until = Instant::now() + TIMEOUT;
    loop {
        let next = start(lab, &["-w", &file("next.pcapng"), "--count", "5"])?.wait_with_output()?;
        if next.status.success() {
            break;
        }
        // slowpath notices at its next write that the client is gone.
        assert!(text(&next).contains("another capture") && Instant::now() < until);
    }
    Ok(())
}

fn to_a_pipe(lab: &Lab) -> Outcome {
    let mut running = start(lab, &["-w", "-", "--count", "20", "--stage", "before"])?;
    let from = running.stdout.take().ok_or("no output")?;
    let fields = ["-T", "fields", "-e", "frame.comment"];
    let reader =
        Command::new("tshark").args(["-n", "-r", "-"]).args(fields).stdin(from).output()?;
    let comments = String::from_utf8_lossy(&reader.stdout).into_owned();
    assert!(running.wait_with_output()?.status.success());
    assert_eq!(comments.lines().filter(|line| line.contains("stage=before")).count(), 20);
    Ok(())
}

/// `weir trace` shows the stages of packets from one client, from the tunnel to the exit.
fn traces(lab: &Lab) -> Outcome {
    let client = IpAddr::V4(AWS_CLIENTS[0]).to_string();
    let frontend = format!("{FRONTEND}:80");
    let config = lab.folder.file("weir.toml");
    let arguments = ["trace", "--client", &client, "--frontend", &frontend, "--packets", "4"];
    let mut command = Command::new(find("weir", "cli")?);
    let output = command.arg("--config").arg(config).args(arguments).output()?;
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.matches("in a tunnel, scope ").count() >= 4, "{text}");
    assert!(text.matches("nat, sent on egress").count() >= 4, "{text}");
    assert!(text.contains("flow entry: backend ") || text.contains("for service lab/web"));
    Ok(())
}

/// No backend serves: the requests of new flows are dropped.
fn dropped_packets(lab: &Lab, weir: &mut Weir) -> Outcome {
    let generation = weir.status()?.generation;
    weir.change_services(&[service(lab, &[])])?;
    weir.wait_for_generation(generation + 1)?;
    let path = lab.folder.file("dropped.pcapng");
    let file = path.display().to_string();
    let running = start(lab, &["-w", &file, "--drop-reason", "no_backend", "--count", "3"])?;
    let traffic = Traffic::start(lab, PAUSE)?;
    let output = running.wait_with_output()?;
    assert!(output.status.success(), "{}", text(&output));
    drop(traffic);
    let rows = rows(&path)?;
    assert_eq!(rows.len(), 3, "a dropped packet has no frame that leaves");
    for row in &rows {
        let decision = (row.get("verdict"), row.get("reason"), row.get("stage"), row.get("exit"));
        assert_eq!(decision, ("drop", "no_backend", "before", "-"));
        assert_eq!(row.get("service"), "lab/web");
    }
    Ok(())
}

#[test]
fn tshark_reads_captures_of_the_dpdk_plane_with_their_decisions() -> Outcome {
    captures_of(Plane::Dpdk)
}

#[test]
fn tshark_reads_captures_of_the_xdp_plane_with_their_decisions() -> Outcome {
    captures_of(Plane::Xdp { native: false })
}
