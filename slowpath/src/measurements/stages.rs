//! Durations of changes by stage.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::histogram::exponential_buckets;

/// A stage of a change on its way to the lcores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The files are read and checked.
    Validate,
    /// The store writes objects to disk.
    Store,
    /// Frontends are compiled into the region's next generation.
    Compile,
    /// The next generation is committed.
    Commit,
    /// The lcores switch to the committed generation, from the commit to the last one.
    Acknowledged,
}

impl Stage {
    /// All stages in their order.
    pub const ALL: [Stage; 5] =
        [Stage::Validate, Stage::Store, Stage::Compile, Stage::Commit, Stage::Acknowledged];

    /// Name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stage::Validate => "validate",
            Stage::Store => "store",
            Stage::Compile => "compile",
            Stage::Commit => "commit",
            Stage::Acknowledged => "acknowledged",
        }
    }
}

/// Label of a duration's exemplar: the generation of the tables that the change led to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct Generation {
    generation: u32,
}

/// A histogram of durations for each stage.
#[derive(Debug)]
pub struct Stages([HistogramWithExemplars<Generation>; Stage::ALL.len()]);

impl Default for Stages {
    fn default() -> Stages {
        // 10 us to 42 s: from a commit to a disk that hangs.
        Stages(Stage::ALL.map(|_| HistogramWithExemplars::new(exponential_buckets(1e-5, 4.0, 12))))
    }
}

impl Stages {
    /// Records a stage's duration, with the generation if it is known.
    pub fn record(&self, stage: Stage, took: Duration, generation: Option<u32>) {
        let exemplar = generation.map(|generation| Generation { generation });
        self.0[stage as usize].observe(took.as_secs_f64(), exemplar, None);
    }

    /// Returns the histograms of all stages.
    pub fn all(&self) -> impl Iterator<Item = (Stage, HistogramWithExemplars<Generation>)> {
        Stage::ALL.into_iter().zip(self.0.iter().cloned())
    }
}
