//! Rewriting of addresses and ports, and translation between address families. Mirrors the
//! pipeline's `nat` and `nat64` on bytes that are never sent.

use packet::rewrite::{self, Rewrite};
use packet::translate::{self, Untranslatable};
use packet::window::Window;
use tables::flow::Ends;
use tables::reason::DropReason;

use super::{Reply, Step, Trace, Verdict, drop_with};

impl Trace<'_> {
    /// Returns the rewrites of a packet from the client's side, and of the packet that it quotes.
    pub(super) fn backend_rewrites(&self) -> (Rewrite, Rewrite) {
        self.path.forward_rewrites(&self.inner, self.quoted.as_ref())
    }

    /// Returns the rewrites of a packet from the backend's side, and of the packet that it quotes.
    pub(super) fn client_rewrites(&self, ends: &Ends) -> (Rewrite, Rewrite) {
        // A router on the path keeps its own address, unless the families differ.
        let router = self.inner.src != self.path.backend_addr && !self.path.crosses();
        ends.reply_rewrites(self.quoted.is_some(), router.then_some(self.inner.src))
    }

    /// Checks whether the packet can be rewritten.
    pub(super) fn rewrite(
        &mut self,
        window: &mut Window<'_>,
        (to, quote): (Rewrite, Rewrite),
    ) -> Step {
        self.name_rewrite((&to.src, to.sport), (&to.dst, to.dport));
        if self.path.crosses() {
            return self.translate(window, &to, &quote);
        }
        let done = match &self.quoted {
            None => rewrite::nat(window, &self.inner, &to),
            Some(quoted) => rewrite::nat_quoted(window, &self.inner, quoted, &to, &quote),
        };
        if done.is_err() { drop_with(DropReason::TooShort) } else { Step::Continue(()) }
    }

    /// Checks whether the packet fits after translation. A too-big error states the MTU for packets
    /// of the sender's address family.
    pub(super) fn check_translated_mtu(&mut self, mtu: u16) -> Step {
        let len = translate::translated_len(&self.inner, self.quoted.as_ref());
        let family = if self.inner.v6 { "IPv4" } else { "IPv6" };
        if len <= u32::from(mtu) {
            self.add_reason(format!(
                "translated to {family}, it has {len} bytes; the MTU of {mtu} suffices"
            ));
            return Step::Continue(());
        }
        self.add_reason(format!(
            "translated to {family}, it has {len} bytes; the MTU of {mtu} is too small"
        ));
        Step::Break(Verdict::Reply(Reply::TooBig(translate::sender_mtu(&self.inner, mtu))))
    }

    fn translate(&mut self, window: &mut Window<'_>, to: &Rewrite, quote: &Rewrite) -> Step {
        let ip = &self.inner;
        let done = match &self.quoted {
            Some(quoted) => translate::error(window, ip, quoted, to, quote),
            None => match translate::packet(window, ip, to) {
                Err(Untranslatable::ZeroUdpChecksum)
                    if translate::add_udp_checksum(window, ip).is_ok() =>
                {
                    translate::packet(window, ip, to)
                }
                done => done,
            },
        };
        let why = match done {
            Ok(_) => return Step::Continue(()),
            Err(Untranslatable::Short) => return drop_with(DropReason::TooShort),
            Err(Untranslatable::ZeroUdpChecksum) => {
                "no UDP checksum can be computed: the UDP length is not that of the packet"
            }
            Err(Untranslatable::NoEquivalent) => "the other address family has no equivalent",
        };
        self.add_reason(why);
        drop_with(DropReason::NotTranslatable)
    }
}
