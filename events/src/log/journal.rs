//! journald's native protocol: a datagram of fields for each line.
//!
//! The protocol is that of <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>. The crate
//! `tracing-journald` sends in the calling thread, which a full journald blocks; here the log's
//! thread sends.

use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::format::{Line, message};
use crate::fields::{MAX_VALUE, text};

/// Socket of journald.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// Returns whether standard error is the stream of journald that the variable `JOURNAL_STREAM`
/// names: its device and inode, `DEV:INODE`.
pub fn is_stream(variable: Option<&str>) -> bool {
    let Some((device, inode)) = variable.and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    // Follows the link to the socket itself.
    let Ok(about) = std::fs::metadata("/proc/self/fd/2") else { return false };
    (device.parse(), inode.parse()) == (Ok(about.st_dev()), Ok(about.st_ino()))
}

/// A connection to journald.
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Creates a socket for datagrams to journald.
    ///
    /// # Errors
    /// Fails if no socket can be created.
    pub fn new(path: &Path) -> io::Result<Journal> {
        Ok(Journal { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Fails if journald does not run.
    pub fn send(&self, line: &Line, program: &str) -> io::Result<()> {
        self.socket.send_to(&encode(line, program), &self.path).map(drop)
    }
}

/// Returns the datagram of a line. Weir's fields have the prefix `WEIR_`.
pub fn encode(line: &Line, program: &str) -> Vec<u8> {
    let mut datagram = Vec::new();
    // With all fields, it could be too long for a datagram.
    let mut message = message(line);
    message.truncate(message.floor_char_boundary(MAX_VALUE));
    put(&mut datagram, "MESSAGE", &message);
    put(&mut datagram, "PRIORITY", &line.severity.priority().to_string());
    put(&mut datagram, "SYSLOG_IDENTIFIER", program);
    put(&mut datagram, "WEIR_TARGET", &line.target);
    if let Some(event) = &line.fields.event {
        put(&mut datagram, "WEIR_EVENT", event);
    }
    for (name, value) in &line.fields.values {
        let allowed =
            |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = name.chars().map(allowed).collect();
        put(&mut datagram, &format!("WEIR_{name}"), &text(value));
    }
    datagram
}

fn put(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend(name.as_bytes());
    if value.contains('\n') {
        // A value of several lines has its length in front.
        datagram.push(b'\n');
        datagram.extend((value.len() as u64).to_le_bytes());
    } else {
        datagram.push(b'=');
    }
    datagram.extend(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::format::tests::example;

    #[test]
    fn a_line_arrives_as_a_datagram_of_fields() {
        let path = std::env::temp_dir().join(format!("weir-journal-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let journald = UnixDatagram::bind(&path).unwrap();
        Journal::new(&path).unwrap().send(&example(), "slowpath").unwrap();
        let mut datagram = vec![0; 65536];
        let len = journald.recv(&mut datagram).unwrap();
        let mut expected = b"MESSAGE=BGP session closed peer=10.0.0.1 \
            reason=\"hold timer\\nexpired\" local_asn=64512 empty=\"\"\nPRIORITY=4\n\
            SYSLOG_IDENTIFIER=slowpath\nWEIR_TARGET=bgp\nWEIR_EVENT=bgp_session_closed\n\
            WEIR_PEER=10.0.0.1\nWEIR_REASON\n"
            .to_vec();
        expected.extend([18, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"hold timer\nexpired\nWEIR_LOCAL_ASN=64512\nWEIR_EMPTY=\n");
        assert_eq!(String::from_utf8_lossy(&datagram[..len]), String::from_utf8_lossy(&expected));
        std::fs::remove_file(&path).unwrap();
        assert!(Journal::new(&path).unwrap().send(&example(), "slowpath").is_err());
    }

    #[test]
    fn only_the_stream_of_journald_selects_it() {
        assert!(!is_stream(None));
        assert!(!is_stream(Some("1")));
        assert!(!is_stream(Some("0:0")));
        let about = std::fs::metadata("/proc/self/fd/2").unwrap();
        assert!(is_stream(Some(&format!("{}:{}", about.st_dev(), about.st_ino()))));
    }
}
