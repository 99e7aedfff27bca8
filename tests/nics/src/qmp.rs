//! QMP, the emulator's control protocol: JSON over a unix socket.

use crate::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time limit of a command; the emulator itself responds at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the emulator.
pub struct Qmp {
    stream: BufReader<UnixStream>,
    /// Events that arrived before a response.
    events: Vec<Value>,
}

impl Qmp {
    pub(crate) fn new(stream: UnixStream) -> Result<Self> {
        let mut qmp = Self { stream: BufReader::new(stream), events: Vec::new() };
        // The greeting.
        qmp.receive(TIMEOUT)?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Executes a command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.stream.get_ref().write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut message = self.receive(TIMEOUT)?;
            if let Some(result) = message.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = message.get("error") {
                return Err(format!("qemu rejected {request}: {error}").into());
            }
            self.events.push(message);
        }
    }

    /// Discards all events up to now, for which nothing has waited.
    pub fn discard_events(&mut self) -> Result {
        // The response arrives after them.
        self.execute("query-status", json!({}))?;
        self.events.clear();
        Ok(())
    }

    /// Waits for an event of this name whose data contain `key` with `value`.
    pub fn wait_for_event(
        &mut self,
        name: &str,
        (key, value): (&str, Value),
        timeout: Duration,
    ) -> Result {
        let begun = Instant::now();
        let matches = |event: &Value| event["event"] == name && event["data"][key] == value;
        loop {
            if let Some(index) = self.events.iter().position(matches) {
                self.events.remove(index);
                return Ok(());
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let expected = format!("{name} with {key} = {value}");
                return Err(format!("qemu reported no {expected} in {timeout:?}").into());
            }
            match self.receive(left) {
                Ok(event) => self.events.push(event),
                // The next iteration reports what is missing.
                Err(_) if begun.elapsed() >= timeout => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn receive(&mut self, timeout: Duration) -> Result<Value> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("qemu has ended".into()),
            Ok(_) => Ok(serde_json::from_str(&line)?),
            Err(e) => Err(format!("no message from qemu in {timeout:?}: {e}").into()),
        }
    }
}
