//! `weir explain`: explains the handling of a packet given as a 5-tuple, a frame, or a capture.

use std::io::Read;
use std::path::Path;

use api::hex;
use clap::Args;
use explain::{ExplainRequest, Explanation};

use super::options::GlobalOptions;
use super::output::print;
use super::request;

/// Arguments of `weir explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// Packet as 5-tuple `tcp 192.0.2.1:1234 -> 203.0.113.1:80`, as Ethernet frame in hexadecimal
    /// digits, or as pcap file; `-` reads one of the first two from standard input
    #[arg(required = true, value_name = "5-TUPLE | HEX | FILE")]
    packet: Vec<String>,
    /// Arm on which the packet arrives: ingress or egress
    #[arg(long, default_value = "ingress")]
    arm: String,
    /// Packet is sent by this machine's kernel through the arm: a proxy's reply, a health check
    #[arg(long, conflicts_with = "gateway")]
    kernel: bool,
    /// Gateway through which the packet that the 5-tuple describes arrives; without it, the packet
    /// arrives without a tunnel
    #[arg(long, default_value = "", value_name = "NAME")]
    gateway: String,
    /// Gateway endpoint (number in the GENEVE options) of the packet that the 5-tuple describes;
    /// used only if `--gateway` is a GENEVE gateway
    #[arg(long, default_value_t = 0)]
    endpoint: u64,
    /// Maximum number of packets of a file
    #[arg(long, default_value_t = 10)]
    packets: usize,
}

/// Runs `weir explain`, which prints an explanation for each packet.
pub fn run(options: &GlobalOptions, socket: &Path, args: &ExplainArgs) -> Result<(), String> {
    let request = ExplainRequest {
        arm: args.arm.clone(),
        kernel: args.kernel,
        gateway: args.gateway.clone(),
        endpoint: args.endpoint,
        packets: packets(args)?,
    };
    let explanations: Vec<Explanation> =
        request::post(socket, "/explain", &request).map_err(|e| e.to_string())?;
    print(options, &explanations, || {
        explanations.iter().map(format_explanation).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Returns the packets given by the arguments: each is a 5-tuple, or a frame in hexadecimal digits.
fn packets(args: &ExplainArgs) -> Result<Vec<String>, String> {
    let text = args.packet.join(" ");
    if text == "-" {
        let mut read = String::new();
        std::io::stdin().read_to_string(&mut read).map_err(|e| format!("standard input: {e}"))?;
        return Ok(vec![read]);
    }
    let file = Path::new(&text);
    if !file.is_file() {
        return Ok(vec![text]);
    }
    let bytes = std::fs::read(file).map_err(|e| format!("{text}: {e}"))?;
    let frames = frames(&bytes, args.packets).map_err(|why| format!("{text}: {why}"))?;
    Ok(frames.iter().map(|frame| hex::text(frame)).collect())
}

/// Returns the first `at_most` frames of a pcap file, which may have either byte order and
/// timestamps in microseconds or nanoseconds.
fn frames(bytes: &[u8], at_most: usize) -> Result<Vec<&[u8]>, String> {
    // Bytes of the file's header, bytes of a packet's header, and the link type of Ethernet.
    const HEAD: usize = 24;
    const RECORD: usize = 16;
    const ETHERNET: u32 = 1;
    let no_pcap =
        || "not a pcap file; convert a pcapng file with `editcap -F pcap FILE NEW`".to_owned();
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    let magic: [u8; 4] = word(0).ok_or_else(no_pcap)?;
    let number: fn([u8; 4]) -> u32 = match u32::from_le_bytes(magic) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
        _ => return Err(no_pcap()),
    };
    let link = word(20).map(number).ok_or_else(no_pcap)?;
    if link != ETHERNET {
        return Err(format!("link type {link} is not supported: capture Ethernet (1)"));
    }
    let (mut frames, mut at) = (Vec::new(), HEAD);
    while frames.len() < at_most
        && let (Some(captured), Some(len)) = (word(at + 8).map(number), word(at + 12).map(number))
    {
        if captured < len {
            return Err(format!(
                "packet {} is truncated to {captured} of {len} bytes; capture whole packets with \
                 `tcpdump -s 0` (`weir capture` records at most 256 bytes of each)",
                frames.len() + 1
            ));
        }
        let first = at + RECORD;
        let frame = bytes.get(first..first + captured as usize);
        frames.push(frame.ok_or("the last packet is truncated")?);
        at = first + captured as usize;
    }
    if frames.is_empty() { Err("the file has no packet".to_owned()) } else { Ok(frames) }
}

/// Formats an explanation: first the outcome, then the reasons.
fn format_explanation(explanation: &Explanation) -> String {
    let verdict = match explanation.drop_reason.as_str() {
        "" => explanation.verdict.clone(),
        reason => format!("{} ({reason})", explanation.verdict),
    };
    let slot =
        explanation.slot.map(|slot| format!("{slot} of {}", explanation.slots)).unwrap_or_default();
    let flow = explanation.flow.map(|flow| flow.to_string()).unwrap_or_default();
    let id = |name: &str, id: Option<u32>| match id {
        Some(id) if !name.is_empty() => format!("{name} (id {id})"),
        _ => name.to_owned(),
    };
    let backend = match explanation.backend_state.as_str() {
        "" => id(&explanation.backend, explanation.backend_id),
        state => format!("{}, {state}", id(&explanation.backend, explanation.backend_id)),
    };
    let rows = [
        ("packet", explanation.packet.clone()),
        ("arrival", explanation.arrival.clone()),
        ("verdict", verdict),
        ("generation", explanation.generation.to_string()),
        ("flow", flow),
        ("frontend", explanation.frontend.clone()),
        ("service", id(&explanation.service, explanation.service_id)),
        ("slot", slot),
        ("backend", backend),
        ("rewrite", explanation.rewrite.clone()),
        ("next hop", explanation.next_hop.clone()),
    ];
    let mut text = String::new();
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{name:<11} {value}\n"));
    }
    for (n, reason) in explanation.reasons.iter().enumerate() {
        text.push_str(&format!("{:<11} {reason}\n", if n == 0 { "reason" } else { "" }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a number of a pcap file in its byte order.
    type Encode = fn(u32) -> [u8; 4];

    /// Returns a pcap file with these packets, each captured without its last `lost` bytes.
    fn pcap(word: Encode, packets: &[&[u8]], link: u32, lost: u32) -> Vec<u8> {
        let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(word).collect();
        for packet in packets {
            let len = packet.len() as u32;
            bytes.extend([0, 0, len, len + lost].into_iter().flat_map(word));
            bytes.extend(*packet);
        }
        bytes
    }

    #[test]
    fn captures_of_both_byte_orders_are_read_up_to_the_packet_limit() {
        let packets: [&[u8]; 3] = [&[1; 60], &[2; 61], &[3; 62]];
        for word in [u32::to_le_bytes as Encode, u32::to_be_bytes] {
            let bytes = pcap(word, &packets, 1, 0);
            assert_eq!(frames(&bytes, 10), Ok(packets.to_vec()));
            assert_eq!(frames(&bytes, 2), Ok(packets[..2].to_vec()));
        }
    }

    #[test]
    fn invalid_or_truncated_capture_is_rejected_with_the_remedy() {
        let packets: [&[u8]; 1] = [&[1; 60]];
        let capture = pcap(u32::to_le_bytes, &packets, 1, 0);
        let error = |bytes: &[u8]| frames(bytes, 10).unwrap_err();
        assert!(error(b"Tue").contains("editcap"));
        // The first block of a pcapng file.
        assert!(error(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0]).contains("editcap"));
        assert!(error(&capture[..24]).contains("no packet"));
        assert!(error(&capture[..50]).contains("is truncated"));
        assert!(error(&pcap(u32::to_le_bytes, &packets, 113, 0)).contains("113"));
        assert!(error(&pcap(u32::to_le_bytes, &packets, 1, 9)).contains("-s 0"));
    }

    #[test]
    fn explanation_omits_empty_fields() {
        let explanation = Explanation {
            packet: "tcp 192.0.2.1:1234 -> 203.0.113.1:80".into(),
            arrival: "plain on ingress".into(),
            generation: 7,
            verdict: "drop".into(),
            drop_reason: "foreign_dst_mac".into(),
            reasons: vec!["the MAC is foreign".into(), "it is dropped".into()],
            ..Explanation::default()
        };
        let text = "packet      tcp 192.0.2.1:1234 -> 203.0.113.1:80\n\
                    arrival     plain on ingress\n\
                    verdict     drop (foreign_dst_mac)\n\
                    generation  7\n\
                    reason      the MAC is foreign\n            it is dropped\n";
        assert_eq!(format_explanation(&explanation), text);
    }
}
