//! The kernel's network configuration over rtnetlink, for threads that are not async.
//!
//! A [`Netlink`] owns a connection of the crate `rtnetlink` and the tokio runtime that drives it,
//! on the calling thread and only while a request is pending. The kernel processes a request within
//! the system call that sends it, and the rest of a dump within those that receive its parts. A
//! request therefore takes as long as the kernel needs, including its wait for the RTNL lock.
#![forbid(unsafe_code)]

mod setting;

use std::io;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Error, Handle, IpVersion};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

pub use rtnetlink;
pub use setting::{ChangeError, Setting, Verb, address, family};

/// Flags of a change that adds an object. If the object exists, the error is `EEXIST`.
pub const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Time limit of a request with all parts of its response, checked only between system calls: each
/// of these takes as long as the kernel needs, including its wait for the RTNL lock. The limit ends
/// the wait for a response that was lost because the socket's receive queue was full.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to the kernel's rtnetlink. The first request opens the connection. A request that
/// fails other than by an error of the kernel closes it, and the next request opens it again.
///
/// Requests panic on a thread that runs async tasks, outside of `tokio::task::block_in_place`.
#[derive(Default)]
pub struct Netlink(Option<Connection>);

struct Connection {
    runtime: Runtime,
    handle: Handle,
    task: JoinHandle<()>,
}

impl Connection {
    fn open() -> io::Result<Connection> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (connection, handle, _) = {
            let _inside = runtime.enter();
            rtnetlink::new_connection()?
        };
        let task = runtime.spawn(connection);
        Ok(Connection { runtime, handle, task })
    }
}

impl Netlink {
    /// Runs one request of `rtnetlink` and returns its result: an error is the kernel's or the
    /// connection's.
    ///
    /// # Panics
    ///
    /// Panics on a thread that runs async tasks, outside of `tokio::task::block_in_place`.
    fn run<T, F>(&mut self, request: impl FnOnce(Handle) -> F) -> io::Result<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let open = match self.0.take() {
            Some(open) => open,
            None => Connection::open()?,
        };
        let request = request(open.handle.clone());
        let result = open.runtime.block_on(async { tokio::time::timeout(TIMEOUT, request).await });
        let result = match result? {
            // A closed connection is otherwise indistinguishable from the end of a response.
            _ if open.task.is_finished() => return Err(io::ErrorKind::ConnectionAborted.into()),
            Err(Error::NetlinkError(error)) => Err(error.to_io()),
            other => Ok(other.map_err(io::Error::other)?),
        };
        self.0 = Some(open);
        result
    }

    /// Returns all parts of the response to a request of `rtnetlink`.
    pub fn all<T, S>(&mut self, request: impl FnOnce(Handle) -> S) -> io::Result<Vec<T>>
    where
        S: Stream<Item = Result<T, Error>>,
    {
        self.run(|handle| request(handle).try_collect())
    }

    /// Sends a message that makes a change, with these flags, and waits for the acknowledgment.
    pub fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        self.run(async move |mut handle: Handle| {
            let mut responses = handle.request(request)?;
            while let Some(response) = responses.next().await {
                if let NetlinkPayload::Error(error) = response.payload {
                    return Err(Error::NetlinkError(error));
                }
            }
            Ok(())
        })
    }

    /// Returns the routing rules of all families, those of multicast routing included.
    pub fn rules(&mut self) -> io::Result<Vec<RuleMessage>> {
        self.all(|kernel| {
            let mut request = kernel.rule().get(IpVersion::V4);
            request.message_mut().header.family = AddressFamily::Unspec;
            request.execute()
        })
    }

    /// Returns the interface of this name, or `None` if there is no such interface.
    pub fn link(&mut self, name: &str) -> io::Result<Option<LinkMessage>> {
        let links = self.all(|kernel| kernel.link().get().match_name(name).execute());
        Ok(none_on_errno(links, &[libc::ENODEV])?.and_then(|links| links.into_iter().next()))
    }

    /// Returns the interface of this index, or `None` if there is no such interface.
    pub fn link_at(&mut self, index: u32) -> io::Result<Option<LinkMessage>> {
        let links = self.all(|kernel| kernel.link().get().match_index(index).execute());
        Ok(none_on_errno(links, &[libc::ENODEV])?.and_then(|links| links.into_iter().next()))
    }
}

/// Turns errors with one of these codes into `None`.
pub fn none_on_errno<T>(result: io::Result<T>, codes: &[i32]) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| codes.contains(&code)) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_connection_is_an_error_and_is_reopened() {
        let mut netlink = Netlink::default();
        assert!(netlink.link("lo").unwrap().is_some());
        netlink.0.as_ref().unwrap().task.abort();
        let error = netlink.all(|kernel| kernel.link().get().execute()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(netlink.link_at(1).unwrap().unwrap().header.index, 1);
        assert_eq!(netlink.link("none0").unwrap(), None);
    }
}
