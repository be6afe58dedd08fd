//! Rates and latencies of frames through forwarders: a table for each kind of frames and distance of both CPUs.
//!
//! Rates of different distances are never compared: they are in different tables.

pub(crate) mod json;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::document::Document;
use std::collections::BTreeMap;
use trapline_model::packets::{Distance, Frames, PacketRequest, Purpose, Trial, TrialFigures};
use trapline_model::packets::{Latency, TrialOutcome};
use trapline_stats::order::{median_interval, Interval};
use trapline_stats::packets::{bounds, Bounds, LoadTrial};
use trapline_stats::paired::{paired_ratio, PairedRatio};
use trapline_stats::Sorted;

/// All trials of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// In the order of the request.
    pub(crate) tables: Vec<FrameTable>,
    /// Paths that were not measured, and why.
    skipped: BTreeMap<String, String>,
    /// Trials that have failed, and why.
    failed: Vec<(String, String)>,
    /// CPU of the ports, and that of the forwarder.
    cpus: [u32; 2],
}

/// Trials of one kind of frames with CPUs of one distance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FrameTable {
    pub frames: Frames,
    pub distance: Distance,
    /// In the order of the request: others are compared with the first.
    pub cells: Vec<Cell>,
}

/// Trials of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub path: String,
    pub trials: Vec<Trial>,
}

/// The median of a figure over rounds, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub value: f64,
    /// `None` for one round.
    pub interval: Option<Interval>,
}

impl Cell {
    /// Figures of the trials for a purpose, with their rounds.
    fn of(&self, purpose: Purpose) -> impl Iterator<Item = (u32, &TrialFigures)> {
        let trials = self.trials.iter().filter(move |it| it.purpose == purpose);
        trials.filter_map(|trial| Some((trial.planned.round, trial.figures()?)))
    }

    /// Figures of the trials whose load was the maximum or given.
    fn loaded(&self) -> impl Iterator<Item = (u32, &TrialFigures)> {
        self.of(Purpose::Maximum).chain(self.of(Purpose::Given))
    }

    fn rounds(&self) -> Vec<(u32, f64)> {
        let all = self.loaded();
        all.map(|(round, figures)| (round, figures.rate()))
            .collect()
    }

    /// Frames that arrived in a second.
    pub fn rate(&self) -> Option<Median> {
        median(self.rounds().into_iter().map(|(_, rate)| rate))
    }

    /// Something of each trial for each frame that arrived.
    fn by_frame(&self, count: impl Fn(&TrialFigures) -> Option<u64>) -> Option<f64> {
        let all = self.loaded().filter(|(_, it)| it.received > 0);
        let each = all.filter_map(|(_, it)| Some(count(it)? as f64 / it.received as f64));
        Some(median(each)?.value)
    }

    /// CPU time of the ports, in nanoseconds for each frame.
    pub fn ports_cpu(&self) -> Option<f64> {
        self.by_frame(|it| Some(it.ports_cpu_ns))
    }

    /// CPU time of the forwarder, in nanoseconds for each frame.
    pub fn forwarder_cpu(&self) -> Option<f64> {
        self.by_frame(|it| it.forwarder_cpu_ns)
    }

    /// Notifications in both directions for each frame.
    pub fn notifications(&self) -> Option<f64> {
        self.by_frame(|it| Some(it.kicks + it.calls))
    }

    /// A percentile of the latency at half of the rate, or at the load that was given, in nanoseconds.
    pub fn latency(&self, percentile: fn(&Latency) -> u64) -> Option<f64> {
        let all = self.of(Purpose::HalfLoad).chain(self.of(Purpose::Given));
        let each = all.filter_map(|(_, it)| Some(percentile(&it.latency?) as f64));
        Some(median(each)?.value)
    }

    /// Share of frames that were lost at the load that was given.
    pub fn loss(&self) -> Option<f64> {
        let each = self.of(Purpose::Given).map(|(_, it)| it.loss());
        Some(median(each)?.value)
    }

    /// Loads of each sender with at most this share of frames lost; `None` if they were not searched.
    pub fn bounds(&self, goal: f64) -> Option<Bounds> {
        let searched = self
            .trials
            .iter()
            .filter(|it| it.purpose == Purpose::Search);
        let trials = searched.filter_map(|trial| {
            let loss = trial.figures()?.loss();
            Some(LoadTrial {
                load: trial.offered?,
                loss,
            })
        });
        let trials: Vec<LoadTrial> = trials.collect();
        (!trials.is_empty()).then(|| bounds(&trials, goal))
    }

    /// Median of the round trips, in nanoseconds.
    fn round_trip(&self) -> Option<f64> {
        Some(median(self.loaded().map(|(_, it)| it.round_trip_ns))?.value)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<Median> {
    let values: Vec<f64> = values.collect();
    Some(Median {
        value: Sorted::new(values.clone())?.median(),
        interval: median_interval(&values),
    })
}

impl FrameTable {
    /// The ratio of the first path's rate to that of another, over the rounds with both.
    pub fn ratio(&self, cell: &Cell) -> Option<PairedRatio> {
        let first = self.cells.first().filter(|first| first.path != cell.path)?;
        paired_ratio(&first.rounds(), &cell.rounds())
    }

    /// The least share of a trial's time in which the thread of the ports, which never waits, had its CPU.
    pub fn least_share_of_cpu(&self) -> Option<f64> {
        let trials = self.cells.iter().flat_map(|cell| &cell.trials);
        let shares = trials.filter_map(|trial| {
            let figures = trial.figures()?;
            Some(figures.ports_cpu_ns as f64 / (figures.duration_ns as f64).max(1.0))
        });
        shares.reduce(f64::min)
    }

    /// Median round trip of a cache line between both CPUs, in nanoseconds.
    pub fn round_trip(&self) -> Option<f64> {
        Some(median(self.cells.iter().filter_map(Cell::round_trip))?.value)
    }
}

impl Rates {
    /// Collects the trials of a request.
    pub fn new(request: &PacketRequest, trials: &[Trial]) -> Self {
        let mut rates = Self {
            tables: Vec::new(),
            skipped: BTreeMap::new(),
            failed: Vec::new(),
            cpus: request.cpus,
        };
        for trial in trials {
            let path = &trial.planned.path;
            match &trial.outcome {
                TrialOutcome::Done(figures) => rates.add(trial, figures),
                TrialOutcome::Skipped(reason) => {
                    rates.skipped.insert(path.clone(), reason.clone());
                }
                TrialOutcome::Failed(reason) => {
                    let at = format!("{path}, {}", trial.planned.frames);
                    rates.failed.push((at, reason.clone()));
                }
            }
        }
        let place = |path: &str| request.paths.iter().position(|it| it == path);
        for table in &mut rates.tables {
            table.cells.sort_by_key(|cell| place(&cell.path));
        }
        rates.tables.sort_by_key(|it| {
            (
                it.frames.direction,
                it.frames.ring,
                it.frames.queues,
                it.frames.size,
                it.distance,
            )
        });
        rates
    }

    fn add(&mut self, trial: &Trial, figures: &TrialFigures) {
        let (frames, distance) = (trial.planned.frames, figures.distance());
        let path = &trial.planned.path;
        if figures.damaged > 0 {
            let at = format!("{path}, {frames}");
            let reason = format!("{} damaged frames", figures.damaged);
            self.failed.push((at, reason));
            return;
        }
        let is_it = |it: &FrameTable| (it.frames, it.distance) == (frames, distance);
        let place = self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(FrameTable {
                frames,
                distance,
                cells: Vec::new(),
            });
            self.tables.len() - 1
        });
        let cells = &mut self.tables[place].cells;
        match cells.iter_mut().find(|cell| cell.path == *path) {
            Some(cell) => cell.trials.push(trial.clone()),
            None => cells.push(Cell {
                path: path.clone(),
                trials: vec![trial.clone()],
            }),
        }
    }

    /// Returns the document of the rates; `version` is Trapline's.
    pub fn document(&self, version: &str) -> Document {
        Document {
            command: "trapline net",
            sections: table::sections(self),
            object: json::object(self, version),
            ..Document::default()
        }
    }

    /// Returns true if no trial failed, and no frame was damaged.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Returns true if there is a figure.
    pub fn has_figures(&self) -> bool {
        !self.tables.is_empty()
    }
}
