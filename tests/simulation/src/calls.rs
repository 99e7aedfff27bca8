//! Emulated calls of a cloud's API: they are slow, fail, take effect despite an error, and are
//! answered in any order or after the process that made them has ended.

use std::time::{Duration, Instant};

use clouds::failure::Failure;
use fastrand::Rng;

/// How reliably a cloud answers.
#[derive(Clone, Copy, Debug)]
pub struct Reliability {
    /// If set, all calls fail with this error.
    pub outage: Option<Failure>,
    /// The maximum time in seconds until a call takes effect, and from then until its answer.
    pub max_delay: u64,
}

impl Reliability {
    /// All calls succeed, within seconds.
    pub const GOOD: Reliability = Reliability { outage: None, max_delay: 2 };

    /// Changes to one of four kinds of trouble: temporary failures, throttling or conflicts,
    /// permanent failures, and slow calls.
    pub fn change(&mut self, kind: u64, rng: &mut Rng) {
        match kind {
            0 => self.outage = Some(Failure::Transient),
            1 => self.outage = rng.choice([Failure::Throttled, Failure::Conflict]),
            2 => self.outage = rng.choice([Failure::Denied, Failure::Invalid]),
            _ => self.max_delay = 1 + rng.u64(..120),
        }
    }

    /// Returns whether a call takes effect, and its error, if any. A temporary error may be
    /// returned although the call took effect; a permanent one means that it did not.
    pub fn outcome(self, rng: &mut Rng) -> (bool, Option<Failure>) {
        let effect = self.outage.is_none_or(|kind| kind.is_temporary() && rng.u32(..3) == 0);
        (effect, self.outage)
    }
}

/// Calls of kind `C` in progress, with answers of type `A`.
#[derive(Debug)]
pub struct Calls<C, A> {
    /// How reliably the cloud answers.
    pub reliability: Reliability,
    calls: Vec<Call<C, A>>,
}

#[derive(Debug)]
struct Call<C, A> {
    call: C,
    process: u64,
    started: Instant,
    /// When the call takes effect; `None` once it has.
    effect: Option<Instant>,
    answer_at: Instant,
    answer: Option<A>,
    answered: bool,
}

/// A call that was answered.
#[derive(Debug)]
pub struct AnsweredCall<C, A> {
    /// Kind of the call.
    pub call: C,
    /// The number of the process that made the call.
    pub process: u64,
    /// Start of the call.
    pub started: Instant,
    /// Answer of the call.
    pub answer: A,
}

impl<C: Copy, A: Clone> Calls<C, A> {
    /// Creates an empty set of calls, with a random maximum delay of one to four seconds.
    pub fn new(rng: &mut Rng) -> Calls<C, A> {
        let reliability = Reliability { outage: None, max_delay: 1 + rng.u64(..4) };
        Calls { reliability, calls: Vec::new() }
    }

    /// Starts a call of a process.
    pub fn start(&mut self, call: C, process: u64, now: Instant, rng: &mut Rng) {
        let effect = now + self.delay(rng);
        let (answer_at, effect) = (effect + self.delay(rng), Some(effect));
        let (started, answer, answered) = (now, None, false);
        self.calls.push(Call { call, process, started, effect, answer_at, answer, answered });
    }

    /// Answers the last call early, as if its process had given up waiting; the call may still take
    /// effect.
    pub fn give_up(&mut self, answer: A, rng: &mut Rng) {
        let delay = self.delay(rng);
        if let Some(call) = self.calls.last_mut() {
            (call.answer_at, call.answer) = (call.started + delay, Some(answer));
        }
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        Duration::from_secs(rng.u64(..self.reliability.max_delay + 1))
    }

    /// Returns the calls of a process that are not answered yet.
    pub fn in_progress(&self, process: u64) -> Vec<C> {
        let pending = |call: &&Call<C, A>| call.process == process && !call.answered;
        self.calls.iter().filter(pending).map(|call| call.call).collect()
    }

    /// Returns a call that takes effect by `now`, each once; [`Calls::answer`] sets its answer.
    pub fn next_due(&mut self, now: Instant) -> Option<(usize, C)> {
        let due = |call: &mut Call<C, A>| call.effect.take_if(|at| now >= *at).is_some();
        let index = self.calls.iter_mut().position(due)?;
        Some((index, self.calls[index].call))
    }

    /// Sets the answer of a call that took effect, unless its process gave up waiting.
    pub fn answer(&mut self, index: usize, answer: A) {
        self.calls[index].answer.get_or_insert(answer);
    }

    /// Takes a random one of the answers that have arrived by `now`.
    pub fn take_answer(&mut self, now: Instant, rng: &mut Rng) -> Option<AnsweredCall<C, A>> {
        self.calls.retain(|call| call.effect.is_some() || !call.answered);
        let ready = |call: &Call<C, A>| !call.answered && call.answer_at <= now;
        let ready = |(_, call): &(usize, &Call<C, A>)| ready(call) && call.answer.is_some();
        let ready: Vec<usize> =
            self.calls.iter().enumerate().filter(ready).map(|(index, _)| index).collect();
        let call = &mut self.calls[*ready.get(rng.usize(..ready.len().max(1)))?];
        call.answered = true;
        let (started, answer) = (call.started, call.answer.clone()?);
        Some(AnsweredCall { call: call.call, process: call.process, started, answer })
    }
}
