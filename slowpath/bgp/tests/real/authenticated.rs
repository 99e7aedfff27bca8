//! Test of TCP-AO (RFC 5925) with BIRD as neighbor. `tcp-ao.sh` provides a kernel and a BIRD that
//! support TCP-AO.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bgp::peer::settings::{AoAlgorithm, AoKey};
use bgp::session::Direction::{Inbound, Outbound};
use bgp::speaker::PeerConfig;
use routers::{Bird, DEFAULT_TIMEOUT, wait_for};

use crate::network::*;

/// Returns BIRD's configuration with two keys per session: the one with which BIRD opens
/// connections, and one with different IDs at each end.
fn bird() -> String {
    let session = |name: &str, local: &str, neighbor: &str, more: &str| {
        format!(
            "protocol bgp {name} {{ local {neighbor} as {THEIR_ASN}; \
             neighbor {local} as {OUR_ASN}; {more}\n connect retry time 1; connect delay time 1; \
             error wait time 1, 2;\n authentication ao; keys {{\n \
             key {{ id 5; secret \"first\"; algorithm hmac sha1; preferred; }};\n \
             key {{ send id 9; recv id 7; secret \"second\"; algorithm cmac aes128; }};\n }};\n \
             ipv4 {{ import all; export none; extended next hop on; }};\n \
             ipv6 {{ import all; export none; }}; }}\n"
        )
    };
    format!(
        "log stderr all;\nrouter id 10.0.0.2;\nprotocol device {{}}\n{}{}",
        session("four", "10.0.0.1", "10.0.0.2", ""),
        session("six", "fd00::1", "fd00::2", "passive on;"),
    )
}

fn ao(ids: (u8, u8), algorithm: AoAlgorithm, secret: &str) -> AoKey {
    AoKey { send_id: ids.0, receive_id: ids.1, algorithm, secret: secret.to_owned() }
}

/// Returns the configuration of the peer at `address` with these secrets of two keys. Over IPv4,
/// BIRD connects with the first key; over IPv6, the speaker connects with the second.
fn authenticated(address: &str, secrets: [&str; 2]) -> PeerConfig {
    let mut config = peer_config(key(address));
    let first = ao((5, 5), AoAlgorithm::HmacSha1, secrets[0]);
    let second = ao((7, 9), AoAlgorithm::Aes128Cmac, secrets[1]);
    config.settings.transport.tcp_ao = match address {
        NEIGHBOR_V4 => vec![first, second],
        _ => vec![second, first],
    };
    match address {
        NEIGHBOR_V4 => config.settings.passive = true,
        _ => config.listen_port = None,
    }
    config
}

#[test]
#[ignore = "needs a kernel with TCP-AO: make tcp-ao"]
fn sessions_with_equal_tcp_ao_keys_come_up_and_no_others() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let neighbor = Bird::start(&remote_ns, &bird())?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let add = |local: &mut LocalSpeaker, secrets: [&str; 2]| {
        for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
            local.speaker.add(key(address), authenticated(address, secrets));
        }
    };
    let up = |name: &str| -> routers::Result<bool> {
        Ok(neighbor.query(&format!("show protocols {name}"))?.contains("Established"))
    };
    let dropped = |ns: &routers::Netns| -> routers::Result<u64> {
        let text = ns.command("cat", &["/proc/net/netstat"])?;
        Ok(crate::lifetime::counter(&text, "TCPAOBad"))
    };

    // The key IDs match but the secrets differ: the kernel drops each SYN.
    add(&mut local, ["Third", "Fourth"]);
    for ns in [&local_ns, &remote_ns] {
        wait_for("segments dropped for a wrong MAC", DEFAULT_TIMEOUT, || {
            let count = dropped(ns)?;
            Ok((count > 1, count.to_string()))
        })?;
    }
    for (address, name) in [(NEIGHBOR_V4, "four"), (NEIGHBOR_V6, "six")] {
        assert!(!up(name)?);
        assert_eq!(local.status(key(address)).peer.flaps, 0);
    }
    local.wait(key(NEIGHBOR_V6), "an error", |status| {
        status.last_error.as_ref().is_some_and(|last_error| last_error.contains("TCP-AO"))
    })?;

    add(&mut local, ["first", "second"]);
    for (address, direction) in [(NEIGHBOR_V4, Inbound), (NEIGHBOR_V6, Outbound)] {
        let status = local.wait_until_up(key(address))?;
        assert_eq!(status.peer.connection.map(|it| it.direction), Some(direction), "{address}");
        assert_eq!(status.last_error, None);
    }
    for name in ["four", "six"] {
        wait_for(name, DEFAULT_TIMEOUT, || Ok((up(name)?, String::new())))?;
    }

    // SYNs from the neighbor's address but without TCP-AO are not answered.
    drop(neighbor);
    let opened = remote_ns.run(|| {
        let to = ([10, 0, 0, 1], 179).into();
        TcpStream::connect_timeout(&to, Duration::from_secs(5)).map(|mut stream| {
            let read = stream.read(&mut [0; 64]);
            format!("{read:?}")
        })
    })?;
    let error = opened.expect_err("a connection without TCP-AO was opened");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let report = local.speaker.status(Instant::now());
    assert_eq!(report.listeners[0].refused, 0, "{report:?}");
    Ok(())
}
