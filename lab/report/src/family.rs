//! Runs that have builds of kernels, or packets, and nothing else.

use crate::document::Document;
use crate::kernel_build::Matrix;
use crate::packets::Rates;

/// What such a run has measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// Builds of kernels.
    Builds(Matrix),
    /// Rates of packets.
    Packets(Rates),
}

impl Family {
    /// Returns what is measured, for messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Builds(_) => "kernel builds",
            Self::Packets(_) => "packets",
        }
    }

    /// Returns the document; `version` is Trapline's.
    pub fn document(&self, version: &str) -> Document {
        match self {
            Self::Builds(matrix) => matrix.document(version),
            Self::Packets(rates) => rates.document(version),
        }
    }
}
