//! One connection: from an attempt or from a listener to its last words.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::slot::Slot;
use super::socket;
use crate::peer::{ConnectionId, Input};

/// What is read in one go.
const READ: usize = 64 * 1024;

/// Connects, and serves what comes of it.
pub(super) async fn attempt(slot: Arc<Slot>, number: u64) {
    let stream = match socket::connect(&slot.wanted).await {
        Ok(stream) => stream,
        Err(error) => return slot.failed(number, &error),
    };
    match slot.connected(number, &stream) {
        Ok(Some(id)) => serve(slot, id, stream).await,
        // Given up meanwhile.
        Ok(None) => {}
        Err(error) => slot.failed(number, &error),
    }
}

/// Carries octets both ways until the connection ends.
pub(super) async fn serve(slot: Arc<Slot>, id: ConnectionId, mut stream: TcpStream) {
    let mut room = vec![0; READ];
    let closed = carry(&slot, id, &stream, &mut room).await;
    if let Ok(Some(close_by)) = closed {
        // Closed with something unread, the kernel would take back what the peer has not read yet.
        let last = async {
            stream.shutdown().await?;
            while stream.read(&mut room).await? > 0 {}
            io::Result::Ok(())
        };
        // Who doesn't take our last words doesn't get them.
        let _ = tokio::time::timeout_at(close_by.into(), last).await;
    }
    drop(stream);
    slot.forget(id);
}

/// Until all is written and the connection is to be closed, with the time that is left for that; or
/// until that time is over, or the connection is broken.
async fn carry(
    slot: &Arc<Slot>,
    id: ConnectionId,
    stream: &TcpStream,
    room: &mut [u8],
) -> io::Result<Option<Instant>> {
    while let Some((unwritten, close_by, wake)) = slot.due(id) {
        let interest = match (unwritten, close_by) {
            (false, Some(close_by)) => return Ok(Some(close_by)),
            (true, Some(_)) => Interest::WRITABLE,
            (true, None) => Interest::READABLE | Interest::WRITABLE,
            (false, None) => Interest::READABLE,
        };
        let over = async {
            match close_by {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            ready = stream.ready(interest) => ready?,
            () = wake.notified() => continue,
            () = over => return Ok(None),
        };
        if ready.is_writable() && slot.write(id, |octets| stream.try_write(octets)).is_err() {
            slot.tell_of(id, Input::Closed(id));
            return Ok(None);
        }
        if ready.is_readable() && close_by.is_none() {
            match stream.try_read(room) {
                Ok(0) => slot.tell_of(id, Input::Closed(id)),
                Ok(length) => slot.tell_of(id, Input::Bytes(id, &room[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => slot.tell_of(id, Input::Closed(id)),
            }
        }
    }
    Ok(None)
}
