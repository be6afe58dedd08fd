//! Rates and latencies of frames through forwarders: a table for each kind of frames and distance of both CPUs.
//!
//! Rates of different distances are never compared: they are in different tables.

use std::collections::BTreeMap;
use trapline_model::packets::{Direction, Distance, Latency, Purpose, Queues, Trial};
use trapline_model::{EnvironmentId, Observation, Operation, Outcome};
use trapline_stats::order::{median_interval, Interval};
use trapline_stats::packets::{bounds, interval_of_searches, Bounds, LoadTrial};
use trapline_stats::paired::{paired_ratio, PairedRatio};
use trapline_stats::Sorted;

/// All trials of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// In the order of their keys.
    pub(crate) tables: Vec<FrameTable>,
    /// CPU of the ports, and that of the forwarder.
    pub(crate) cpus: [u32; 2],
}

/// The frames of a table, and how far its CPUs are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Frames {
    /// Ports that send.
    pub direction: Direction,
    /// Queues of each port.
    pub queues: Queues,
    /// Bytes without checksum.
    pub size: u32,
    /// Distance of both CPUs.
    pub distance: Distance,
}

/// Trials of one kind of frames with CPUs of one distance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FrameTable {
    pub frames: Frames,
    /// In table order: others are compared with the first.
    pub cells: Vec<Cell>,
}

/// Trials of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub environment: EnvironmentId,
    /// Round, purpose and counts of each.
    pub trials: Vec<(u32, Purpose, Trial)>,
}

/// The median of a figure over rounds, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub value: f64,
    /// `None` for one round.
    pub interval: Option<Interval>,
}

/// A searched load of each sender, in frames a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SearchedLoad {
    /// The median over searches; `None` if most found no load that small.
    pub lower: Option<f64>,
    /// Its interval over searches, from lower to upper bounds.
    pub interval: Option<Interval>,
    /// The median of the loads of which more than half of the trials lose more; `None` if most found none.
    pub upper: Option<f64>,
    /// Number of searches.
    pub searches: usize,
    /// Further trials with the loads found that lost no more.
    pub kept: u64,
    /// All further trials.
    pub further: u64,
}

impl Cell {
    /// Returns the name of the path.
    pub fn path(&self) -> &'static str {
        self.environment.forwarder().unwrap_or_default()
    }

    /// Returns the trials for some purposes, with their rounds.
    fn of(&self, is_wanted: fn(Purpose) -> bool) -> impl Iterator<Item = (u32, &Trial)> {
        let trials = self.trials.iter();
        let wanted = trials.filter(move |(_, purpose, _)| is_wanted(*purpose));
        wanted.map(|(round, _, trial)| (*round, trial))
    }

    /// Returns the trials whose load was the maximum or given.
    fn loaded(&self) -> impl Iterator<Item = (u32, &Trial)> {
        self.of(|purpose| matches!(purpose, Purpose::Maximum | Purpose::Given(_)))
    }

    /// Rounds and rates of the trials in which the ports had their CPU.
    pub fn undisturbed(&self) -> Vec<(u32, f64)> {
        let all = self
            .loaded()
            .filter(|(_, trial)| share_of_cpu(trial) >= UNDISTURBED);
        all.map(|(round, figures)| (round, figures.rate()))
            .collect()
    }

    /// Frames that arrived in a second.
    pub fn rate(&self) -> Option<Median> {
        median(self.loaded().map(|(_, trial)| trial.rate()))
    }

    /// Something of each trial for each frame that arrived.
    fn by_frame(&self, count: impl Fn(&Trial) -> Option<u64>) -> Option<f64> {
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
        let all = self.of(|purpose| matches!(purpose, Purpose::HalfLoad | Purpose::Given(_)));
        let each = all.filter_map(|(_, it)| Some(percentile(&it.latency?) as f64));
        Some(median(each)?.value)
    }

    /// Frames that were lost of those due at the load that was given, in all trials.
    pub fn lost(&self) -> Option<(u64, u64)> {
        let given = self.of(|purpose| matches!(purpose, Purpose::Given(_)));
        let counts = given.map(|(_, it)| {
            let due = it.sent.saturating_add(it.refused);
            (due.saturating_sub(it.received), due)
        });
        counts.reduce(|(lost, due), (more, of)| (lost.saturating_add(more), due.saturating_add(of)))
    }

    /// Loads of each sender at the bounds of each search.
    fn searches(&self, goal: f64) -> Vec<(u32, Bounds)> {
        let mut rounds: BTreeMap<u32, Vec<LoadTrial>> = BTreeMap::new();
        for (round, trial) in self.of(|purpose| purpose == Purpose::Search) {
            let trials = rounds.entry(round).or_default();
            trials.extend(trial.offered.map(|load| LoadTrial {
                load,
                loss: trial.loss(),
            }));
        }
        let bounds = rounds
            .into_iter()
            .map(|(round, trials)| (round, bounds(&trials, goal)));
        bounds.collect()
    }

    /// The load of each sender of which half of the trials lose at most this share of frames; `None` if it was not searched.
    pub fn searched(&self, goal: f64) -> Option<SearchedLoad> {
        let searches = self.searches(goal);
        let lower = searches
            .iter()
            .map(|(_, bounds)| bounds.lower.unwrap_or(0.0));
        let load = median(lower)?;
        let bounds: Vec<Bounds> = searches.iter().map(|(_, bounds)| *bounds).collect();
        let upper = searches
            .iter()
            .map(|(_, bounds)| bounds.upper.unwrap_or(f64::INFINITY));
        let upper = median(upper)?.value;
        let found = |trial: &(u32, &Trial)| {
            let of_round = searches.iter().find(|(round, _)| *round == trial.0);
            of_round.is_some_and(|(_, bounds)| bounds.lower == trial.1.offered)
        };
        let further = self.of(|purpose| purpose == Purpose::Confirm).filter(found);
        let further: Vec<bool> = further.map(|(_, trial)| trial.loss() <= goal).collect();
        let kept = further.iter().filter(|is_kept| **is_kept).count() as u64;
        Some(SearchedLoad {
            lower: (load.value > 0.0).then_some(load.value),
            interval: interval_of_searches(&bounds),
            upper: upper.is_finite().then_some(upper),
            searches: searches.len(),
            kept,
            further: further.len() as u64,
        })
    }

    /// Median of the round trips, in nanoseconds.
    fn round_trip(&self) -> Option<f64> {
        Some(median(self.loaded().map(|(_, it)| it.round_trip_ns))?.value)
    }
}

/// Share of a CPU that a thread without competitors has.
const UNDISTURBED: f64 = 0.95;

/// Share of a trial's time in which the thread of the ports, which never waits, had its CPU.
fn share_of_cpu(trial: &Trial) -> f64 {
    trial.ports_cpu_ns as f64 / (trial.duration_ns as f64).max(1.0)
}

fn median(values: impl Iterator<Item = f64>) -> Option<Median> {
    let values: Vec<f64> = values.collect();
    Some(Median {
        value: Sorted::new(values.clone())?.median(),
        interval: median_interval(&values),
    })
}

impl FrameTable {
    /// The ratio of the first path's rate to that of another, over the rounds with undisturbed trials of both.
    pub fn ratio(&self, cell: &Cell) -> Option<PairedRatio> {
        let first = self.cells.first()?;
        if first.environment == cell.environment {
            return None;
        }
        paired_ratio(&first.undisturbed(), &cell.undisturbed())
    }

    /// The disturbed trials of all, and the least share of their time in which the ports had their CPU.
    pub fn disturbed(&self) -> (usize, usize, f64) {
        let trials = self.cells.iter().flat_map(|cell| &cell.trials);
        let shares: Vec<f64> = trials.map(|(_, _, trial)| share_of_cpu(trial)).collect();
        let disturbed = shares.iter().filter(|share| **share < UNDISTURBED);
        let least = shares.iter().copied().fold(1.0, f64::min);
        (disturbed.count(), shares.len(), least)
    }

    /// Median round trip of a cache line between both CPUs, in nanoseconds.
    pub fn round_trip(&self) -> Option<f64> {
        Some(median(self.cells.iter().filter_map(Cell::round_trip))?.value)
    }
}

impl Rates {
    /// Collects the trials of boots, whose ports and forwarder were on these CPUs.
    pub fn new(observations: &[Observation], cpus: [u32; 2]) -> Self {
        let mut tables: BTreeMap<Frames, BTreeMap<EnvironmentId, Cell>> = BTreeMap::new();
        for boot in observations {
            let environment = boot.config.environment;
            for operation in &boot.operations {
                let (Operation::Packets(of), Outcome::Measured { trials, .. }) =
                    (operation.op, &operation.outcome)
                else {
                    continue;
                };
                // They are a failure of its cell.
                if operation.outcome.damaged_frames() > 0 {
                    continue;
                }
                for trial in trials {
                    let frames = Frames {
                        direction: of.direction,
                        queues: Queues::of(&boot.config),
                        size: of.size,
                        distance: trial.distance(),
                    };
                    let cells = tables.entry(frames).or_default();
                    let cell = cells.entry(environment).or_insert_with(|| Cell {
                        environment,
                        trials: Vec::new(),
                    });
                    cell.trials.push((boot.replicate, of.purpose, *trial));
                }
            }
        }
        let tables = tables.into_iter().map(|(frames, cells)| FrameTable {
            frames,
            cells: cells.into_values().collect(),
        });
        Self {
            tables: tables.collect(),
            cpus,
        }
    }
}
