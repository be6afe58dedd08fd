//! The decoded report of one guest.

use std::collections::BTreeMap;
use trapline_abi::record::Sender;
use trapline_abi::{Counter, Op, OpSet, Stage};
use trapline_model::observed::OperationResult;

/// The Hello record of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version that the guest was built with.
    pub version: u16,
    /// The sending program.
    pub sender: Sender,
    /// Privilege ring of the guest.
    pub ring: u8,
    /// Guest memory, in bytes.
    pub memory: u64,
}

/// State of a guest's stream at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndState {
    /// The guest sent Done.
    Done,
    /// The guest sent Panic with this message.
    Panicked(String),
    /// The stream ended without either.
    Incomplete,
}

/// Time from an early batch of an operation to a late one on both clocks, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// The operation.
    pub op: Op,
    /// Ticks of the guest's clock.
    pub guest: u64,
    /// Ticks of the host's clock.
    pub host: u64,
}

/// Everything that one guest reported between its start and its end.
/// Times are ticks of the guest's clock unless stated otherwise.
#[derive(Debug)]
pub struct GuestReport {
    /// The requested operations.
    pub requested: OpSet,
    /// The Hello record.
    pub hello: Option<Hello>,
    /// The guest repeated the number of its job, or it has none.
    pub answers_job: bool,
    /// Boot stages of the guest.
    pub stages: BTreeMap<Stage, u64>,
    /// Boot stages of its VMM, in ticks of the host's clock.
    pub vmm_stages: BTreeMap<Stage, u64>,
    /// Counters of its VMM.
    pub counters: BTreeMap<Counter, u64>,
    /// Outcome of each requested operation except those of the boot workload.
    pub operations: Vec<OperationResult>,
    /// Time on both clocks, per measured operation.
    pub elapsed: Vec<Elapsed>,
    /// Smallest difference between a record's arrival and its guest timestamp: an upper bound of the
    /// offset between the clocks.
    pub min_lag: Option<i64>,
    /// Console output besides records.
    pub log: String,
    /// Standard error of the VMM.
    pub errors: String,
    /// Violations of the protocol.
    pub problems: Vec<String>,
    /// State of the stream at its end.
    pub end: EndState,
}

/// Reason of an operation that a guest did not report.
pub const NOT_REPORTED: &str = "the guest did not report an outcome";
