//! `weir capture`: writes packets and the decisions about them to a pcapng file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::Serialize;

use super::options::{GlobalOptions, Output};
use super::output::{print, serialize};
use super::request::{IDLE_TIMEOUT, Request, RequestError, escaped, send};

/// Arguments of `weir capture`.
#[derive(Args)]
pub struct CaptureArgs {
    /// File to write; `-` for standard output, for example to `tshark -r -`
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    /// Capture only this client: ADDRESS, ADDRESS:PORT or NETWORK/LENGTH
    #[arg(long)]
    client: Option<String>,
    /// Capture only this frontend: ADDRESS, ADDRESS:PORT or NETWORK/LENGTH
    #[arg(long)]
    frontend: Option<String>,
    /// Capture only this service
    #[arg(long)]
    service: Option<String>,
    /// Capture only this protocol: tcp, udp, icmp, icmpv6 or a number
    #[arg(long)]
    protocol: Option<String>,
    /// Capture only packets dropped for this reason
    #[arg(long, value_name = "REASON")]
    drop_reason: Option<String>,
    /// Capture only what arrives on this arm: ingress or egress
    #[arg(long)]
    arm: Option<String>,
    /// Capture only this direction: request or reply
    #[arg(long)]
    direction: Option<String>,
    /// Record frames only before or only after the rewrite: before or after
    #[arg(long)]
    stage: Option<String>,
    /// Stop after this many packets, at most 1000000 [default: 10000]
    #[arg(long)]
    count: Option<u32>,
    /// Stop after this many seconds, at most 600 [default: 60]
    #[arg(long)]
    seconds: Option<u32>,
    /// Stop when the file has this many bytes, at most 268435456 [default: 67108864]
    #[arg(long)]
    bytes: Option<u64>,
    /// Record this many bytes of each frame, 64 to 256 [default: 192]
    #[arg(long, value_name = "BYTES")]
    snap: Option<u16>,
}

/// The maximum duration of a capture in seconds.
const MAX_SECONDS: u32 = 600;
/// The maximum length of a block that slowpath writes, in bytes.
const MAX_BLOCK: usize = 1 << 20;
/// Type of a block with a frame.
const ENHANCED_PACKET: u32 = 6;
/// Type of a block with statistics, which ends a complete capture.
const INTERFACE_STATISTICS: u32 = 5;
/// Option of statistics with the number of lost frames.
const DROPPED: u16 = 5;

/// What a capture contains.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Frames in the file: one or two of each packet.
    pub frames: u64,
    /// Frames that matched and are not in the file, because they came faster than they were
    /// written.
    pub lost: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Whether the capture reached one of its limits. Otherwise slowpath ended before.
    #[serde(skip)]
    is_complete: bool,
}

impl CaptureArgs {
    /// Returns the path of the request.
    fn path(&self) -> String {
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        let (count, seconds) =
            (text(self.count.map(Into::into)), text(self.seconds.map(Into::into)));
        let (bytes, snap) = (text(self.bytes), text(self.snap.map(Into::into)));
        let pairs = [
            ("client", &self.client),
            ("frontend", &self.frontend),
            ("service", &self.service),
            ("protocol", &self.protocol),
            ("drop_reason", &self.drop_reason),
            ("arm", &self.arm),
            ("direction", &self.direction),
            ("stage", &self.stage),
            ("count", &count),
            ("seconds", &seconds),
            ("bytes", &bytes),
            ("snap", &snap),
        ];
        let given = pairs.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let query: Vec<String> =
            given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        if query.is_empty() {
            "/capture".to_owned()
        } else {
            format!("/capture?{}", query.join("&"))
        }
    }
}

/// Runs `weir capture`.
pub fn run(options: &GlobalOptions, socket: &Path, args: &CaptureArgs) -> Result<(), String> {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        return Err("--write -: standard output is a terminal; write --write FILE, or pipe the \
                    output to `tshark -r -`"
            .to_owned());
    }
    let seconds = u64::from(args.seconds.unwrap_or(MAX_SECONDS).min(MAX_SECONDS));
    let idle_timeout = IDLE_TIMEOUT + Duration::from_secs(seconds);
    let path = args.path();
    let request = Request { idle_timeout, ..Request::new("POST", &path) };
    let response = send(socket, &request).map_err(|e| e.to_string())?;
    let name = args.write.display();
    let failed = |error: io::Error| format!("{name}: writing the capture: {error}");
    let mut summary = Summary::default();
    let copied = match to_stdout {
        true => copy(response.body, &mut io::stdout().lock(), &mut summary),
        false => {
            let mut file = open_output(&args.write)?;
            let copied = copy(response.body, &mut file, &mut summary);
            if matches!(copied, Err(CopyError::Write(_))) {
                // The disk is full, for example: part of a block is not readable. A pipe cannot be
                // cut.
                let _ = file.set_len(summary.bytes);
            }
            copied
        }
    };
    match copied {
        Ok(()) => {}
        // The reader has seen enough (`weir capture -w - | tshark -c 1 -r -`).
        Err(CopyError::Write(error)) if to_stdout && error.kind() == ErrorKind::BrokenPipe => {
            return Ok(());
        }
        Err(CopyError::Write(error)) => return Err(failed(error)),
        Err(CopyError::Read(error)) => return Err(RequestError::Truncated(error).to_string()),
    }
    let text = || {
        let Summary { frames, lost, .. } = summary;
        let to = if to_stdout { "standard output".to_owned() } else { name.to_string() };
        format!("{frames} frames written to {to}, {lost} lost\n")
    };
    match (to_stdout, options.output()) {
        (false, _) => print(options, &summary, text),
        (true, Output::Table) => eprint!("{}", text()),
        (true, output) => eprint!("{}", serialize(&summary, output)),
    }
    if summary.is_complete {
        return Ok(());
    }
    Err("the capture is incomplete: slowpath stopped or closed the connection".to_owned())
}

/// Opens the output file, and empties it if it exists. A regular file gets mode 0600, because
/// packets may contain what only the administrator may read. The owner and mode of pipes, devices
/// and files that this process has open, such as `/dev/stdout`, stay as they are.
fn open_output(path: &Path) -> Result<File, String> {
    let name = path.display();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let open_files = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"];
    let is_open = open_files.iter().any(|links| path.starts_with(links));
    if !is_open {
        // In a folder where others may write, a link can name any file of the caller.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    }
    let failed = |error: io::Error| format!("{name}: opening the file: {error}");
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => format!(
            "{name}: is a symbolic link, which `weir capture` does not follow; name the file \
             itself, or pipe the output of --write -"
        ),
        _ => failed(error),
    })?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Ok(file);
    }
    let user = geteuid().as_raw();
    if !is_open && found.uid() != user {
        return Err(format!(
            "{name}: belongs to user {}, not to user {user}, who runs `weir capture`; name a new \
             file, or remove this one",
            found.uid()
        ));
    }
    if !is_open {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    }
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

/// Error of [`copy`].
#[derive(Debug)]
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Copies whole blocks, so that the output is readable whenever this process is stopped. After an
/// error of the output, `summary` has what was written before the block that failed.
fn copy(mut from: impl Read, to: &mut impl Write, summary: &mut Summary) -> Result<(), CopyError> {
    let mut block = Vec::new();
    while read_block(&mut from, &mut block).map_err(CopyError::Read)? {
        to.write_all(&block).and_then(|()| to.flush()).map_err(CopyError::Write)?;
        summary.add(&block);
    }
    Ok(())
}

/// Reads the next block. Returns false at the end.
fn read_block(from: &mut impl Read, block: &mut Vec<u8>) -> io::Result<bool> {
    block.clear();
    from.by_ref().take(8).read_to_end(block)?;
    if block.is_empty() {
        return Ok(false);
    }
    let len = word(block, 4).unwrap_or(0) as usize;
    if !len.is_multiple_of(4) || !(12..=MAX_BLOCK).contains(&len) {
        let text = format!("a block of {len} bytes is not of a capture");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    from.by_ref().take(len as u64 - 8).read_to_end(block)?;
    if block.len() < len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}

fn word(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?))
}

impl Summary {
    /// Counts a block.
    fn add(&mut self, block: &[u8]) {
        self.bytes += block.len() as u64;
        match word(block, 0) {
            Some(ENHANCED_PACKET) => self.frames += 1,
            Some(INTERFACE_STATISTICS) => {
                self.is_complete = true;
                self.lost += lost(block).unwrap_or(0);
            }
            _ => {}
        }
    }
}

/// Returns the number of lost frames of a block of statistics.
fn lost(block: &[u8]) -> Option<u64> {
    let mut options = block.get(20..block.len() - 4)?;
    loop {
        let head = word(options, 0)?;
        let (code, len) = (head as u16, (head >> 16) as usize);
        let value = options.get(4..4 + len)?;
        if code == DROPPED {
            return Some(u64::from_le_bytes(value.try_into().ok()?));
        }
        options = options.get(4 + len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath::control::capture::pcapng::{self, Direction, Interface, Packet, Statistics};
    use std::os::fd::AsRawFd;

    fn file() -> Vec<u8> {
        let mut file = Vec::new();
        pcapng::section(&mut file, "weir");
        let named = Interface { name: "ingress", description: "", filter: "", snap: 64 };
        pcapng::interface(&mut file, &named);
        let packet = Packet {
            interface: 0,
            time_ns: 1,
            frame_len: 60,
            bytes: &[0; 60],
            comment: "verdict=drop",
            direction: Direction::Inbound,
            id: 1,
        };
        pcapng::packet(&mut file, &packet);
        for dropped in [2, 3] {
            let (times_ns, delivered) = ((1, 2), 1);
            let accepted = delivered + dropped;
            let counts = Statistics { interface: 0, times_ns, accepted, dropped, delivered };
            pcapng::statistics(&mut file, &counts);
        }
        file
    }

    #[test]
    fn a_capture_is_copied_and_counted() {
        let (file, mut to) = (file(), Vec::new());
        let mut summary = Summary::default();
        copy(&file[..], &mut to, &mut summary).unwrap();
        assert_eq!(to, file);
        let bytes = file.len() as u64;
        assert_eq!(summary, Summary { frames: 1, lost: 5, bytes, is_complete: true });
    }

    #[test]
    fn a_cut_capture_is_written_up_to_its_last_whole_block() {
        let file = file();
        for len in 1..file.len() {
            let mut to = Vec::new();
            let copied = copy(&file[..len], &mut to, &mut Summary::default());
            assert!(file.starts_with(&to));
            if to.len() == len {
                assert!(copied.is_ok());
            } else {
                assert!(matches!(copied, Err(CopyError::Read(_))), "{len}");
            }
        }
        let copied = copy(&[0xff; 64][..], &mut Vec::new(), &mut Summary::default());
        assert!(matches!(copied, Err(CopyError::Read(_))));
    }

    #[test]
    fn a_full_output_is_counted_up_to_its_last_whole_block() {
        let file = file();
        // Lengths up to which the file has whole blocks only.
        let mut ends = vec![0];
        while let Some(len) = word(&file, ends[ends.len() - 1] + 4) {
            ends.push(ends[ends.len() - 1] + len as usize);
        }
        assert_eq!((ends.len(), ends[ends.len() - 1]), (6, file.len()));
        for capacity in 0..file.len() {
            let (mut to, mut summary) = (vec![0; capacity], Summary::default());
            let copied = copy(&file[..], &mut &mut to[..], &mut summary);
            assert!(matches!(copied, Err(CopyError::Write(_))), "{capacity}");
            let whole = ends.iter().rfind(|end| **end <= capacity).unwrap();
            assert_eq!(summary.bytes, *whole as u64);
        }
    }

    #[test]
    fn the_output_file_is_private_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("weir-capture-out-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        let (new, old) = (folder.join("new"), folder.join("old"));
        open_output(&new).unwrap();
        assert_eq!(mode(&new), 0o600);
        std::fs::write(&old, "longer than what follows").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        open_output(&old).unwrap().write_all(b"short").unwrap();
        assert_eq!((mode(&old), std::fs::read(&old).unwrap()), (0o600, b"short".to_vec()));
        let link = folder.join("link");
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let error = open_output(&link).unwrap_err();
        assert!(error.contains("link: is a symbolic link"), "{error}");
        assert_eq!(std::fs::read(&old).unwrap(), b"short");
        open_output(Path::new("/dev/null")).unwrap();
        // Links to open files of this process are followed.
        let shared = File::create(folder.join("shared")).unwrap();
        shared.set_permissions(Permissions::from_mode(0o644)).unwrap();
        let open = Path::new("/proc/self/fd").join(shared.as_raw_fd().to_string());
        open_output(&open).unwrap().write_all(b"frame").unwrap();
        let path = folder.join("shared");
        assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (0o644, b"frame".to_vec()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
