//! Control requests to the emulator (`/_weir/`), and health probes over the network.

use std::time::Duration;

use axum::response::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::azure::emulator::{Emulator, reply};
use crate::azure::probe::Target;
use crate::azure::state::AzureState;

impl Emulator {
    /// Probes each member of a pool whose rules have a probe once, over TCP for a probe of type
    /// `Tcp`, else over HTTP. The result applies to the member's emulated probes from now on.
    pub async fn probe(&self) {
        let targets = self.with(|cloud| {
            cloud.run_probes();
            cloud.probe_targets()
        });
        for target in targets {
            let bound = Duration::from_secs(5);
            let result = tokio::time::timeout(bound, probe_target(&target)).await;
            let good = matches!(result, Ok(Ok(true)));
            self.with(|cloud| cloud.set_probe_result(&target.pool, &target.address, good));
        }
    }
}

/// Performs a probe; returns true on success: HTTP requires status 200, TCP only a connection.
async fn probe_target(target: &Target) -> std::io::Result<bool> {
    let host = match target.address.contains(':') {
        true => format!("[{}]:{}", target.address, target.port),
        false => format!("{}:{}", target.address, target.port),
    };
    let mut stream = TcpStream::connect(&host).await?;
    let Some(path) = &target.path else { return Ok(true) };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(&head[9..] == b"200")
}

/// Answers a request under `/_weir/`.
pub fn answer(emulator: &Emulator, method: &str, command: &str, body: &[u8]) -> Response {
    let text = String::from_utf8_lossy(body).into_owned();
    let done = |()| "done\n".to_owned();
    let result: Result<String, String> = match (method, command) {
        ("GET", "state") => serde_json::to_string_pretty(&emulator.with(|cloud| cloud.clone()))
            .map_err(|e| e.to_string()),
        ("PUT", "state") => serde_json::from_str(&text)
            .map(|cloud: AzureState| emulator.with(|w| *w = cloud))
            .map(done)
            .map_err(|e| e.to_string()),
        ("GET", "ca") => Ok(emulator.ca.clone()),
        ("POST", "advance") => match text.trim().parse::<f64>() {
            Ok(seconds) if (0.0..1e9).contains(&seconds) => {
                emulator.advance(Duration::from_secs_f64(seconds));
                Ok(format!("{:?}\n", emulator.with(|cloud| cloud.now)))
            }
            _ => Err(format!("`{text}` is not a number of seconds")),
        },
        ("POST", "event") => schedule_event(emulator, &text),
        ("POST", "fault") => serde_json::from_str(&text)
            .map(|rule| emulator.fault(rule))
            .map(done)
            .map_err(|e| e.to_string()),
        ("DELETE", "fault") => {
            emulator.clear_faults();
            Ok(done(()))
        }
        ("GET", "calls") => {
            serde_json::to_string_pretty(&emulator.calls()).map_err(|e| e.to_string())
        }
        ("DELETE", "calls") => {
            emulator.take_calls();
            Ok(done(()))
        }
        _ => {
            Err("GET or PUT state, GET ca, POST advance, POST event, POST or DELETE fault, GET or \
                  DELETE calls\n"
                .to_owned())
        }
    };
    match result {
        Ok(text) => reply(200, &[], text),
        Err(why) => reply(400, &[], why),
    }
}

/// Schedules an event, given as type, machine and seconds of notice: `Terminate weir-0 300`.
fn schedule_event(emulator: &Emulator, text: &str) -> Result<String, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [kind, machine, notice] = fields[..] else {
        return Err(format!("`{text}` is not an event type, a machine and seconds of notice"));
    };
    if !["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"].contains(&kind) {
        return Err(format!("`{kind}` is not Freeze, Reboot, Redeploy, Preempt or Terminate"));
    }
    let notice =
        notice.parse().map_err(|e| format!("`{notice}` is not a number of seconds: {e}"))?;
    let notice = Duration::from_secs(notice);
    Ok(emulator.with(|cloud| cloud.schedule(kind, machine, notice)) + "\n")
}
