//! Connections with a timeout for writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep};

use crate::limits::Timeout;
use crate::peer::Peer;
use crate::slots::Slot;

/// A connected socket.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Makes closing a TCP socket discard unsent data and reset the connection, instead of keeping
    /// the data in the kernel until the peer has read it. Does nothing for Unix sockets.
    fn reset(&self);
}

impl Socket for TcpStream {
    fn reset(&self) {
        // Best effort: the socket is closed in either case.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl Socket for UnixStream {
    fn reset(&self) {}
}

/// A connection with a slot and a write timeout.
pub struct Stream<S: Socket> {
    socket: S,
    slot: Arc<Slot>,
    /// Deadline of the blocked write.
    deadline: Option<Pin<Box<Sleep>>>,
    is_blocked: bool,
    timed_out: bool,
}

impl Stream<UnixStream> {
    /// Returns the process that connected.
    ///
    /// # Errors
    /// A system call failed.
    pub fn peer(&self) -> io::Result<Peer> {
        Peer::of(&self.socket)
    }
}

impl<S: Socket> Stream<S> {
    /// Creates a connection over a socket.
    pub fn new(socket: S, slot: Arc<Slot>) -> Stream<S> {
        Stream { socket, slot, deadline: None, is_blocked: false, timed_out: false }
    }

    /// Returns the result of a write, or an error if writes have been blocked for longer than
    /// [`Timeouts::write`](crate::limits::Timeouts::write).
    fn within_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_blocked = false;
            return written;
        }
        let timeout = self.slot.slots().timeouts().write;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if !self.is_blocked {
            self.is_blocked = true;
            deadline.as_mut().reset(Instant::now() + timeout);
        }
        ready!(deadline.as_mut().poll(cx));
        self.timed_out = true;
        self.slot.slots().timed_out(Timeout::Write);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Socket> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.within_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.within_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.within_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.within_time(cx, shut)
    }
}

impl<S: Socket> Drop for Stream<S> {
    fn drop(&mut self) {
        if self.timed_out || self.slot.is_evicted() {
            self.socket.reset();
        }
    }
}
