//! The lab's Azure gateway (the kernel's VXLAN) with a minimal appliance: a real client's TCP
//! goes through the external tunnel, the appliance, the internal tunnel, the server, and back.
//! Also checks the lab's assumption that a packet socket sees the frames that nftables hides from
//! the kernel.

use nix::sys::socket::SockProtocol;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tests::lab::client::{Client, Load};
use tests::lab::gateway::wire_socket::PacketSocket;
use tests::lab::topology::{AZURE_SERVER, Lab};

/// Returns the frame with which the minimal appliance answers `frame`: a reply to an ARP request
/// for 10.0.1.10, or the packet of one tunnel, sent back through the other. `None` for other
/// frames.
fn crossed(frame: &[u8]) -> Option<Vec<u8>> {
    let mut back = frame.to_vec();
    back[0..6].copy_from_slice(&frame[6..12]);
    back[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x10]);
    if frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == [10, 0, 1, 10] {
        back[20..22].copy_from_slice(&[0, 2]);
        back[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 0x10]);
        back[28..32].copy_from_slice(&frame[38..42]);
        back[32..42].copy_from_slice(&frame[22..32]);
        return Some(back);
    }
    if frame[12..14] != [8, 0] || frame[23] != 17 {
        return None;
    }
    let port = u16::from_be_bytes([frame[36], frame[37]]);
    let vni = u32::from_be_bytes([0, frame[46], frame[47], frame[48]]);
    let (port, vni) = match (port, vni) {
        (10_801, 801) => (10_800u16, 800u32),
        (10_800, 800) => (10_801, 801),
        _ => return None,
    };
    back[26..30].copy_from_slice(&frame[30..34]);
    back[30..34].copy_from_slice(&frame[26..30]);
    back[36..38].copy_from_slice(&port.to_be_bytes());
    back[46..49].copy_from_slice(&vni.to_be_bytes()[1..]);
    Some(back)
}

#[test]
fn tcp_crosses_the_kernels_two_tunnels() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let stop = Arc::new(AtomicBool::new(false));
    let crossings = Arc::new(AtomicU32::new(0));
    let (stopped, count) = (stop.clone(), crossings.clone());
    let frames = lab.weir.run(|| PacketSocket::open("in0", SockProtocol::EthAll))??;
    let appliance = std::thread::spawn(move || -> tests::lab::Result<()> {
        let mut buffer = vec![0; 65_536];
        while !stopped.load(Ordering::Relaxed) {
            let Some(frame) = frames.receive(&mut buffer)? else { continue };
            // A packet socket for all protocols also receives the frames that it sends.
            if frame[6..12] != [2, 0, 0, 0, 0, 0x10]
                && let Some(back) = crossed(frame)
            {
                count.fetch_add(1, Ordering::Relaxed);
                frames.send(&back);
            }
        }
        Ok(())
    });
    let target = (AZURE_SERVER, 80).into();
    let stats = Client::start(&lab.azure[0], Load::new(target, 200))?.finish()?;
    stop.store(true, Ordering::Relaxed);
    appliance.join().map_err(|_| "the appliance thread panicked")??;
    assert_eq!((stats.right, stats.failed), (200, 0), "{stats}");
    assert_eq!(stats.by_backend.get("beyond-azure"), Some(&200));
    assert!(crossings.load(Ordering::Relaxed) >= 600);
    // The appliance's kernel received nothing: otherwise it would count datagrams without a port.
    let counted = lab.weir.command("nstat", &["-az", "UdpNoPorts", "IpInReceives"])?;
    assert!(counted.lines().skip(1).all(|line| line.split_whitespace().nth(1) == Some("0")));
    Ok(())
}

#[test]
fn labs_run_side_by_side_and_clean_up() -> Result<(), Box<dyn Error>> {
    let before = std::fs::read_to_string("/proc/net/dev")?.lines().count();
    let (one, two) = (Lab::new(&["web-1"])?, Lab::new(&["web-1"])?);
    let files = [one.folder.file(""), one.folder.shared(""), two.folder.file("")];
    assert!(files.iter().all(|folder| folder.exists()));
    drop((one, two));
    assert!(!files.iter().any(|folder| folder.exists()));
    assert_eq!(before, std::fs::read_to_string("/proc/net/dev")?.lines().count());
    Ok(())
}
