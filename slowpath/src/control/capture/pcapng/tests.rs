//! Files of this writer as tshark and capinfos read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// A file that is removed with the value.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn write(name: &str, bytes: &[u8]) -> Written {
    let path = std::env::temp_dir().join(format!("weir-pcapng-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    Written(path)
}

/// Returns the lines that tshark prints of these fields, separated by `|`.
fn tshark(path: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "separator=|"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let out = command.output().expect("tshark, which `make setup` installs");
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{error}");
    assert!(!error.contains("cut short") && !error.contains("appears to be"), "{error}");
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// An Ethernet frame with an IPv4 UDP packet, cut to `len` bytes.
fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 100, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 203, 0, 113, 10]);
    frame.extend([0x9c, 0x41, 0, 53, 0, 80, 0, 0]);
    frame.resize(114, 0xee);
    frame.truncate(len);
    frame
}

#[test]
fn tshark_reads_frames_comments_and_directions() {
    let mut out = Vec::new();
    section(&mut out, "weir 0.0.0");
    for name in ["ingress", "egress"] {
        interface(&mut out, &Interface { name, description: "arm", filter: "all", snap: 192 });
    }
    // All lengths modulo four, of frames and of comments.
    for len in 60..68_usize {
        let comment = format!("verdict=nat reason={} stage=before", "x".repeat(len % 5));
        packet(
            &mut out,
            &Packet {
                interface: (len % 2) as u32,
                time_ns: 1_700_000_000_123_456_789 + len as u64,
                frame_len: 114,
                bytes: &frame(len),
                comment: &comment,
                direction: if len % 2 == 0 { Direction::Inbound } else { Direction::Outbound },
                id: 7,
            },
        );
    }
    let times_ns = (1_700_000_000_000_000_000, 1_700_000_001_000_000_000);
    for interface in 0..2 {
        let counts = Statistics { interface, times_ns, accepted: 9, dropped: 5, delivered: 4 };
        statistics(&mut out, &counts);
    }
    let file = write("fields", &out);
    let fields = [
        "frame.comment",
        "frame.len",
        "frame.cap_len",
        "frame.interface_name",
        "ip.src",
        "udp.dstport",
        "frame.time_epoch",
        "frame.packet_flags_direction",
    ];
    let lines = tshark(&file.0, &fields);
    assert_eq!(lines.len(), 8);
    for (len, line) in (60..).zip(lines) {
        let values: Vec<&str> = line.split('|').collect();
        let comment = format!("verdict=nat reason={} stage=before", "x".repeat(len % 5));
        let (name, direction) = if len % 2 == 0 { ("ingress", 1) } else { ("egress", 2) };
        assert_eq!(values[0], comment);
        assert_eq!(values[1..4], ["114", &len.to_string(), name]);
        assert_eq!(values[4..6], ["192.0.2.1", "53"]);
        assert!(values[6].starts_with(&format!("1700000000.1234568{:02}", 49 + len - 60)));
        let flag = u32::from_str_radix(values[7].trim_start_matches("0x"), 16).unwrap();
        assert_eq!(flag, direction);
    }
}

#[test]
fn capinfos_shows_what_was_lost() {
    let mut out = Vec::new();
    section(&mut out, "weir 0.0.0");
    let description = "a".repeat(100_000);
    let named = Interface { name: "ingress", description: &description, filter: "", snap: 64 };
    interface(&mut out, &named);
    let times_ns = (1, 2);
    let counts = Statistics { interface: 0, times_ns, accepted: 9, dropped: 5, delivered: 4 };
    statistics(&mut out, &counts);
    let file = write("statistics", &out);
    let out = Command::new("capinfos").arg(&file.0).output().expect("capinfos, with tshark");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{out:?}");
    assert!(text.contains("Capture application: weir 0.0.0"), "{text}");
    assert!(text.contains("Number of stat entries = 1"), "{text}");
    assert_eq!(tshark(&file.0, &["frame.number"]), [] as [&str; 0]);
}
