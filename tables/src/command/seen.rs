//! What a trace tells: stages, verdicts and exits by number and name, and the words of one stage.
//!
//! The numbers are the list here and nowhere else: fastpath writes them, slowpath names them.

use crate::reason::DropReason;

/// An enum whose variants have a number on the wire and a name for people.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$help:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$help])* $variant,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Its name for people.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The one of this number.
            pub fn from_u8(number: u8) -> Option<$name> {
                $name::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

named! {
    /// The stage that a packet has just left, in the order of the fastpath's pipeline.
    Stage {
        /// Outer headers found.
        Parse "parse",
        /// Tunnel recognised, inner packet found.
        Decap "decap",
        /// Flow key known.
        Classify "classify",
        /// Known flow or not.
        Track "track",
        /// Backend chosen.
        Select "select",
        /// Rewritten, ready to leave.
        Encap "encap",
    }
}

impl Stage {
    /// The last one: behind it a packet leaves.
    pub const LAST: Stage = Stage::Encap;
}

named! {
    /// A verdict without what belongs to it.
    Decision {
        /// No stage has decided yet.
        Undecided "undecided",
        /// Back to the gateway, inner packet untouched.
        Return "return",
        /// To the flow's backend by rewriting addresses and ports.
        Nat "nat",
        /// To the flow's backend in a tunnel.
        Tunnel "tunnel",
        /// From a backend to its flow's gateway or client.
        Answer "answer",
        /// To a proxy on this machine.
        Redirect "redirect",
        /// To this machine's kernel.
        Punt "punt",
        /// Weir's own answer.
        Reply "reply",
        /// From this machine's kernel, out by its arm as it is.
        Forward "forward",
        /// From this machine's kernel to exactly one backend.
        Probe "probe",
        /// Dropped; [`Seen::reason`] says why.
        Drop "drop",
    }
}

named! {
    /// Where a packet goes; [`Seen::exit_arm`] says by which arm.
    Way {
        /// Nowhere, or nobody knows yet.
        Nowhere "going nowhere",
        /// Out of a port.
        Port "out of",
        /// To this machine's kernel.
        Kernel "to the kernel by",
    }
}

/// What an lcore knew of a packet after a stage. Numbers that are no stage's, verdict's or way's
/// stand as they came: they are another process's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// A [`Decision`].
    pub decision: u8,
    /// A [`DropReason`], where the decision is [`Decision::Drop`].
    pub reason: u8,
    /// A [`Way`].
    pub way: u8,
    /// The arm of that way.
    pub exit_arm: u8,
    /// Whether its flow is known.
    pub known: bool,
    /// The arm that it came by.
    pub arm: u8,
    /// Service id, or `record::NONE`.
    pub service: u32,
    /// Backend id, or `record::NONE`.
    pub backend: u32,
    /// Its scope, 0 for plain.
    pub scope: u32,
    /// Bytes of the inner IP packet.
    pub bytes: u32,
    /// Hash of its flow key, 0 for none.
    pub hash: u64,
    /// Source port, host order.
    pub sport: u16,
    /// Destination port, host order.
    pub dport: u16,
}

impl Seen {
    /// As words of [`super::Event::TraceStage`].
    pub fn words(&self) -> [u64; 5] {
        let first = [self.decision, self.reason, self.way, self.exit_arm];
        let second = [u8::from(self.known), self.arm, 0, 0];
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [
            pair(u32::from_le_bytes(second), u32::from_le_bytes(first)),
            pair(self.service, self.backend),
            pair(self.scope, self.bytes),
            self.hash,
            u64::from(self.sport) << 16 | u64::from(self.dport),
        ]
    }

    /// From those words.
    pub fn read([first, ids, size, hash, ports]: [u64; 5]) -> Seen {
        let [decision, reason, way, exit_arm, known, arm, ..] = first.to_le_bytes();
        Seen {
            decision,
            reason,
            way,
            exit_arm,
            known: known & 1 != 0,
            arm,
            service: (ids >> 32) as u32,
            backend: ids as u32,
            scope: (size >> 32) as u32,
            bytes: size as u32,
            hash,
            sport: (ports >> 16) as u16,
            dport: ports as u16,
        }
    }

    /// The verdict, if it is one that we know.
    pub fn decision(&self) -> Option<Decision> {
        Decision::from_u8(self.decision)
    }

    /// Why it was dropped, if it was, and the reason is one that we know.
    pub fn reason(&self) -> Option<DropReason> {
        let dropped = self.decision() == Some(Decision::Drop);
        DropReason::ALL.get(usize::from(self.reason)).copied().filter(|_| dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_one_list() {
        for (number, stage) in (0..).zip(Stage::ALL) {
            assert_eq!(Stage::from_u8(number), Some(*stage));
            assert_eq!(*stage as u8, number);
        }
        assert_eq!(Stage::ALL.last(), Some(&Stage::LAST));
        for (number, decision) in (0..).zip(Decision::ALL) {
            assert_eq!(*decision as u8, number);
        }
        let mut names: Vec<_> = Decision::ALL.iter().map(|d| d.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Decision::ALL.len());
        assert_eq!(Stage::from_u8(Stage::ALL.len() as u8), None);
    }

    #[test]
    fn what_was_seen_survives_its_words() {
        let seen = Seen {
            decision: Decision::Drop as u8,
            reason: DropReason::NoBackend as u8,
            way: Way::Kernel as u8,
            exit_arm: 1,
            known: true,
            arm: 1,
            service: 0x0102_0304,
            backend: u32::MAX,
            scope: 7,
            bytes: 8_500,
            hash: 0xfeed_0000_0000_beef,
            sport: 40_001,
            dport: 80,
        };
        assert_eq!(Seen::read(seen.words()), seen);
        assert_eq!(seen.reason(), Some(DropReason::NoBackend));
        assert_eq!(Seen::read(Seen::default().words()), Seen::default());
        let passed = Seen { decision: Decision::Nat as u8, ..seen };
        assert_eq!(passed.reason(), None);
        assert_eq!(Seen::read([u64::MAX; 5]).decision(), None);
    }
}
