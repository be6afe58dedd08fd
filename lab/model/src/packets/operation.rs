//! Operations of packets.

use super::{Direction, Distance, FRAME};
use std::fmt;
use trapline_abi::Measure;

/// Measurement by trials with frames of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketOperation {
    /// Ports that send.
    pub direction: Direction,
    /// Bytes of a frame from the destination address, without the checksum of 4 bytes.
    pub size: u32,
    /// Quantity that is measured.
    pub purpose: Purpose,
    /// Distance of both CPUs, which only trials show. Rates of different distances are never compared.
    pub distance: Option<Distance>,
}

/// Quantity that trials measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The rate with as many frames on their way as a queue holds.
    Maximum,
    /// The latency at half of that rate.
    HalfLoad,
    /// The rate at this load of each sender, in frames a second, with its loss and latency.
    Given(u32),
    /// The loads of which half of the trials lose little, by trials with many loads. It has no figure of its own.
    Search,
    /// Further trials with these loads, to count those that lose little. It has no figure of its own.
    Confirm,
}

impl Purpose {
    /// Returns the name of the operation, without parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maximum => "rate",
            Self::HalfLoad => "latency",
            Self::Given(_) => "rate-at-load",
            Self::Search => "search",
            Self::Confirm => "confirm",
        }
    }
}

impl PacketOperation {
    /// Names of the operations, without parameters.
    pub const NAMES: [&str; 5] = [
        Purpose::Maximum.name(),
        Purpose::HalfLoad.name(),
        Purpose::Given(0).name(),
        Purpose::Search.name(),
        Purpose::Confirm.name(),
    ];

    /// Returns the operation with this name, as it is formatted.
    pub fn from_name(name: &str) -> Option<Self> {
        let (name, parameters) = name.split_once(':')?;
        let (mut size, mut direction, mut load, mut distance) = (None, None, None, None);
        for parameter in parameters.split(',') {
            match parameter.split_once('=')? {
                ("size", value) => size = value.parse().ok(),
                ("direction", value) => direction = Direction::from_name(value),
                ("load", value) => load = value.parse().ok(),
                ("distance", value) => distance = Some(Distance::from_name(value)?),
                _ => return None,
            }
        }
        let purpose = match (name, load) {
            ("rate", None) => Purpose::Maximum,
            ("latency", None) => Purpose::HalfLoad,
            ("rate-at-load", Some(load)) => Purpose::Given(load),
            ("search", None) => Purpose::Search,
            ("confirm", None) => Purpose::Confirm,
            _ => return None,
        };
        Some(Self {
            direction: direction?,
            size: size.filter(|size| FRAME.contains(size))?,
            purpose,
            distance,
        })
    }

    /// Returns the operation with CPUs of this distance.
    pub fn at(self, distance: Distance) -> Self {
        Self {
            distance: Some(distance),
            ..self
        }
    }

    /// Returns a phrase that defines it.
    pub fn description(self) -> String {
        let frames = format!("{} bytes, {}", self.size, self.direction.words());
        match self.purpose {
            Purpose::Maximum => format!("frames a second that arrive: {frames}"),
            Purpose::HalfLoad => {
                format!("median latency of a frame at half of the largest rate: {frames}")
            }
            Purpose::Given(load) => {
                format!("frames a second that arrive of {load} offered: {frames}")
            }
            Purpose::Search => {
                format!("loads of which half of the trials lose nothing, and 0.5%: {frames}")
            }
            Purpose::Confirm => format!("further trials with the loads of a search: {frames}"),
        }
    }

    /// Returns the content of one sample: frames in the time of a trial, or the median latency of one.
    pub const fn measure(self) -> Measure {
        match self.purpose {
            Purpose::HalfLoad => Measure::Lateness,
            Purpose::Maximum | Purpose::Given(_) | Purpose::Search | Purpose::Confirm => {
                Measure::Bytes(1)
            }
        }
    }

    /// Returns whether it has a figure. A search and its confirmation have none of their own.
    pub const fn has_figure(self) -> bool {
        !matches!(self.purpose, Purpose::Search | Purpose::Confirm)
    }
}

impl fmt::Display for PacketOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, direction) = (self.purpose.name(), self.direction.name());
        write!(f, "{name}:size={},direction={direction}", self.size)?;
        if let Purpose::Given(load) = self.purpose {
            write!(f, ",load={load}")?;
        }
        match self.distance {
            Some(distance) => write!(f, ",distance={}", distance.name()),
            None => Ok(()),
        }
    }
}
