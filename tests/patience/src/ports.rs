//! Ports on which a program of a test can listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Returns a free TCP port that this function has not returned before. It is outside the range of
/// ports that the kernel assigns by itself: any connection could take one of those before its user
/// listens.
#[expect(clippy::unwrap_used, reason = "an error fails the test")]
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let end: u32 = range.split_whitespace().next().unwrap().parse().unwrap();
    assert!(end >= FIRST + 10_000, "too few ports below ip_local_port_range ({end})");
    // Tests run at the same time in several processes: each starts at another port.
    let start = std::process::id().wrapping_mul(97);
    let port = || FIRST + start.wrapping_add(NEXT.fetch_add(1, Relaxed)) % (end - FIRST);
    let mut ports = std::iter::repeat_with(|| port() as u16).take((end - FIRST) as usize);
    ports.find(|port| TcpListener::bind(("::", *port)).is_ok()).unwrap()
}
