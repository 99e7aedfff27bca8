//! Tests of the AWS emulator's own interfaces: its probes, and its control over HTTP.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use patience::{check, eventually};

use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use cloud_emulators::target::{State, Target};

/// Starts an appliance's health listener, which answers with this status, or closes the connection
/// if it is 0. Returns its port.
fn listener(status: &Arc<AtomicU16>) -> u16 {
    let (listener, status) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::clone(status));
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, status) = (stream.unwrap(), status.load(Ordering::Relaxed));
            let mut line = String::new();
            let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
            assert!(line.is_empty() || line == "GET /healthz HTTP/1.1\r\n", "{line}");
            if status > 0 {
                let _ = write!(stream, "HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    port
}

/// Returns a state whose group has one target at 127.0.0.1, probed at `port`.
fn cloud(targets: &str, port: u16) -> AwsState {
    let mut cloud = AwsState::sample(targets);
    cloud.instances[0].interfaces[0].addresses = vec!["127.0.0.1".to_owned()];
    let id = if targets == "ip" { "127.0.0.1".to_owned() } else { cloud.own_instance().to_owned() };
    let group = &mut cloud.groups[0];
    (group.health_port, group.timeout) = (port.to_string(), 1);
    let target = Target::new(&id, false, cloud.now, group.health_check());
    group.targets.push(target);
    cloud
}

#[tokio::test]
async fn probes_use_the_listeners_status_and_fail_without_a_listener() {
    for targets in ["ip", "instance"] {
        let status = Arc::new(AtomicU16::new(503));
        let aws = Emulator::start(cloud(targets, listener(&status))).await.unwrap();
        let state_after = async |seconds: u64| {
            aws.probe().await;
            aws.advance(Duration::from_secs(seconds));
            aws.with(|cloud| cloud.groups[0].targets[0].state)
        };
        assert_eq!(state_after(20).await, State::Unhealthy);
        status.store(200, Ordering::Relaxed);
        assert_eq!(state_after(20).await, State::Unhealthy, "two good ones are not enough");
        assert_eq!(state_after(10).await, State::Healthy);
        status.store(0, Ordering::Relaxed);
        assert_eq!(state_after(20).await, State::Unhealthy);
        status.store(200, Ordering::Relaxed);
        assert_eq!(state_after(30).await, State::Healthy);
        // No server listens on the discard port.
        aws.with(|cloud| cloud.groups[0].health_port = "9".to_owned());
        assert_eq!(state_after(20).await, State::Unhealthy);
    }
}

/// Sends a control request; returns status and body.
fn control(url: &str, method: &str, command: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let head =
        format!("{method} /_weir/{command} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_probes_and_its_state_is_read_and_written_over_http() {
    let status = Arc::new(AtomicU16::new(200));
    let mut first = cloud("ip", listener(&status));
    // With interval 0 each step of the program performs probes.
    first.groups[0].interval = 0;
    let file = std::env::temp_dir().join(format!("weir-state-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(&first).unwrap()).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_weir-aws"));
    program.args(["--listen", "127.0.0.1:0", "--probe", "--state"]).arg(&file);
    let mut running = Process(program.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    std::fs::remove_file(&file).unwrap();
    let url = line.trim().rsplit('=').next().unwrap();
    assert!(line.starts_with(&format!("export AWS_ENDPOINT_URL={url} ")), "{line}");

    let cloud = || -> AwsState {
        let (status, body) = control(url, "GET", "state", "");
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    };
    let until = |what: State| {
        eventually(&format!("a target that is {what:?}"), || {
            let state = cloud().groups[0].targets[0].state;
            check(state == what, || format!("{state:?}"))
        });
    };
    until(State::Healthy);
    status.store(503, Ordering::Relaxed);
    until(State::Unhealthy);

    let mut other = cloud();
    other.groups[0].name = "south".to_owned();
    other.groups[0].targets.clear();
    let written = serde_json::to_string(&other).unwrap();
    assert_eq!(control(url, "PUT", "state", &written), (200, "done\n".to_owned()));
    let read = cloud();
    assert_eq!((read.groups[0].name.as_str(), read.groups[0].targets.len()), ("south", 0));
    let (status, body) = control(url, "PUT", "state", "{\"now\": 1}");
    assert_eq!(status, 400, "{body}");
    assert_eq!(cloud().groups[0].name, "south", "an invalid state changes nothing");
}
