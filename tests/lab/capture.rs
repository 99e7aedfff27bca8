//! Packet captures at the far end of a wire, and their analysis by an independent decoder
//! (tshark).
//!
//! A frame that a poll loop sends is invisible to the sender's own kernel, so captures are taken at
//! the far end.

use super::error::{LabError, Result};
use super::gateway::wire_socket::PacketSocket;
use super::netns::{Netns, complete};
use super::tun::LARGEST;
use nix::sys::socket::SockProtocol;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// A running capture.
pub struct Capture {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Capture {
    /// Starts to write every frame on `interface` in `ns`, in both directions, to `path` (pcap).
    pub fn start(ns: &Netns, interface: &str, path: PathBuf) -> Result<Self> {
        let name = interface.to_owned();
        let frames = ns.run(move || PacketSocket::open(&name, SockProtocol::EthAll))??;
        let what = format!("writing {}", path.display());
        let mut file = BufWriter::new(File::create(&path).map_err(LabError::io(what.clone()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            let (mut buffer, mut count) = (vec![0; LARGEST], 0);
            // The file header of the classic pcap format: magic number (times in microseconds),
            // version 2.4, the maximum length, and the link type Ethernet.
            let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, LARGEST as u32, 1];
            let mut write = |words: &[u32], frame: &[u8]| {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let written = file.write_all(&bytes).and_then(|()| file.write_all(frame));
                written.and_then(|()| if frame.is_empty() { file.flush() } else { Ok(()) })
            };
            write(&header, &[]).map_err(LabError::io(what.clone()))?;
            while let Some(frame) = next(&frames, &mut buffer, &stopped)? {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let len = frame.len() as u32;
                let words = [now.as_secs() as u32, now.subsec_micros(), len, len];
                write(&words, frame).map_err(LabError::io(what.clone()))?;
                count += 1;
            }
            write(&[], &[]).map_err(LabError::io(what.clone()))?;
            Ok(count)
        };
        let thread = std::thread::Builder::new().name("capture".into());
        let thread = thread.spawn(work).map_err(LabError::io("starting the capture thread"))?;
        Ok(Self { path, stop, thread })
    }

    /// Stops the capture; returns the file and the number of its frames.
    pub fn stop(self) -> Result<(PathBuf, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let gone = |_| LabError::Other("the capture thread panicked".into());
        Ok((self.path, self.thread.join().map_err(gone)??))
    }
}

/// Returns the next frame, or `None` when the capture is stopped and no frame is left.
fn next<'b>(
    frames: &PacketSocket,
    buffer: &'b mut [u8],
    stop: &AtomicBool,
) -> Result<Option<&'b [u8]>> {
    loop {
        // Only the length is taken out of the match: the borrow checker would keep the buffer
        // borrowed in the case without a frame.
        if let Some(len) = frames.receive(buffer)?.map(|frame| frame.len()) {
            return Ok(Some(&buffer[..len]));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}

/// tshark's decode-as rules for the lab's ports. TCP payloads are not dissected, because tshark may
/// take a connection for IRC by its port, and report it as malformed.
const PORTS: [&str; 5] = [
    "udp.port==10800,vxlan",
    "udp.port==10801,vxlan",
    "udp.port==6081,geneve",
    // GUE variant 1 is IP directly in UDP. Without this rule the source port, which is derived from
    // the flow's hash, may select another protocol's dissector.
    "udp.port==6080,ip",
    "tcp.port==1-65535,data",
];

/// Returns the fields of all frames in `path` that match `filter`, one row per frame. tshark
/// verifies checksums. The values of a field that occurs more than once (outer and inner) are
/// joined by commas.
pub fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Result<Vec<Vec<String>>> {
    let mut args: Vec<String> = vec!["-n".into(), "-r".into(), path.display().to_string()];
    args.extend(PORTS.iter().flat_map(|port| ["-d".to_owned(), (*port).to_owned()]));
    for protocol in ["ip", "udp", "tcp"] {
        args.extend(["-o".to_owned(), format!("{protocol}.check_checksum:TRUE")]);
    }
    // Each frame is analyzed by itself: a capture between gateway and appliance contains every
    // returned packet twice, which reassembly would report as an overlap.
    for setting in ["tcp.desegment_tcp_streams:FALSE", "tcp.analyze_sequence_numbers:FALSE"] {
        args.extend(["-o".to_owned(), setting.to_owned()]);
    }
    args.extend(["-Y".to_owned(), filter.to_owned(), "-T".to_owned(), "fields".to_owned()]);
    args.extend(fields.iter().flat_map(|field| ["-e".to_owned(), (*field).to_owned()]));
    let text = complete("tshark", "tshark", &args, "")?;
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Describes the first ten frames that tshark reports as malformed or with wrong checksums.
pub fn decode_errors(path: &Path) -> Result<Vec<String>> {
    // A quote within an ICMP error is truncated, so its checksum cannot match; and Linux writes a
    // TCP checksum of 0 as 0xffff, as if it were UDP (skb_checksum_help).
    let filter = "_ws.malformed || _ws.short || ip.checksum.status == 0 \
                  || icmp.checksum.status == 0 \
                  || (!icmp && udp.checksum.status == 0) \
                  || (!icmp && tcp.checksum.status == 0 && tcp.checksum != 0xffff)";
    let fields = [
        "frame.number",
        "frame.protocols",
        "ip.src",
        "ip.dst",
        "_ws.expert.message",
        "_ws.col.Info",
    ];
    Ok(tshark(path, filter, &fields)?.into_iter().take(10).map(|row| row.join(" | ")).collect())
}
