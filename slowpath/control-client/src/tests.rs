//! Tests of the client against servers that respond completely, in parts, incompletely, and not at
//! all.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use super::*;

/// What a server does after the last part of its response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// It closes the connection.
    Close,
    /// It sends nothing until the client closes the connection.
    Wait,
}

/// A server that reads the head of one request and sends the parts of a response.
struct Server {
    socket: PathBuf,
    thread: JoinHandle<String>,
}

impl Server {
    fn start(name: &str, parts: &'static [&'static str], after: After) -> Server {
        let socket = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        // An earlier process with the same ID leaves the file if its test failed or was killed.
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            for part in parts {
                (&stream).write_all(part.as_bytes()).unwrap();
            }
            while after == After::Wait && lines.next().is_some() {}
            head.join("\n")
        });
        Server { socket, thread }
    }

    fn send(&self, idle_timeout: Duration) -> Result<Response, Error> {
        let headers = &[("If-Match", "*")];
        send(&self.socket, &Request { headers, idle_timeout, ..Request::new("PUT", "/a?b=c") })
    }

    /// Waits until the server has ended, and returns the head of the request that it received.
    fn end(self) -> String {
        std::fs::remove_file(&self.socket).unwrap();
        self.thread.join().unwrap()
    }
}

#[test]
fn a_request_is_sent_and_its_response_read() {
    let parts = &["HTTP/1.0 202 Accepted\r\nETag: \"7\"\r\n\r\n", "on ", "its way"];
    let server = Server::start("whole", parts, After::Close);
    let response = server.send(IDLE_TIMEOUT).unwrap();
    assert_eq!(response.status, StatusCode::ACCEPTED);
    assert_eq!(response.headers["etag"], "\"7\"");
    assert_eq!(response.text().unwrap(), "on its way");
    let sent = server.end();
    assert!(sent.starts_with("PUT /a?b=c HTTP/1.0\n"), "{sent}");
    assert!(sent.contains("host: weir") && sent.contains("if-match: *"), "{sent}");
}

#[test]
fn lines_are_read_as_they_arrive_and_the_connection_closes_when_the_body_is_dropped() {
    let server =
        Server::start("lines", &["HTTP/1.1 200 OK\r\n\r\n", "one\n", "two\n"], After::Wait);
    let mut body = BufReader::new(server.send(IDLE_TIMEOUT).unwrap().body);
    for expected in ["one\n", "two\n"] {
        let mut line = String::new();
        body.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }
    drop(body);
    server.end();
}

#[test]
fn truncated_or_late_response_or_missing_socket_is_an_error() {
    let broken = |name, parts, after, idle_timeout| {
        let server = Server::start(name, parts, after);
        let text = server.send(idle_timeout).and_then(|response| Ok(response.text()?));
        server.end();
        io::Error::from(text.unwrap_err())
    };
    let ended = broken("ended", &[], After::Close, IDLE_TIMEOUT);
    assert_eq!(ended.to_string(), "the connection ended before the end of the response");
    let short = &["HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhalf"];
    assert_eq!(
        broken("short", short, After::Close, IDLE_TIMEOUT).kind(),
        io::ErrorKind::UnexpectedEof
    );
    let soon = Duration::from_millis(20);
    assert_eq!(broken("silent", &[], After::Wait, soon).kind(), io::ErrorKind::TimedOut);
    let part = &["HTTP/1.0 200 OK\r\n\r\n", "a part"];
    assert_eq!(broken("stuck", part, After::Wait, soon).kind(), io::ErrorKind::TimedOut);
    let absent = send(Path::new("/nonexistent/weir.sock"), &Request::new("GET", "/"));
    assert!(matches!(absent, Err(Error::Connect(_))));
}
