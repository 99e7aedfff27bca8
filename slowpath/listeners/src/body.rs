//! Bodies of requests, which must arrive at a minimum rate, and of responses, whose end is
//! recorded.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as AnyBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::limits::Timeout;
use crate::slots::Slot;

/// Error: the body of a request arrived too slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body arrived too slowly")
    }
}

impl std::error::Error for TooSlow {}

/// The body of a request, with a deadline that received data extends.
pub(crate) struct PacedBody {
    body: Incoming,
    slot: Arc<Slot>,
    started: Instant,
    /// Number of bytes received.
    received: u64,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    pub(crate) fn new(body: Incoming, slot: Arc<Slot>) -> PacedBody {
        slot.request_begins();
        if body.is_end_stream() {
            slot.request_received();
        }
        PacedBody { body, slot, started: Instant::now(), received: 0, deadline: None }
    }

    /// Polls the deadline: `timeouts.body` after the start, plus the time that the bytes received
    /// so far take at the minimum rate.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeouts = self.slot.slots().timeouts();
        let allowed = Duration::from_millis(self.received * 1000 / timeouts.body_rate.max(1));
        let due = self.started + timeouts.body + allowed;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if deadline.deadline() != due {
            deadline.as_mut().reset(due);
        }
        deadline.as_mut().poll(cx)
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.body.is_end_stream() {
                    self.slot.request_received();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.slot.request_received();
                Poll::Ready(None)
            }
            Poll::Pending => self.poll_deadline(cx).map(|()| {
                self.slot.slots().timed_out(Timeout::Body);
                Some(Err(TooSlow.into()))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response; dropping it records the end of the response in the slot.
pub(crate) struct ResponseBody {
    body: AnyBody,
    slot: Arc<Slot>,
    /// Whether the connection is closed after the response.
    closes: bool,
}

impl ResponseBody {
    pub(crate) fn new(body: AnyBody, slot: Arc<Slot>, closes: bool) -> ResponseBody {
        ResponseBody { body, slot, closes }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.slot.response_ended(self.closes);
    }
}
