//! Memory sweeps: each operation of workload `memory` is a chain of loads over a working set.

use crate::operation::Op;

/// Bytes between two loads at least: a cache line.
pub const LINE: u64 = 64;

/// Order of the addresses of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Ascending cache lines.
    Sequential,
    /// Ascending pages, one cache line further in each, so that all sets of a cache are used.
    Stride,
    /// All cache lines in a random order, the same everywhere.
    Random,
}

impl Pattern {
    /// All orders, in display order.
    pub const ALL: [Self; 3] = [Self::Sequential, Self::Stride, Self::Random];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Stride => "stride",
            Self::Random => "random",
        }
    }
}

/// Sizes of working sets in bytes, ascending: powers of two.
pub const SIZES: [u64; 7] = [
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];

/// Chain of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Order of the addresses.
    pub pattern: Pattern,
    /// Size of the working set in bytes.
    pub bytes: u64,
}

impl Sweep {
    /// Returns the chain of an operation of workload `memory`; `None` for others. The rows of the table of
    /// operations are in the order of [`Pattern::ALL`] and [`SIZES`].
    pub fn of(op: Op) -> Option<Self> {
        let first = Op::Sequential16k.number();
        let index = usize::from(op.number().checked_sub(first)?);
        Some(Self {
            pattern: *Pattern::ALL.get(index / SIZES.len())?,
            bytes: SIZES[index % SIZES.len()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use std::format;

    #[test]
    fn rows_of_the_table_are_in_the_order_of_patterns_and_sizes() {
        for op in Op::ALL {
            let sweep = Sweep::of(op);
            assert_eq!(sweep.is_some(), op.workload() == Workload::Memory, "{op:?}");
            let Some(Sweep { pattern, bytes }) = sweep else {
                continue;
            };
            let size = match bytes >> 20 {
                0 => format!("{}k", bytes >> 10),
                mib => format!("{mib}m"),
            };
            assert_eq!(op.name(), format!("{}-{size}", pattern.name()));
        }
    }
}
