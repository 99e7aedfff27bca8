//! Assembly of measured spans to traces. A request or a call is a trace of one span. The stages of
//! a change are children of a span `change`, which begins with the first of them.
//!
//! Stages before the compilation do not know the generation that they lead to: they belong to the
//! first generation whose compilation began after they ended. Changes that arrive together are
//! compiled together, and are one trace.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::otlp::{CLIENT, INTERNAL, KeyValue, SERVER, STATUS_ERROR, Span, Status};
use crate::measurements::{self, Stage, Work};

/// How long the spans of a complete change wait for those that another thread records later.
const GRACE: Duration = Duration::from_secs(1);
/// How long the lcores may take to acknowledge a generation before its change is exported without
/// that stage.
const ACKNOWLEDGE_MAX: Duration = Duration::from_secs(15);
/// How long stages wait for a generation, from the end of the last of them. A write of objects that
/// concern no lcore leads to none.
const COMPILE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of stages that wait for a generation. When it is reached, they are exported as a
/// change without one.
const WAITING_STAGES_MAX: usize = 64;

/// Relates instants to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    steady: Instant,
    wall_ns: u64,
}

impl Clock {
    /// Reads both clocks.
    pub fn now() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { steady: Instant::now(), wall_ns: nanoseconds(wall) }
    }

    /// Returns the instant of the reading.
    pub fn steady(&self) -> Instant {
        self.steady
    }

    /// Returns the time of the reading in nanoseconds since 1970.
    pub fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// Returns the time of an instant in nanoseconds since 1970.
    fn at(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.steady) {
            Some(after) => self.wall_ns.saturating_add(nanoseconds(after)),
            None => self.wall_ns.saturating_sub(nanoseconds(self.steady - instant)),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What to do with changes to which further stages may be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incomplete {
    /// They wait for these stages.
    Wait,
    /// They are complete as they are, because the process ends.
    Flush,
}

/// A change whose generation is compiled.
#[derive(Debug)]
struct Change {
    generation: u32,
    compiled: Instant,
    stages: Vec<measurements::Span>,
    /// When its last stage ended, or the next generation was compiled.
    ended: Option<Instant>,
}

/// Generates ids of traces and spans: hashes of a counter, with a key that is derived from the
/// system's random numbers. `fastrand` derives its seed from the uptime, which two machines may
/// share.
#[derive(Debug, Default)]
struct Ids {
    key: RandomState,
    count: u64,
}

impl Ids {
    /// Returns the next id. It is not 0, which is no valid id.
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.key.hash_one(self.count).max(1)
    }

    /// Returns the next id of a trace.
    fn next_trace(&mut self) -> Vec<u8> {
        [self.next().to_be_bytes(), self.next().to_be_bytes()].concat()
    }
}

/// Assembles traces, and keeps them until they are exported.
#[derive(Debug, Default)]
pub struct Traces {
    ids: Ids,
    /// Stages that wait for the compilation of their generation.
    early: Vec<measurements::Span>,
    /// Changes by generation, oldest first.
    changes: VecDeque<Change>,
    complete: VecDeque<Span>,
}

impl Traces {
    /// Adds spans in the order of their records.
    pub fn add(&mut self, spans: Vec<measurements::Span>, clock: Clock) {
        for span in spans {
            match span.work {
                Work::Stage(stage, generation) => self.add_stage(span, stage, generation, clock),
                Work::Request(method, ref route, status) => {
                    let attributes = vec![
                        KeyValue::text("http.request.method", method),
                        KeyValue::text("http.route", route),
                        KeyValue::int("http.response.status_code", status),
                    ];
                    let name = format!("{method} {route}");
                    self.finish_root((name, SERVER, attributes), &span, status >= 500, clock);
                }
                Work::CloudCall(operation, outcome) => {
                    let mut attributes = vec![KeyValue::text("weir.cloud.operation", operation)];
                    if outcome != "ok" {
                        attributes.push(KeyValue::text("error.type", outcome));
                    }
                    let one = (operation.to_owned(), CLIENT, attributes);
                    self.finish_root(one, &span, outcome != "ok", clock);
                }
            }
        }
        self.complete_changes(clock, Incomplete::Wait);
    }

    fn add_stage(
        &mut self,
        span: measurements::Span,
        stage: Stage,
        generation: Option<u32>,
        clock: Clock,
    ) {
        let Some(generation) = generation else {
            // The record of a write may follow that of the compilation, which another thread wrote.
            let ended = span.ended();
            match self.changes.iter_mut().find(|change| change.compiled >= ended) {
                Some(change) => change.stages.push(span),
                None => self.early.push(span),
            }
            if self.early.len() >= WAITING_STAGES_MAX {
                let stages = std::mem::take(&mut self.early);
                self.finish(stages, None, clock);
            }
            return;
        };
        if stage == Stage::Compile {
            for before in &mut self.changes {
                before.ended.get_or_insert(span.began);
            }
            let compiled = span.began;
            let stages = self.early.extract_if(.., |early| early.ended() <= compiled).collect();
            self.changes.push_back(Change { generation, compiled, stages, ended: None });
        }
        if let Some(change) = self.changes.iter_mut().find(|one| one.generation == generation) {
            if stage == Stage::Acknowledged {
                change.ended = Some(span.ended());
            }
            change.stages.push(span);
        }
    }

    /// Completes the changes to which no stage is added any more, and with [`Incomplete::Flush`]
    /// all others as well.
    pub fn complete_changes(&mut self, clock: Clock, incomplete: Incomplete) {
        let now = clock.steady();
        let is_past =
            |at: Instant, wait: Duration| incomplete == Incomplete::Flush || now >= at + wait;
        while let Some(change) = self.changes.pop_front_if(|change| match change.ended {
            Some(ended) => is_past(ended, GRACE),
            None => is_past(change.compiled, ACKNOWLEDGE_MAX),
        }) {
            self.finish(change.stages, Some(change.generation), clock);
        }
        if self.early.last().is_some_and(|last| is_past(last.ended(), COMPILE_MAX)) {
            let stages = std::mem::take(&mut self.early);
            self.finish(stages, None, clock);
        }
    }

    /// Appends the trace of a request or a call to the complete spans.
    fn finish_root(
        &mut self,
        (name, kind, attributes): (String, i32, Vec<KeyValue>),
        measured: &measurements::Span,
        is_error: bool,
        clock: Clock,
    ) {
        let status = is_error.then_some(Status { code: STATUS_ERROR });
        let trace_id = self.ids.next_trace();
        let span = self.span(trace_id, name, (measured.began, measured.ended()), clock);
        self.complete.push_back(Span { kind, attributes, status, ..span });
    }

    /// Appends the trace of a change to the complete spans.
    fn finish(
        &mut self,
        mut stages: Vec<measurements::Span>,
        generation: Option<u32>,
        clock: Clock,
    ) {
        stages.sort_by_key(|stage| (stage.began, stage.ended()));
        let began = stages.first().map(|stage| stage.began);
        let ended = stages.iter().map(measurements::Span::ended).max();
        let Some(times) = began.zip(ended) else { return };
        let trace_id = self.ids.next_trace();
        let whole = self.span(trace_id.clone(), "change".to_owned(), times, clock);
        let attributes = generation.map(|number| KeyValue::int("weir.generation", number));
        let whole = Span { attributes: attributes.into_iter().collect(), ..whole };
        let parent_id = whole.span_id.clone();
        self.complete.push_back(whole);
        for stage in stages {
            let Work::Stage(of, _) = stage.work else { continue };
            let (name, times) = (of.as_str().to_owned(), (stage.began, stage.ended()));
            let span = self.span(trace_id.clone(), name, times, clock);
            self.complete.push_back(Span { parent_span_id: parent_id.clone(), ..span });
        }
    }

    /// Returns a span within the process, without parent and attributes.
    fn span(
        &mut self,
        trace_id: Vec<u8>,
        name: String,
        (began, ended): (Instant, Instant),
        clock: Clock,
    ) -> Span {
        Span {
            trace_id,
            span_id: self.ids.next().to_be_bytes().to_vec(),
            name,
            kind: INTERNAL,
            start_time_unix_nano: clock.at(began),
            end_time_unix_nano: clock.at(ended),
            ..Span::default()
        }
    }

    /// Removes the oldest complete spans so that at most `max` remain, and returns their number.
    pub fn drop_oldest(&mut self, max: usize) -> usize {
        let excess = self.complete.len().saturating_sub(max);
        self.complete.drain(..excess);
        excess
    }

    /// Removes up to `max` complete spans, oldest first.
    pub fn take(&mut self, max: usize) -> Vec<Span> {
        self.complete.drain(..max.min(self.complete.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a stage that began `at` milliseconds after `zero`, and took 1 ms.
    fn stage(zero: Instant, at: u64, stage: Stage, generation: Option<u32>) -> measurements::Span {
        let (began, took) = (zero + Duration::from_millis(at), Duration::from_millis(1));
        measurements::Span { work: Work::Stage(stage, generation), began, took }
    }

    /// Returns the names of complete spans by trace, each with its parent's name first.
    fn names(traces: &mut Traces) -> Vec<Vec<String>> {
        let mut found: Vec<(Vec<u8>, Vec<String>)> = Vec::new();
        for span in traces.take(usize::MAX) {
            match found.last_mut().filter(|(parent, _)| *parent == span.parent_span_id) {
                Some((_, names)) => names.push(span.name),
                None => {
                    assert_eq!(span.parent_span_id, [0; 0]);
                    found.push((span.span_id, vec![span.name]));
                }
            }
        }
        found.into_iter().map(|(_, names)| names).collect()
    }

    #[test]
    fn stages_belong_to_the_next_compilation_and_wait_for_late_records() {
        let (clock, mut traces) = (Clock::now(), Traces::default());
        let zero = clock.steady();
        let at = |ms| Clock { steady: zero + Duration::from_millis(ms), wall_ns: 0 };
        traces.add(
            vec![
                stage(zero, 0, Stage::Validate, None),
                stage(zero, 20, Stage::Compile, Some(7)),
                stage(zero, 21, Stage::Commit, Some(7)),
                // Recorded late, by the thread that writes.
                stage(zero, 10, Stage::Store, None),
                stage(zero, 21, Stage::Store, None),
                stage(zero, 22, Stage::Acknowledged, Some(7)),
            ],
            at(30),
        );
        assert_eq!(names(&mut traces), [[""; 0]; 0], "late records are waited for");
        traces.add(vec![], at(1_100));
        let stages = ["change", "validate", "store", "compile", "commit", "acknowledged"];
        assert_eq!(names(&mut traces), [stages]);
        traces.add(vec![], at(5_000));
        assert_eq!(names(&mut traces), [[""; 0]; 0]);
        traces.add(vec![], at(5_100));
        assert_eq!(names(&mut traces), [["change", "store"]], "no generation followed");
    }

    #[test]
    fn a_generation_that_another_replaces_or_that_is_not_acknowledged_is_complete_too() {
        let (clock, mut traces) = (Clock::now(), Traces::default());
        let zero = clock.steady();
        let at = |ms| Clock { steady: zero + Duration::from_millis(ms), wall_ns: 0 };
        let compile = |ms, number| stage(zero, ms, Stage::Compile, Some(number));
        traces.add(vec![compile(0, 1), compile(10, 2)], at(1_100));
        assert_eq!(names(&mut traces), [["change", "compile"]]);
        traces.add(vec![], at(14_000));
        assert_eq!(names(&mut traces), [[""; 0]; 0]);
        traces.add(vec![], at(15_100));
        assert_eq!(names(&mut traces), [["change", "compile"]]);
        traces.add(vec![compile(20_000, 3)], at(20_001));
        traces.complete_changes(at(20_001), Incomplete::Flush);
        assert_eq!(names(&mut traces), [["change", "compile"]], "at the end all are exported");
    }

    #[test]
    fn requests_and_calls_have_a_status() {
        let (clock, mut traces) = (Clock::now(), Traces::default());
        let one = |work| measurements::Span { work, began: clock.steady(), took: Duration::ZERO };
        let route = || "/v1/objects/{kind}".to_owned();
        let work = [
            Work::Request("GET", route(), 404),
            Work::Request("PUT", route(), 503),
            Work::CloudCall("Describe", "ok"),
            Work::CloudCall("Describe", "throttled"),
        ];
        traces.add(work.map(one).to_vec(), clock);
        let spans = traces.take(10);
        let failed: Vec<bool> = spans.iter().map(|span| span.status.is_some()).collect();
        assert_eq!(failed, [false, true, false, true]);
        assert_eq!(spans[0].name, "GET /v1/objects/{kind}");
        assert_eq!(spans[3].attributes[1], KeyValue::text("error.type", "throttled"));
        traces.add(vec![one(Work::CloudCall("Describe", "ok")); 5], clock);
        assert_eq!((traces.drop_oldest(3), traces.take(10).len()), (2, 3));
        // Ids of traces have 128 bits and differ, also between two instances.
        let mut ids: Vec<Vec<u8>> = spans.iter().map(|span| span.trace_id.clone()).collect();
        let mut others = Traces::default();
        others.add(vec![one(Work::CloudCall("Describe", "ok")); 4], clock);
        ids.extend(others.take(4).into_iter().map(|span| span.trace_id));
        assert!(ids.iter().all(|id| id.len() == 16));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 8);
    }
}
