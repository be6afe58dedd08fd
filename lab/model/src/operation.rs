//! Operations of all kinds: what a guest measures, kernel builds, and trials of packets.
//!
//! In stored data and in all output an operation is its path: `workload/name`, behind which parameters follow that have
//! no default, as in `packets/rate:size=60,direction=one`.

use crate::kernel_build::Size;
use crate::names;
use crate::packets::PacketOperation;
use trapline_abi::{Direction, Measure, Op, Unit, Workload};

/// Smallest unit of work that has a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// One that a guest measures, and repeats.
    Guest(Op),
    /// A build of a kernel.
    Build(Size),
    /// Trials of packets through a forwarder.
    Packets(PacketOperation),
}

/// Name of the workload of [`Operation::Build`].
const KERNEL_BUILD: &str = "kernel-build";

/// Name of the workload of [`Operation::Packets`].
const PACKETS: &str = "packets";

impl Operation {
    /// Returns the names of operations that no guest repeats and of their workloads, as [`Self::is_named`] takes them.
    pub fn long_names() -> Vec<String> {
        let sizes = Size::ALL.map(|size| format!("{KERNEL_BUILD}/{}", size.name()));
        let packets = PacketOperation::NAMES.map(|name| format!("{PACKETS}/{name}"));
        let workloads = [KERNEL_BUILD, PACKETS].map(str::to_owned);
        workloads.into_iter().chain(sizes).chain(packets).collect()
    }

    /// Returns whether it has this name or is of the workload of this name. In a list on a command line, whose items commas
    /// separate, an operation has no parameters.
    pub fn is_named(self, name: &str) -> bool {
        let path = self.path();
        let without_parameters = path.split(':').next();
        self.workload_name() == name || without_parameters == Some(name)
    }

    /// Returns the operation with this path.
    pub fn from_path(path: &str) -> Option<Self> {
        if let Some(op) = Op::from_path(path) {
            return Some(Self::Guest(op));
        }
        let (workload, name) = path.split_once('/')?;
        match workload {
            KERNEL_BUILD => Size::from_name(name).map(Self::Build),
            PACKETS => PacketOperation::from_name(name).map(Self::Packets),
            _ => None,
        }
    }

    /// Returns the path.
    pub fn path(self) -> String {
        format!("{}/{}", self.workload_name(), self.name())
    }

    /// Returns the name of the workload.
    pub const fn workload_name(self) -> &'static str {
        match self {
            Self::Guest(op) => op.workload().name(),
            Self::Build(_) => KERNEL_BUILD,
            Self::Packets(_) => PACKETS,
        }
    }

    /// Returns the name within the workload, with parameters.
    pub fn name(self) -> String {
        match self {
            Self::Guest(op) => op.name().to_owned(),
            Self::Build(size) => size.name().to_owned(),
            Self::Packets(operation) => operation.to_string(),
        }
    }

    /// Returns a phrase that defines one operation.
    pub fn description(self) -> String {
        match self {
            Self::Guest(op) => op.description().to_owned(),
            Self::Build(size) => format!("one build of a kernel: {}", size.description()),
            Self::Packets(operation) => operation.description(),
        }
    }

    /// Returns the operation of a guest, if it is one.
    pub const fn guest(self) -> Option<Op> {
        match self {
            Self::Guest(op) => Some(op),
            Self::Build(_) | Self::Packets(_) => None,
        }
    }

    /// Returns the workload of an operation of a guest.
    pub fn workload(self) -> Option<Workload> {
        self.guest().map(Op::workload)
    }

    /// Returns whether it is an operation of this workload.
    pub fn is_of(self, workload: Workload) -> bool {
        self.workload() == Some(workload)
    }

    /// Returns the content of one sample.
    pub const fn measure(self) -> Measure {
        match self {
            Self::Guest(op) => op.measure(),
            Self::Build(_) => Measure::Batch,
            Self::Packets(operation) => operation.measure(),
        }
    }

    /// Returns the quantity that figures report.
    pub const fn unit(self) -> Unit {
        match self.measure() {
            Measure::Batch | Measure::Lateness => Unit::Time,
            Measure::Bytes(_) => Unit::Rate,
        }
    }

    /// Returns the direction in which figures improve.
    pub const fn direction(self) -> Direction {
        match self.unit() {
            Unit::Time => Direction::Less,
            Unit::Rate => Direction::More,
        }
    }

    /// Returns whether a sample is the time between two events, not the length of a batch.
    pub const fn is_lateness(self) -> bool {
        matches!(self.measure(), Measure::Lateness)
    }

    /// Returns those of `operations` that there are, in display order.
    pub fn in_display_order(operations: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<Self> = operations.into_iter().collect();
        all.sort_by_key(|operation| operation.display_position());
        all.dedup();
        all
    }

    /// Returns the shortest list of some operations: complete workloads by their own name.
    pub fn describe(operations: impl IntoIterator<Item = Self>) -> String {
        let mut long = Vec::new();
        let guests = operations
            .into_iter()
            .filter_map(|operation| match operation {
                Self::Guest(op) => Some(op),
                Self::Build(_) | Self::Packets(_) => {
                    long.push(operation);
                    None
                }
            });
        let of_guests = names::describe(guests.collect());
        let of_guests = Some(of_guests).filter(|names| !names.is_empty());
        let long = Self::in_display_order(long).into_iter().map(Self::path);
        of_guests
            .into_iter()
            .chain(long)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns the place in tables: operations of guests as in their table, then builds and packets.
    pub fn display_position(self) -> (usize, Self) {
        let place = |op| Op::ALL.iter().position(|it| *it == op);
        (
            self.guest()
                .map_or(Op::ALL.len(), |op| place(op).unwrap_or_default()),
            self,
        )
    }
}

impl From<Op> for Operation {
    fn from(op: Op) -> Self {
        Self::Guest(op)
    }
}

impl PartialEq<Op> for Operation {
    fn eq(&self, other: &Op) -> bool {
        self.guest() == Some(*other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{Direction, Distance, Purpose};

    #[test]
    fn operations_are_named_without_parameters() {
        let path = "packets/rate:size=60,direction=one";
        let rate = Operation::from_path(path).unwrap();
        assert!(rate.is_named("packets") && rate.is_named("packets/rate"));
        assert!(!rate.is_named("packets/latency") && !rate.is_named("kernel-build"));
        let is_known = |name: &String| rate.is_named(name);
        assert_eq!(
            Operation::long_names()
                .iter()
                .filter(|it| is_known(it))
                .count(),
            2
        );
    }

    #[test]
    fn paths_are_parsed_as_they_are_formatted() {
        let packets = |purpose, direction| {
            Operation::Packets(PacketOperation {
                direction,
                size: 60,
                purpose,
                distance: None,
            })
        };
        for (operation, path) in [
            (Op::PortOut.into(), "exits/port-out"),
            (Operation::Build(Size::Tiny), "kernel-build/tiny"),
            (
                packets(Purpose::Maximum, Direction::One),
                "packets/rate:size=60,direction=one",
            ),
            (
                packets(Purpose::HalfLoad, Direction::Both),
                "packets/latency:size=60,direction=both",
            ),
            (
                packets(Purpose::Given(2_000_000), Direction::Half),
                "packets/rate-at-load:size=60,direction=half,load=2000000",
            ),
            (
                Operation::Packets(PacketOperation {
                    direction: Direction::One,
                    size: 60,
                    purpose: Purpose::Maximum,
                    distance: Some(Distance::Near),
                }),
                "packets/rate:size=60,direction=one,distance=near",
            ),
            (
                packets(Purpose::Search, Direction::One),
                "packets/search:size=60,direction=one",
            ),
        ] {
            assert_eq!(operation.path(), path);
            assert_eq!(Operation::from_path(path), Some(operation));
        }
        for path in [
            "",
            "exits",
            "exits/none",
            "kernel-build/huge",
            "packets/rate",
            "packets/rate:size=60",
            "packets/rate:size=60,direction=one,load=1",
            "packets/rate-at-load:size=60,direction=one",
            "packets/rate:size=59,direction=one",
            "packets/rate:size=60,direction=one,distance=there",
        ] {
            assert_eq!(Operation::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn operations_are_displayed_in_table_order() {
        let [first, second] = [Op::Getpid, Op::NullIo].map(Operation::from);
        let build = Operation::Build(Size::Mini);
        let sorted = Operation::in_display_order([build, second, first, second]);
        assert_eq!(sorted, [first, second, build]);
    }
}
