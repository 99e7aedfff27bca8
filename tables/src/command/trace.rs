//! Records of a packet trace: stages, verdicts and exits by number and name, and the state after
//! one stage.
//!
//! The numbers are defined only here: fastpath writes them, and slowpath maps them to names.

use crate::reason::DropReason;

/// Defines an enum whose variants have a number in messages and a name for display.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$help:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$help])* $variant,)*
        }

        impl $name {
            /// All variants in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Name for display.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// Returns the variant with this number.
            pub fn from_u8(number: u8) -> Option<$name> {
                $name::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

named! {
    /// The pipeline stage that a packet has just left, in pipeline order.
    Stage {
        /// Outer headers parsed.
        Parse "parse",
        /// Tunnel identified, inner packet located.
        Decap "decap",
        /// Flow key computed.
        Classify "classify",
        /// Flow looked up.
        Track "track",
        /// Backend selected.
        Select "select",
        /// Packet rewritten and ready for transmission.
        Encap "encap",
    }
}

impl Stage {
    /// The final stage, after which a packet leaves.
    pub const LAST: Stage = Stage::Encap;
}

named! {
    /// A verdict without its parameters.
    Decision {
        /// No stage has decided yet.
        Undecided "undecided",
        /// Returned to the gateway, inner packet unchanged.
        Return "return",
        /// To the flow's backend, with addresses and ports rewritten.
        Nat "nat",
        /// To the flow's backend, encapsulated.
        Tunnel "tunnel",
        /// From a backend to its flow's gateway or client.
        Answer "answer",
        /// To a proxy on this host.
        Redirect "redirect",
        /// To this host's kernel.
        Punt "punt",
        /// Replaced by a reply of the appliance itself.
        Reply "reply",
        /// From this host's kernel, transmitted unchanged on its arm.
        Forward "forward",
        /// From this host's kernel to exactly one backend.
        Probe "probe",
        /// Dropped for the reason in [`TraceState::reason`].
        Drop "drop",
    }
}

named! {
    /// Exit of a packet; [`TraceState::exit_arm`] is its arm.
    TraceExit {
        /// None, or not yet determined.
        NoExit "no exit",
        /// A port of the NIC.
        Port "sent on",
        /// The kernel of this host.
        Kernel "passed to the kernel on",
    }
}

/// State of a packet after a stage. Numbers come from another process and are stored as they are,
/// even if no stage, verdict or exit has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceState {
    /// Verdict: a number of [`Decision`].
    pub decision: u8,
    /// Drop reason: a number of [`DropReason`], if the decision is [`Decision::Drop`].
    pub reason: u8,
    /// Exit: a number of [`TraceExit`].
    pub exit: u8,
    /// Arm of the exit: 0 ingress, 1 egress.
    pub exit_arm: u8,
    /// Whether the flow table contains the packet's flow.
    pub has_flow: bool,
    /// Arm on which the packet arrived: 0 ingress, 1 egress.
    pub arm: u8,
    /// Service id, or `record::NONE`.
    pub service: u32,
    /// Backend id, or `record::NONE`.
    pub backend: u32,
    /// Scope; 0 for plain packets.
    pub scope: u32,
    /// Size of the inner IP packet in bytes.
    pub bytes: u32,
    /// Hash of the flow key; 0 if there is none.
    pub hash: u64,
    /// Source port, in host byte order.
    pub sport: u16,
    /// Destination port, in host byte order.
    pub dport: u16,
}

impl TraceState {
    /// Encodes the state as words of [`super::Event::TraceStage`].
    pub fn words(&self) -> [u64; 5] {
        let first = [self.decision, self.reason, self.exit, self.exit_arm];
        let second = [u8::from(self.has_flow), self.arm, 0, 0];
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [
            pair(u32::from_le_bytes(second), u32::from_le_bytes(first)),
            pair(self.service, self.backend),
            pair(self.scope, self.bytes),
            self.hash,
            u64::from(self.sport) << 16 | u64::from(self.dport),
        ]
    }

    /// Decodes the words of [`super::Event::TraceStage`].
    pub fn read([first, ids, size, hash, ports]: [u64; 5]) -> TraceState {
        let [decision, reason, exit, exit_arm, has_flow, arm, ..] = first.to_le_bytes();
        TraceState {
            decision,
            reason,
            exit,
            exit_arm,
            has_flow: has_flow & 1 != 0,
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

    /// Returns the verdict, or `None` for an unknown number.
    pub fn decision(&self) -> Option<Decision> {
        Decision::from_u8(self.decision)
    }

    /// Returns the drop reason, or `None` if the packet was not dropped or the number is unknown.
    pub fn reason(&self) -> Option<DropReason> {
        let dropped = self.decision() == Some(Decision::Drop);
        DropReason::ALL.get(usize::from(self.reason)).copied().filter(|_| dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_in_all_and_decision_names_are_unique() {
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
    fn trace_state_round_trips() {
        let state = TraceState {
            decision: Decision::Drop as u8,
            reason: DropReason::NoBackend as u8,
            exit: TraceExit::Kernel as u8,
            exit_arm: 1,
            has_flow: true,
            arm: 1,
            service: 0x0102_0304,
            backend: u32::MAX,
            scope: 7,
            bytes: 8_500,
            hash: 0xfeed_0000_0000_beef,
            sport: 40_001,
            dport: 80,
        };
        assert_eq!(TraceState::read(state.words()), state);
        assert_eq!(state.reason(), Some(DropReason::NoBackend));
        assert_eq!(TraceState::read(TraceState::default().words()), TraceState::default());
        let passed = TraceState { decision: Decision::Nat as u8, ..state };
        assert_eq!(passed.reason(), None);
        assert_eq!(TraceState::read([u64::MAX; 5]).decision(), None);
    }
}
