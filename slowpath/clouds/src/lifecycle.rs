//! Events that a cloud's lifecycle state machine consumes, and effects that it produces.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::CallError;
use crate::report::Finding;

/// What the state machine consumes. `A` is the answer to one of its calls, `T` the tunnels of the
/// data plane.
#[derive(Clone, Debug)]
pub enum Event<A, T> {
    /// Time passed.
    Tick,
    /// Whether the appliance could take traffic, and if not, why.
    Able {
        /// Lcores poll, links are up, tables are committed and acknowledged.
        able: bool,
        /// Why not.
        reasons: Vec<String>,
    },
    /// The traffic of the appliance.
    Activity {
        /// Flows in the table that are not idle.
        flows: u64,
        /// Packets passed on so far; only its changes matter, and whether it is 0.
        packets: u64,
        /// Packets dropped so far because their tunnel is unknown. When it grows, the tunnels may
        /// have changed, and the cloud is asked sooner.
        strange: u64,
    },
    /// The tunnels that the data plane has in force, for each of the appliance's pools: those of
    /// these families are followed, and no others. It comes before the first tick and at least
    /// once a second, so that a data plane that was set up anew gets what it should have.
    Carries(T),
    /// Seconds since 1970, by which scheduled events say when they begin. It comes before the
    /// first of them, and again whenever they do.
    Clock(u64),
    /// SIGTERM; the second ends the process at once.
    Terminate,
    /// A call ended. Each call ends once, be it by a time limit of its own.
    Told(A),
}

/// What the state machine wants done, in this order. `C` is a kind of call, `T` the tunnels of the
/// data plane, `K` what outlives the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<C, T, K> {
    /// Begin a call; its answer comes as an event.
    Call(C),
    /// The answer to probes from now on. It is in force before the next effect.
    Probe {
        /// 200, or 503.
        pass: bool,
        /// Why 503.
        reasons: Vec<String>,
    },
    /// The data plane forgets idle TCP flows after so long, as the gateway does.
    FlowTimeout(Duration),
    /// The data plane's tunnels become these.
    Tunnels(T),
    /// What the next process has to know; it is on disk before the next effect.
    Keep(K),
    /// Something that people should know.
    Finding(Finding),
    /// Send what is queued, and end the process. No effect follows.
    Exit(Exit),
}

/// Defines a lifecycle's kinds of calls (`Call`), and what each is answered by (`Answer`).
#[macro_export]
macro_rules! calls {
    ($($(#[$about:meta])* $call:ident => $answer:ident($told:ty)),+ $(,)?) => {
        /// A call that the lifecycle makes; of each kind at most one is under way.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Call {
            $($(#[$about])* $call),+
        }

        /// How a call ended.
        #[derive(Clone, Debug)]
        pub enum Answer {
            $(#[doc = concat!("Of [`Call::", stringify!($call), "`].")]
            $answer(Result<$told, $crate::failure::CallError>)),+
        }

        impl Call {
            /// How many kinds there are, each at the place of its number.
            pub const COUNT: usize = [$(Call::$call),+].len();
        }

        impl Answer {
            /// The call that ended.
            pub fn of(&self) -> Call {
                match self {
                    $(Answer::$answer(_) => Call::$call),+
                }
            }

            /// The answer of a call that failed.
            pub fn failed(call: Call, error: $crate::failure::CallError) -> Answer {
                match call {
                    $(Call::$call => Answer::$answer(Err(error))),+
                }
            }

            /// Why it failed, if it did.
            pub fn error(&self) -> Option<&$crate::failure::CallError> {
                match self {
                    $(Answer::$answer(told) => told.as_ref().err()),+
                }
            }
        }
    };
}

/// The payload of an event or effect that a cloud does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Never {}

/// How the lifecycle ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Nothing was active any more.
    Drained,
    /// The gateway had taken all flows away: AWS's deregistration delay was over.
    DelayOver,
    /// `drain_cap_s` was over, or the machine's time.
    CapOver,
    /// A second SIGTERM came.
    Forced,
}

/// A cloud's lifecycle as a state machine without a clock or a socket.
pub trait Machine: Send + 'static {
    /// A kind of call; at most one of each kind is under way.
    type Call: Copy + Send + Sync + 'static;
    /// How a call ended.
    type Answer: Send + 'static;
    /// The tunnels of the data plane.
    type Tunnels;
    /// What outlives the process.
    type Kept;

    /// Consumes an event, and returns what is to be done. It is called at least once a second.
    fn step(
        &mut self,
        now: Instant,
        event: Event<Self::Answer, Self::Tunnels>,
    ) -> Vec<Effect<Self::Call, Self::Tunnels, Self::Kept>>;
    /// Whether the appliance is able and the cloud sends it traffic.
    fn ready(&self) -> bool;
    /// Whether the cloud has reported another health than the appliance's for a minute or longer.
    fn differs(&self) -> bool;
    /// Why the appliance leaves, as probes are told it, and when it is gone at the latest.
    fn leaving(&self) -> Option<(&'static str, Instant)>;
    /// The answer of a call that failed.
    fn failed(call: Self::Call, error: CallError) -> Self::Answer;
}
