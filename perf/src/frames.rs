//! Builds the frames that generators send.

use tests::frames::{Frame, aws_options, udp};

const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 1];
const WEIR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The kind of frame that a generator sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// UDP over IPv4, 64 bytes: for comparison programs without tunnels
    Plain,
    /// An AWS gateway's: GENEVE with its three options, UDP over IPv4 inside
    Aws,
}

/// Builds one frame for each of `flows` flows (1 to 65,536). The flows differ in the inner source
/// port and, beyond 32,768 flows, also in the inner source address.
pub fn frames(kind: Kind, flows: usize) -> Vec<Vec<u8>> {
    (0..flows.clamp(1, 65_536)).map(|flow| frame(kind, flow)).collect()
}

fn frame(kind: Kind, flow: usize) -> Vec<u8> {
    let (host, port) = (flow / 32_768 + 1, flow % 32_768 + 1024);
    let inner = udp(&format!("10.1.0.{host}:{port}"), "203.0.113.10:80").payload(&[0x57; 22]);
    let ip = match kind {
        Kind::Plain => inner,
        Kind::Aws => {
            let options = aws_options(0x0a11_ce00, 0xbeef, flow as u32);
            inner.in_geneve("10.0.1.20:50000", "10.0.1.10:6081", options)
        }
    };
    Frame::new(GATEWAY, WEIR, ip).bytes()
}
