//! Test of a process without free descriptors. It is in a file of its own because the limit applies
//! to the whole process.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use axum::Router;
use listeners::{Http, Limits, ReservedNetworks, Slots};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    // Refused connections end with RST.
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn without_descriptors_connections_are_closed_and_accepting_continues() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = Limits { connections: 64, per_source: 64, reserved: 0 };
    let slots = Slots::new(limits, ReservedNetworks::default());
    let context = runtime.enter();
    let listener = listeners::bind("test", "127.0.0.1:0".parse().unwrap()).unwrap();
    drop(context);
    let (addr, of_listener) = (listener.local_addr().unwrap(), Arc::clone(&slots));
    std::thread::spawn(move || {
        let app = Router::new().fallback(|| async { "good" });
        runtime.block_on(listeners::accept(listener, of_listener, move |stream, connection| {
            listeners::http(stream, connection, app.clone(), Http::OneRequest)
        }));
    });
    let connect = || TcpStream::connect(addr).unwrap();
    assert!(request(&mut connect()).ends_with("good"));
    let mut clients: Vec<TcpStream> = Vec::new();
    let limit = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 16), ..limit }).unwrap();
    // Sockets of the clients, created while descriptors are free.
    let sockets: Vec<socket2::Socket> = (0..3)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
        .collect();
    let mut fillers = Vec::new();
    // Use up all descriptors. The first connection holds one until its slot is released.
    loop {
        let closed = slots.counts().open == 0;
        match File::open("/dev/null") {
            Ok(file) => fillers.push(file),
            Err(_) if closed => break,
            Err(_) => std::thread::yield_now(),
        }
    }
    // The listener has no connection to evict, so it closes these without a response.
    for socket in sockets {
        socket.connect(&addr.into()).unwrap();
        clients.push(socket.into());
        assert_eq!(request(clients.last_mut().unwrap()), "");
    }
    assert_eq!(slots.counts().refused_descriptors, 3);
    drop((fillers, clients));
    assert!(request(&mut connect()).ends_with("good"), "it accepts again");
}
