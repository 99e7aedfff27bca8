//! The tunnel backend with real TCP: a real server answers the inner packets, the answers return
//! through the same tunnel, and an independent decoder checks every frame.

use nix::sys::socket::{SockaddrStorage, recvfrom};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tests::lab::capture::{Capture, decode_errors, tshark};
use tests::lab::decap::{Answer, Decap, TunnelKind};
use tests::lab::topology::{EGRESS, Lab};
use tests::lab::wire::{Header, Options, udp4};

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

#[test]
fn replies_return_through_the_tunnel_and_tshark_agrees() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let host = &lab.hosts[0];
    let decap = Decap::start(&host.ns, Answer::Tunnel)?;
    host.ns.ip(&["addr add 203.0.113.10/32 dev lo", "route add 192.0.2.0/24 dev decap0"])?;
    // A UDP server that echoes datagrams.
    let server = host.ns.run(|| UdpSocket::bind((FRONTEND, 7)))??;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = [0; 2_000];
        server.set_read_timeout(Some(Duration::from_secs(30)))?;
        for _ in 0..4 {
            let (len, from) = server.recv_from(&mut buffer)?;
            server.send_to(&buffer[..len], from)?;
        }
        Ok(())
    });
    // The test takes the place of Weir: the bridge has Weir's address.
    lab.lan.ip(&[&format!("addr add {EGRESS}/24 dev br0")])?;
    let capture = Capture::start(&lab.lan, "h0", lab.folder.file("lan.pcap"))?;
    let inner = udp4((CLIENT, 4_000), (FRONTEND, 7), &[b"who is there?"], true);
    let options = Options { endpoint: 7, attachment: 0, cookie: 0xc00c_1e00 };
    let geneve = options.geneve(0x0108, inner[0]);
    let vxlan = [8, 0, 0, 0, 0, 0, 42, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let swapped = [8, 0, 0, 0, 0, 0, 42, 0, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let kinds: [(u16, &[u8], &[u8]); 3] =
        [(6_081, &geneve, &geneve), (4_789, &vxlan, &swapped), (6_080, &[], &[])];
    for (port, front, back) in kinds {
        let socket = lab.lan.run(move || UdpSocket::bind((EGRESS, port)))??;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        socket.send_to(&[front, &inner].concat(), (host.address, port))?;
        let mut buffer = [0; 2_000];
        let (len, from) = socket.recv_from(&mut buffer)?;
        assert_eq!(from, SocketAddr::from((host.address, port)));
        assert_answer(&buffer[..len], back);
    }
    // IPv4 in IPv4 has no port.
    let raw = lab.lan.run(|| {
        let protocol = Some(socket2::Protocol::from(4));
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, protocol)
    })??;
    raw.set_read_timeout(Some(Duration::from_secs(30)))?;
    raw.send_to(&inner, &SocketAddr::from((host.address, 0)).into())?;
    let mut buffer = [0; 2_000];
    let (len, _) = recvfrom::<SockaddrStorage>(raw.as_raw_fd(), &mut buffer)?;
    assert_answer(&buffer[20..len], &[]);
    echo.join().map_err(|_| "the server thread panicked")??;
    for kind in [TunnelKind::Geneve, TunnelKind::Vxlan, TunnelKind::Gue, TunnelKind::Ip4In4] {
        assert_eq!(decap.counts().decapsulated(kind), 1, "{kind:?}");
    }
    let (path, frames) = capture.stop()?;
    assert!(frames >= 8);
    assert_eq!(decode_errors(&path)?, Vec::<String>::new());
    let fields = ["geneve.option.class", "geneve.option.length", "geneve.vni", "ip.dst"];
    let rows = tshark(&path, "geneve", &fields)?;
    let (forward, back) = ("10.0.2.11,203.0.113.10", "10.0.2.10,192.0.2.1");
    assert_eq!(rows.iter().map(|row| &row[3][..]).collect::<Vec<_>>(), [forward, back]);
    assert!(rows.iter().all(|row| row[0] == "0x0108,0x0108,0x0108"), "{rows:?}");
    assert_eq!(tshark(&path, "vxlan.vni == 42", &["ip.dst"])?, [[forward], [back]]);
    Ok(())
}

/// Asserts that `payload` has these headers and then an inner answer that is complete, correct, and
/// of the request's reverse direction.
#[track_caller]
fn assert_answer(payload: &[u8], front: &[u8]) {
    assert_eq!(&payload[..front.len()], front);
    let inner = &payload[front.len()..];
    let header = Header::read(inner);
    assert!(header.is_some_and(|header| header.sums_are_right(inner)), "{inner:02x?}");
    let addresses = header.map(|header| (header.src, header.dst));
    assert_eq!(addresses, Some((FRONTEND.into(), CLIENT.into())));
    assert!(inner.ends_with(b"who is there?"));
}
