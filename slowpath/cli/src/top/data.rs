//! The data of the live view: the last responses, and rates and histories computed from samples.

use std::time::Instant;

use super::history::{Reports, Series, TAKEN, Tracks};
use super::page::RowKey;
use super::sample::{Extra, Query, Sample};

/// The data that slowpath returned, and what was computed from it.
#[derive(Debug)]
pub struct Data {
    /// The last sample.
    pub sample: Sample,
    /// Rates and histories.
    pub tracks: Tracks,
    /// The last response to a page's query, with its time.
    pub extra: Option<(Query, Extra, Instant)>,
}

impl Data {
    /// Starts with a first sample.
    pub fn new(sample: Sample) -> Data {
        let mut data = Data { sample: sample.clone(), tracks: Tracks::default(), extra: None };
        data.accept(sample);
        data
    }

    /// Stores a sample, and computes rates and histories from it.
    pub fn accept(&mut self, sample: Sample) {
        let reports = Reports {
            status: &sample.status,
            services: &sample.services,
            drops: &sample.drops,
            nics: &sample.nics,
        };
        self.tracks.advance(sample.at, &reports);
        self.sample = sample;
    }

    /// Returns the response to a query; `None` before it has arrived.
    pub fn extra(&self, query: &Query) -> Option<&Extra> {
        self.extra.as_ref().filter(|(of, ..)| of == query).map(|(_, extra, _)| extra)
    }

    /// Returns the history of a row.
    pub fn series(&self, key: &RowKey) -> Option<&Series> {
        match key {
            RowKey::Service(name) => self.tracks.service_series(name),
            RowKey::Backend { id, .. } => self.tracks.backend_series(*id),
            RowKey::Drop(arm, reason) => self.tracks.drop_series(arm, reason),
            RowKey::Counter(arm, name) => self.tracks.nic_series(arm, name),
            RowKey::Nic(arm) => self.tracks.nic_series(arm, TAKEN),
            RowKey::Lcore(id) => self.tracks.lcore_series(*id),
            RowKey::Flow(_) | RowKey::Neighbor { .. } | RowKey::Other(_) => None,
        }
    }
}
