//! Events that a cloud's lifecycle state machine consumes, and effects that it produces.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::CallError;
use crate::report::Finding;

/// An input of the state machine. `A` is the type of answers to calls, `T` describes the tunnels of
/// the data plane.
#[derive(Clone, Debug)]
pub enum Event<A, T> {
    /// No input: the state machine only advances to the current time.
    Tick,
    /// Whether the appliance can take new traffic.
    Able {
        /// True if it can; see [`Appliance::able`](crate::appliance::Appliance::able).
        able: bool,
        /// Why the appliance is not able.
        reasons: Vec<String>,
    },
    /// Traffic counters of the appliance.
    Activity {
        /// Number of flows that a drain has to wait for.
        flows: u64,
        /// Packets forwarded since start. The state machine checks only whether the number has
        /// changed, and whether it is 0.
        packets: u64,
        /// Packets dropped since start because they belong to no known tunnel. If this number
        /// grows, the tunnels may have changed, and the state machine reads them from the cloud
        /// sooner.
        unknown_tunnel: u64,
    },
    /// The tunnels in force in the data plane, for each pool of the appliance. Only the address
    /// families in this event are managed. The event comes before the first tick and at least once
    /// a second, so that a restarted data plane gets its tunnels again.
    TunnelsInForce(T),
    /// The current Unix time in seconds; scheduled events state their start as a date. `Clock`
    /// comes before the first list of scheduled events, and again before each further one.
    Clock(u64),
    /// SIGTERM was received; a second one ends the process at once.
    Terminate,
    /// A call ended. Every call ends exactly once, at the latest by its own time limit.
    Answered(A),
}

/// An output of the state machine; effects are performed in order. `C` is the type of the kinds of
/// calls, `T` describes the tunnels of the data plane, `K` is the state kept across restarts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<C, T, K> {
    /// Start a call; its answer comes as [`Event::Answered`].
    Call(C),
    /// Set the answer to health probes, which applies before the next effect is performed.
    Probe {
        /// True for status 200, false for 503.
        pass: bool,
        /// Reasons for the 503.
        reasons: Vec<String>,
    },
    /// Set the idle timeout of TCP flows in the data plane to the gateway's.
    FlowTimeout(Duration),
    /// Set the tunnels of the data plane.
    Tunnels(T),
    /// Write state for the next process. The state file is replaced before the next effect is
    /// performed, unless the disk hangs (see [`state_file::write`](crate::state_file::write)).
    Persist(K),
    /// Report a condition that the operator should see.
    Finding(Finding),
    /// End the lifecycle: the process may exit. No effect follows.
    Exit(Exit),
}

/// Defines the kinds of calls of a lifecycle (`Call`) and their answers (`Answer`).
#[macro_export]
macro_rules! calls {
    ($($(#[$about:meta])* $call:ident => $answer:ident($output:ty)),+ $(,)?) => {
        /// A kind of call that the lifecycle makes. At most one call of each kind is in progress.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Call {
            $($(#[$about])* $call),+
        }

        /// The result of a call.
        #[derive(Clone, Debug)]
        pub enum Answer {
            $(#[doc = concat!("Result of [`Call::", stringify!($call), "`].")]
            $answer(Result<$output, $crate::failure::CallError>)),+
        }

        impl Call {
            /// Number of kinds of calls. Their discriminants are 0 to `COUNT - 1`.
            pub const COUNT: usize = [$(Call::$call),+].len();
        }

        impl Answer {
            /// Returns the kind of call that this answers.
            pub fn of(&self) -> Call {
                match self {
                    $(Answer::$answer(_) => Call::$call),+
                }
            }

            /// Returns the answer for a call that failed.
            pub fn failed(call: Call, error: $crate::failure::CallError) -> Answer {
                match call {
                    $(Call::$call => Answer::$answer(Err(error))),+
                }
            }

            /// Returns the error of a failed call.
            pub fn error(&self) -> Option<&$crate::failure::CallError> {
                match self {
                    $(Answer::$answer(result) => result.as_ref().err()),+
                }
            }
        }
    };
}

/// The payload of an event or effect that a cloud does not have: an event or effect with this
/// payload cannot exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Never {}

/// How the lifecycle ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// No flow was active any more.
    Drained,
    /// AWS's deregistration delay has passed: the gateway sends this target nothing more.
    DelayOver,
    /// The deadline of the drain was reached: the drain limit (`drain_cap_s`), or shortly before
    /// the time at which the cloud stops the machine.
    CapOver,
    /// A second SIGTERM was received.
    Forced,
}

/// A cloud's lifecycle as a state machine without clock or sockets: register, stay registered,
/// drain, leave.
pub trait Machine: Send + 'static {
    /// A kind of call; at most one of each kind is in progress.
    type Call: Copy + Send + Sync + 'static;
    /// The result of a call.
    type Answer: Send + 'static;
    /// The tunnels of the data plane.
    type Tunnels;
    /// State that is kept across restarts.
    type Persisted;

    /// Processes an event and returns the effects to perform, in order. The runner calls `step` at
    /// least once a second.
    fn step(
        &mut self,
        now: Instant,
        event: Event<Self::Answer, Self::Tunnels>,
    ) -> Vec<Effect<Self::Call, Self::Tunnels, Self::Persisted>>;
    /// Returns true if the appliance is able and the cloud sends it traffic.
    fn ready(&self) -> bool;
    /// Returns true if, for a minute or longer, the appliance has been able, but its target was
    /// neither healthy nor initial (AWS), or the appliance was not ready (Azure).
    fn differs(&self) -> bool;
    /// Returns the reason for leaving, as given to health probes, and the latest end of the
    /// process; `None` while the appliance is not leaving.
    fn leaving(&self) -> Option<(&'static str, Instant)>;
    /// Returns the answer for a call that failed.
    fn failed(call: Self::Call, error: CallError) -> Self::Answer;
}
