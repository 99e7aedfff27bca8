//! Accepting connections: transient errors, a lack of descriptors, slots.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::http::Connection;
use crate::slots::Slots;
use crate::source::Source;
use crate::stream::{Socket, Stream};

/// The pause after an error of `accept` that takes no connection out of the kernel's queue.
const PAUSE: Duration = Duration::from_millis(20);

/// A listening socket.
pub trait Accept: Send + 'static {
    /// Its connections.
    type Stream: Socket;

    /// The next connection and where it comes from.
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

/// Accepts connections until it is dropped. Each one that gets a slot is served in a task of its
/// own, until `serve` is done with it or it is evicted.
pub async fn accept<L, S, F>(listener: L, slots: Arc<Slots>, serve: S)
where
    L: Accept + Sync,
    S: Fn(Stream<L::Stream>, Connection) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut spare = Spare::new();
    loop {
        slots.bounded().await;
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

/// Accepts connections and closes them at once, until it is dropped: for peers that only look
/// whether a connection comes about.
pub async fn accept_and_close<L: Accept + Sync>(listener: L, slots: Arc<Slots>) {
    let mut spare = Spare::new();
    loop {
        let (_stream, source) = spare.accept(&listener, &slots).await;
        // Counts it.
        let _ = slots.admit(source);
    }
}

/// A descriptor held back. Without any left, `accept` fails while the connection stays in the
/// kernel's queue: with this one the connection can be taken and closed.
struct Spare(Option<File>);

impl Spare {
    fn new() -> Spare {
        Spare(File::open("/dev/null").ok())
    }

    async fn accept<L: Accept + Sync>(
        &mut self,
        listener: &L,
        slots: &Slots,
    ) -> (L::Stream, Source) {
        loop {
            match listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_exhausted(&error) => self.exhausted(listener, slots).await,
                Err(error) => {
                    // The connection was reset before it was accepted, a firewall forbade it, ...:
                    // the next one has nothing to do with it.
                    tracing::debug!(%error, "a connection could not be accepted");
                    slots.accept_failed();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The process or the machine has no descriptor left: a connection that can be evicted makes
    /// room for the one that waits, or else that one is closed.
    async fn exhausted<L: Accept + Sync>(&mut self, listener: &L, slots: &Slots) {
        if slots.evict_one() {
            slots.settled(0).await;
            return;
        }
        if self.0.take().is_some()
            && let Ok(Ok((stream, _))) = tokio::time::timeout(PAUSE, listener.accept()).await
        {
            stream.reset();
            slots.refused_for_descriptors();
        }
        self.0 = File::open("/dev/null").ok();
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether descriptors or memory are short: EMFILE, ENFILE, ENOBUFS, ENOMEM.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}
