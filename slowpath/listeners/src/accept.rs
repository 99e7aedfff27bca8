//! Accept loops: handling of transient errors, exhausted descriptors, and connection slots.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::http::Connection;
use crate::slots::Slots;
use crate::source::Source;
use crate::stream::{Socket, Stream};

/// Delay after an `accept` error. The connection may still be in the kernel's queue, where an
/// immediate retry would fail again.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// A listening socket.
pub trait Accept: Send + 'static {
    /// Type of its connections.
    type Stream: Socket;

    /// Accepts a connection and returns it with its source.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Source)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Source)> {
        let (stream, from) = TcpListener::accept(self).await?;
        Ok((stream, Source::address(from.ip())))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Source)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let source = Source::User(stream.peer_cred()?.uid());
        Ok((stream, source))
    }
}

/// Accepts connections until the future is dropped. Each connection with a slot is served in a task
/// of its own, until `serve` completes or the connection is evicted; a connection without a slot is
/// closed at once, over TCP with RST.
pub async fn accept<L, S, F>(listener: L, slots: Arc<Slots>, serve: S)
where
    L: Accept + Sync,
    S: Fn(Stream<L::Stream>, Connection) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut spare = SpareDescriptor::new();
    loop {
        slots.wait_until_accepting().await;
        let (stream, source) = spare.accept(&listener, &slots).await;
        let Ok((slot, evicted)) = slots.admit(source) else {
            stream.reset();
            continue;
        };
        let slot = Arc::new(slot);
        let connection = Connection::new(Arc::clone(&slot), source);
        let served = serve(Stream::new(stream, Arc::clone(&slot)), connection);
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                Ok(()) = evicted => slot.mark_evicted(),
            }
        });
    }
}

/// Accepts connections and closes them at once, until the future is dropped. For probes of load
/// balancers that only check whether a connection can be established.
pub async fn accept_and_close<L: Accept + Sync>(listener: L, slots: Arc<Slots>) {
    let mut spare = SpareDescriptor::new();
    loop {
        let (_stream, source) = spare.accept(&listener, &slots).await;
        // Only counts the connection, as accepted or refused; a slot is released at once.
        let _ = slots.admit(source);
    }
}

/// A reserved descriptor. Without free descriptors, `accept` fails and the connection stays in the
/// kernel's queue; releasing the reserved descriptor lets the listener accept and close it.
struct SpareDescriptor(Option<File>);

impl SpareDescriptor {
    fn new() -> SpareDescriptor {
        SpareDescriptor(File::open("/dev/null").ok())
    }

    /// Accepts the next connection. Errors of `accept` are handled and never returned.
    async fn accept<L: Accept + Sync>(
        &mut self,
        listener: &L,
        slots: &Slots,
    ) -> (L::Stream, Source) {
        loop {
            match listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_exhausted(&error) => self.handle_exhaustion(listener, slots).await,
                Err(error) => {
                    // Errors such as a connection reset before it was accepted, or one denied by a
                    // firewall, do not concern the next connection.
                    tracing::debug!(event = "accept_failed", %error, "accept failed");
                    slots.accept_failed();
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Handles exhausted descriptors of the process or the machine: evicts a connection in favor of
    /// the one in the kernel's queue, or else accepts and closes that one.
    async fn handle_exhaustion<L: Accept + Sync>(&mut self, listener: &L, slots: &Slots) {
        if slots.evict_one() {
            slots.wait_for_closed(0).await;
            return;
        }
        if self.0.take().is_some()
            && let Ok(Ok((stream, _))) = tokio::time::timeout(RETRY_DELAY, listener.accept()).await
        {
            stream.reset();
            slots.refused_for_descriptors();
        }
        self.0 = File::open("/dev/null").ok();
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Returns whether descriptors or memory are exhausted: EMFILE, ENFILE, ENOBUFS, ENOMEM.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}
