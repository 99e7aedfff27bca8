//! The shell in the virtual machine: a command in, its exit status and output out.

use crate::Result;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The time limit of a command, unless another one is given.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The number of lines among which the shell's first one must be.
const FIRMWARE_LINES: usize = 100;

/// The shell at the machine's second serial port, which its first process or a unit starts.
pub struct Guest {
    stream: RefCell<BufReader<UnixStream>>,
    /// A response is missing or was not understood, so that further ones cannot be assigned.
    lost: Cell<bool>,
}

impl Guest {
    /// Waits until the shell is ready; each line before that may take `timeout`. Firmware writes to
    /// all serial ports, so that a few of its lines may come first.
    pub fn new(stream: UnixStream, timeout: Duration) -> Result<Self> {
        stream.set_read_timeout(Some(timeout))?;
        let guest = Self { stream: RefCell::new(BufReader::new(stream)), lost: Cell::new(false) };
        let mut lines = Vec::new();
        while lines.len() < FIRMWARE_LINES {
            let mut line = Vec::new();
            match guest.stream.borrow_mut().read_until(b'\n', &mut line) {
                Ok(0) => return Err("the emulator ended before the guest's shell started".into()),
                Ok(_) => lines.push(String::from_utf8_lossy(&line).trim_end().to_owned()),
                Err(e) => {
                    let text = format!("the guest started no shell in {timeout:?}: {e}; {lines:?}");
                    return Err(text.into());
                }
            }
            if lines.last().is_some_and(|line| line.ends_with("ready")) {
                return Ok(guest);
            }
        }
        Err(format!("the guest's shell began with {lines:?}").into())
    }

    /// Runs a command and returns its output, both streams together. It must succeed.
    pub fn run(&self, command: &str) -> Result<String> {
        match self.status(command, TIMEOUT)? {
            (0, output) => Ok(output),
            (status, output) => {
                Err(format!("in the guest, `{command}` ended with {status}: {output}").into())
            }
        }
    }

    /// Runs a command and returns its exit status and output.
    pub fn status(&self, command: &str, timeout: Duration) -> Result<(u8, String)> {
        if self.lost.get() {
            return Err("the guest's shell did not respond to an earlier command".into());
        }
        let response = self.exchange(command, timeout);
        self.lost.set(response.is_err());
        response.map_err(|e| format!("in the guest, `{command}`: {e}").into())
    }

    fn exchange(&self, command: &str, timeout: Duration) -> Result<(u8, String)> {
        let stream = &mut *self.stream.borrow_mut();
        stream.get_ref().set_read_timeout(Some(timeout))?;
        // A separate shell for each command: a syntax error would end this one. The output goes
        // through a file, so that its length is known and programs in the background do not mix
        // theirs into it.
        let line = format!(
            "sh -c {} < /dev/null > /tmp/output 2>&1; \
             echo $? $(wc -c < /tmp/output); cat /tmp/output\n",
            quoted(command)
        );
        stream.get_ref().write_all(line.as_bytes())?;
        let mut head = String::new();
        let missing = |e| format!("no response in {timeout:?}: {e}");
        if stream.read_line(&mut head).map_err(missing)? == 0 {
            return Err("the guest has ended".into());
        }
        let numbers = head.trim().split_once(' ');
        let parsed = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (status, len) = parsed.ok_or_else(|| format!("the response began with {head:?}"))?;
        let mut output = vec![0; len];
        stream.read_exact(&mut output).map_err(missing)?;
        Ok((status, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Writes a file.
    pub fn write(&self, path: &str, text: &str) -> Result {
        self.run(&format!("printf %s {} > {path}", quoted(text))).map(drop)
    }

    /// Returns the files below directories of the guest, each with its text.
    pub fn files(&self, directories: &[&str]) -> Result<Vec<(String, String)>> {
        let found = self.run(&format!("find {} -type f", directories.join(" ")))?;
        let read = |path: &str| Ok((path.to_owned(), self.run(&format!("cat {}", quoted(path)))?));
        found.lines().map(read).collect()
    }

    /// Runs a command that ends the shell, such as a reboot, and returns the connection, on which
    /// the shell of the next boot reports that it is ready.
    pub fn leave(self, command: &str) -> Result<UnixStream> {
        let stream = self.stream.into_inner().into_inner();
        (&stream).write_all(format!("{command} > /dev/null 2>&1\n").as_bytes())?;
        Ok(stream)
    }

    /// Starts a program in the background; `log` gets its output. Returns its process id.
    pub fn start(&self, command: &str, log: &str) -> Result<u32> {
        let output = self.run(&format!("{command} > {log} 2>&1 & echo $!"))?;
        output.trim().parse().map_err(|e| format!("{output:?} is no process id: {e}").into())
    }
}

/// Returns `text` as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
