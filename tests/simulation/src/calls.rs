//! What a cloud does to the calls of an appliance: they are slow, fail, take effect all the same,
//! and are answered in any order, or to a process that is gone.

use std::time::{Duration, Instant};

use clouds::failure::Failure;
use fastrand::Rng;

/// How well a cloud answers.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// What becomes of calls: none well, else failing so.
    pub outage: Option<Failure>,
    /// A call takes up to so many seconds until it has its effect, and again until its answer.
    pub slowness: u64,
}

impl Weather {
    /// All is answered.
    pub const FAIR: Weather = Weather { outage: None, slowness: 2 };

    /// Another weather, one of four.
    pub fn change(&mut self, which: u64, rng: &mut Rng) {
        match which {
            0 => self.outage = Some(Failure::Transient),
            1 => self.outage = rng.choice([Failure::Throttled, Failure::Conflict]),
            2 => self.outage = rng.choice([Failure::Denied, Failure::Invalid]),
            _ => self.slowness = 1 + rng.u64(..120),
        }
    }

    /// Whether a call takes effect, and how it fails where it does: what fails may have taken
    /// effect all the same, unless it was refused.
    pub fn befalls(self, rng: &mut Rng) -> (bool, Option<Failure>) {
        let effect = self.outage.is_none_or(|kind| kind.passes() && rng.u32(..3) == 0);
        (effect, self.outage)
    }
}

/// Calls of kind `C` that are under way, answered by `A`.
#[derive(Debug)]
pub struct Calls<C, A> {
    /// How the cloud answers.
    pub weather: Weather,
    calls: Vec<Call<C, A>>,
}

#[derive(Debug)]
struct Call<C, A> {
    call: C,
    process: u64,
    begun: Instant,
    /// When it takes effect; none once it has.
    effect: Option<Instant>,
    answer_at: Instant,
    answer: Option<A>,
    answered: bool,
}

/// A call that was answered.
#[derive(Debug)]
pub struct Ended<C, A> {
    /// The call.
    pub call: C,
    /// The process that made it.
    pub process: u64,
    /// When it began.
    pub begun: Instant,
    /// Its answer.
    pub answer: A,
}

impl<C: Copy, A: Clone> Calls<C, A> {
    /// None so far.
    pub fn new(rng: &mut Rng) -> Calls<C, A> {
        let weather = Weather { outage: None, slowness: 1 + rng.u64(..4) };
        Calls { weather, calls: Vec::new() }
    }

    /// Begins a call of a process.
    pub fn begin(&mut self, call: C, process: u64, now: Instant, rng: &mut Rng) {
        let effect = now + self.takes(rng);
        let (answer_at, effect) = (effect + self.takes(rng), Some(effect));
        let (begun, answer, answered) = (now, None, false);
        self.calls.push(Call { call, process, begun, effect, answer_at, answer, answered });
    }

    /// The process does not wait for the effect of the call that it began last.
    pub fn give_up(&mut self, answer: A, rng: &mut Rng) {
        let takes = self.takes(rng);
        if let Some(call) = self.calls.last_mut() {
            (call.answer_at, call.answer) = (call.begun + takes, Some(answer));
        }
    }

    fn takes(&self, rng: &mut Rng) -> Duration {
        Duration::from_secs(rng.u64(..self.weather.slowness + 1))
    }

    /// The calls of a process that are not answered yet.
    pub fn under_way(&self, process: u64) -> Vec<C> {
        let waits = |call: &&Call<C, A>| call.process == process && !call.answered;
        self.calls.iter().filter(waits).map(|call| call.call).collect()
    }

    /// The next call that takes effect by now; [`Calls::answer`] takes its answer.
    pub fn effect(&mut self, now: Instant) -> Option<(usize, C)> {
        let due = |call: &mut Call<C, A>| call.effect.take_if(|at| now >= *at).is_some();
        let at = self.calls.iter_mut().position(due)?;
        Some((at, self.calls[at].call))
    }

    /// The answer of a call that took effect, unless it was given up.
    pub fn answer(&mut self, at: usize, answer: A) {
        self.calls[at].answer.get_or_insert(answer);
    }

    /// One of the answers that are there by now.
    pub fn ended(&mut self, now: Instant, rng: &mut Rng) -> Option<Ended<C, A>> {
        self.calls.retain(|call| call.effect.is_some() || !call.answered);
        let ready = |call: &Call<C, A>| !call.answered && call.answer_at <= now;
        let ready = |(_, call): &(usize, &Call<C, A>)| ready(call) && call.answer.is_some();
        let ready: Vec<usize> =
            self.calls.iter().enumerate().filter(ready).map(|(at, _)| at).collect();
        let call = &mut self.calls[*ready.get(rng.usize(..ready.len().max(1)))?];
        call.answered = true;
        let (begun, answer) = (call.begun, call.answer.clone()?);
        Some(Ended { call: call.call, process: call.process, begun, answer })
    }
}
