//! Arguments of `net`.

use super::pages::after_help;
use super::{value_parser, OutputOptions, RunOptions};
use clap::builder::RangedI64ValueParser;
use clap::Args;
use std::ops::RangeInclusive;
use trapline_environments::packets::PacketPath;
use trapline_model::packets::{self, Direction, Purpose, Ring};
use trapline_model::{forwarders, EnvironmentId, Operation, Request};
use trapline_runner::Failure;

/// Arguments of `trapline net`.
#[derive(Args, Debug)]
#[command(after_help = after_help("net"))]
pub struct NetArgs {
    /// Forwarders to measure: switch, testpmd, ovs, tap, veth, bridge, vde, or a name of --forwarder [default: all
    /// that are installed]
    #[arg(long = "path", value_name = "P,P", value_delimiter = ',')]
    pub paths: Vec<String>,
    /// A forwarder between two vhost-user sockets: its command, with {a} and {b} for them, {cpu} for its CPU, and {queues} for
    /// the number of --queues
    #[arg(long = "forwarder", value_name = "NAME=COMMAND")]
    pub forwarders: Vec<String>,
    /// Bytes of a frame, without its checksum of 4 bytes
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = packets::SIZES,
          value_parser = within(packets::FRAME))]
    pub size: Vec<u32>,
    /// Format of queues of virtio
    #[arg(long, value_name = "R,R", value_delimiter = ',', default_value = Ring::Split.name(), value_parser = value_parser::<Ring>(RINGS), hide_short_help = true)]
    pub ring: Vec<Ring>,
    /// Pairs of queues of each port of virtio, by which frames are sent in turn
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1], value_parser = within(packets::QUEUES), hide_short_help = true)]
    pub queues: Vec<u32>,
    /// Ports that send
    #[arg(long, value_name = "D,D", value_delimiter = ',', default_value = Direction::One.name(), value_parser = value_parser::<Direction>(DIRECTIONS), hide_short_help = true)]
    pub direction: Vec<Direction>,
    /// Frames a second that each port sends, or 'search' for those of which half of the trials lose nothing, and
    /// 0.5% [default: as many as arrive, and half as many for the latency]
    #[arg(long, value_name = "N|search")]
    pub load: Option<Load>,
    /// Duration of a trial, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = packets::Settings::default().milliseconds, value_parser = within(packets::DURATIONS), hide_short_help = true)]
    pub duration: u32,
    /// Rounds, each of which measures every path once
    #[arg(long, value_name = "N", default_value_t = packets::ROUNDS, value_parser = within(packets::MOST_ROUNDS))]
    pub rounds: u32,
    /// CPU of the ports, and that of the forwarder [default: the last two of this process]
    #[arg(
        long,
        value_name = "P,F",
        value_delimiter = ',',
        num_args = 1,
        hide_short_help = true
    )]
    pub cpus: Vec<u32>,
    /// Seed for the order of trials [default: random, recorded]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub run_options: RunOptions,
}

/// Returns the parser of numbers in a range.
fn within(range: RangeInclusive<u32>) -> RangedI64ValueParser<u32> {
    let (least, most) = range.into_inner();
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

/// Descriptions of formats of queues.
const RINGS: &[&str] = &["Split (virtio 1.2, 2.7)", "Packed (virtio 1.2, 2.8)"];

/// Descriptions of the ports that send.
const DIRECTIONS: &[&str] = &[
    "The first to the second",
    "Both to each other",
    "The first to the forwarder; the second does not receive",
];

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Frames a second.
    Rate(u32),
    /// The rates of which half of the trials lose nothing, and 0.5%.
    Search,
}

impl std::str::FromStr for Load {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "search" {
            return Ok(Self::Search);
        }
        let rate: Option<f64> = text.parse().ok().filter(|it| (1.0..=1e9).contains(it));
        rate.map(|rate| Self::Rate(rate as u32))
            .ok_or("expected 1 to 1e9 frames a second, or 'search'")
    }
}

impl NetArgs {
    /// Returns the request, in which no configuration is ready. Defines the user's forwarders.
    ///
    /// # Errors
    /// A path has no known name, or a command is invalid.
    pub fn request(&self) -> Result<Request, Failure> {
        let purposes = match self.load {
            Some(Load::Rate(rate)) => vec![Purpose::Given(rate)],
            Some(Load::Search) => vec![
                Purpose::Maximum,
                Purpose::HalfLoad,
                Purpose::Search,
                Purpose::Confirm,
            ],
            None => vec![Purpose::Maximum, Purpose::HalfLoad],
        };
        let long = packets::operations(&self.size, &self.direction, &purposes).into_iter();
        Ok(Request {
            configs: packets::configs(&self.environments()?, &self.ring, &self.queues),
            long: long.map(Operation::Packets).collect(),
            boots: Some(self.rounds),
            packets: packets::Settings {
                milliseconds: self.duration,
                ..packets::Settings::default()
            },
            seed: self.seed.unwrap_or_else(trapline_runner::random_seed),
            ..Request::default()
        })
    }

    /// Returns the environments to measure: those that are named, or all of the table and the user's.
    fn environments(&self) -> Result<Vec<EnvironmentId>, Failure> {
        let given = self.forwarders.iter().map(|it| forwarder(it));
        let given = given.collect::<Result<Vec<_>, _>>()?;
        if !self.paths.is_empty() {
            return self.paths.iter().map(|name| path(name, &given)).collect();
        }
        let known = forwarders::NAMES.into_iter();
        let known = known.filter_map(EnvironmentId::known_forwarder);
        Ok(known.chain(given).collect())
    }
}

/// Returns the environment of the forwarder with this name, one of those that the user has given or of the table.
///
/// # Errors
/// There is none.
fn path(name: &str, given: &[EnvironmentId]) -> Result<EnvironmentId, Failure> {
    let given = given
        .iter()
        .find(|id| id.forwarder() == Some(name))
        .copied();
    let found = given.or_else(|| EnvironmentId::known_forwarder(name));
    found.ok_or_else(|| {
        let known = forwarders::NAMES.join(", ");
        Failure::usage(
            format!("unknown value '{name}' for '--path'"),
            format!("choose from {known}, or give it with --forwarder {name}=COMMAND"),
        )
    })
}

/// Parses `NAME=COMMAND`, and defines the forwarder.
fn forwarder(text: &str) -> Result<EnvironmentId, Failure> {
    let failure = |reason: &str| {
        Failure::usage(
            format!("--forwarder {text}: {reason}"),
            "write NAME='COMMAND {a} {b}': vhost-user sockets that it opens",
        )
    };
    let (name, command) = text
        .split_once('=')
        .ok_or_else(|| failure("'=' is missing"))?;
    if !forwarders::is_valid(name) {
        return Err(failure("a name has letters, digits and '-'"));
    }
    let defined = EnvironmentId::define_forwarder(name, command);
    let defined =
        defined.ok_or_else(|| failure("one of the table has this name, or there are too many"))?;
    let checked = PacketPath::of(defined).map_err(|reason| failure(&reason));
    checked.map(|_| defined)
}
