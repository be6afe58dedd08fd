//! A request for rates of packets, and its expansion to trials.

use super::{Direction, Frames, Ring};
use crate::expand::Order;
use crate::named::each;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketRequest {
    /// Names of the paths.
    pub paths: Vec<String>,
    /// Name and command of those that are no known ones.
    pub forwarders: Vec<[String; 2]>,
    /// Sizes of frames, in bytes without checksum.
    pub sizes: Vec<u32>,
    /// Formats of queues.
    pub rings: Vec<Ring>,
    /// Pairs of queues of each port.
    pub queues: Vec<u32>,
    /// Who sends.
    pub directions: Vec<Direction>,
    /// Offered load of each sender, in frames a second.
    pub rate: Option<f64>,
    /// Search the rates without loss, and with 0.5%.
    pub search: bool,
    /// Duration of a trial, in milliseconds.
    pub milliseconds: u32,
    /// Rounds.
    pub rounds: u32,
    /// CPU of the ports, and that of the forwarder.
    pub cpus: [u32; 2],
    /// Seed of the order.
    pub seed: u64,
}

/// A planned trial, or several of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlannedTrial {
    /// Index among the trials of its cell, from 0.
    pub round: u32,
    /// Name of the path.
    pub path: String,
    /// Frames.
    pub frames: Frames,
}

/// Invalid text of a [`PacketRequest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid request of packets: {0}")]
pub struct InvalidRequest(pub String);

/// First word of a request.
const COMMAND: &str = "net";

impl PacketRequest {
    /// Default sizes: the shortest frame, and those of the fourth source document's table.
    pub const SIZES: [u32; 3] = [60, 200, 1500];
    /// Default number of rounds: the smallest whose ratios have an interval of 93.75%.
    pub const ROUNDS: u32 = 5;
    /// Numbers of rounds that can be asked for.
    pub const MOST_ROUNDS: RangeInclusive<u32> = 1..=1_000;
    /// Default duration of a trial, in milliseconds.
    pub const MILLISECONDS: u32 = 300;
    /// Durations that can be asked for.
    pub const DURATIONS: RangeInclusive<u32> = 10..=600_000;
    /// Sizes of a frame, in bytes without checksum.
    pub const FRAME: RangeInclusive<u32> = 60..=1514;
    /// Pairs of queues of a port.
    pub const QUEUES: RangeInclusive<u32> = 1..=8;

    /// Returns the trials in the order of their execution.
    pub fn expand(&self) -> Vec<PlannedTrial> {
        let mut cells = Vec::new();
        for frames in self.tables() {
            cells.extend(self.paths.iter().map(|path| (path, frames)));
        }
        let orders = Order::new(cells.len(), self.seed);
        let rounds = (0..self.rounds).zip(orders);
        let planned = rounds.flat_map(|(round, order)| {
            let cells = order.into_iter().map(|place| cells[place]);
            cells.map(move |(path, frames)| PlannedTrial {
                round,
                path: path.clone(),
                frames,
            })
        });
        planned.collect()
    }

    fn tables(&self) -> Vec<Frames> {
        let mut all = Vec::new();
        for &direction in &self.directions {
            for &ring in &self.rings {
                for &queues in &self.queues {
                    all.extend(self.sizes.iter().map(|&size| Frames {
                        size,
                        ring,
                        queues,
                        direction,
                    }));
                }
            }
        }
        all
    }
}

fn list<T>(values: &[T], name: impl Fn(&T) -> String) -> String {
    values.iter().map(name).collect::<Vec<_>>().join(",")
}

/// Formats the words of a command line.
impl fmt::Display for PacketRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ports, forwarder] = self.cpus;
        write!(
            f,
            "{COMMAND} --path {} --size {} --ring {} --direction {} --duration {} --rounds {} \
             --cpus {ports},{forwarder} --seed {}",
            self.paths.join(","),
            list(&self.sizes, u32::to_string),
            list(&self.rings, |it| it.name().to_owned()),
            list(&self.directions, |it| it.name().to_owned()),
            self.milliseconds,
            self.rounds,
            self.seed,
        )?;
        if self.queues != [1] {
            write!(f, " --queues {}", list(&self.queues, u32::to_string))?;
        }
        for [name, command] in &self.forwarders {
            let word = format!("{name}={command}");
            let quoted = shlex::try_quote(&word).map_err(|_| fmt::Error)?;
            write!(f, " --forwarder {quoted}")?;
        }
        if let Some(rate) = self.rate {
            write!(f, " --load {rate}")?;
        }
        if self.search {
            write!(f, " --load search")
        } else {
            Ok(())
        }
    }
}

/// Parses the words of a command line.
impl FromStr for PacketRequest {
    type Err = InvalidRequest;

    fn from_str(text: &str) -> Result<Self, InvalidRequest> {
        parse(text).ok_or_else(|| InvalidRequest(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PacketRequest> {
    let words = shlex::split(text.strip_prefix(COMMAND)?)?;
    let mut request = PacketRequest {
        paths: Vec::new(),
        forwarders: Vec::new(),
        sizes: Vec::new(),
        rings: Vec::new(),
        queues: vec![1],
        directions: Vec::new(),
        rate: None,
        search: false,
        milliseconds: 0,
        rounds: 0,
        cpus: [0; 2],
        seed: 0,
    };
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return None;
        };
        match name.as_str() {
            "--path" => request.paths = value.split(',').map(str::to_owned).collect(),
            "--size" => request.sizes = each(value, |size| size.parse().ok())?,
            "--ring" => request.rings = each(value, Ring::from_name)?,
            "--queues" => request.queues = each(value, |pairs| pairs.parse().ok())?,
            "--direction" => request.directions = each(value, Direction::from_name)?,
            "--duration" => request.milliseconds = value.parse().ok()?,
            "--rounds" => request.rounds = value.parse().ok()?,
            "--cpus" => request.cpus = each(value, |cpu| cpu.parse().ok())?.try_into().ok()?,
            "--seed" => request.seed = value.parse().ok()?,
            "--forwarder" => {
                let (name, command) = value.split_once('=')?;
                let forwarder = [name.to_owned(), command.to_owned()];
                request.forwarders.push(forwarder);
            }
            "--load" if value == "search" => request.search = true,
            "--load" => request.rate = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> PacketRequest {
        PacketRequest {
            paths: vec!["switch".to_owned(), "mine".to_owned()],
            forwarders: vec![["mine", "my 'own switch' {a} {b}"].map(str::to_owned)],
            sizes: vec![60, 1500],
            rings: vec![Ring::Split, Ring::Packed],
            queues: vec![1, 4],
            directions: vec![Direction::Both],
            rate: Some(1e6),
            search: true,
            milliseconds: 500,
            rounds: 3,
            cpus: [1, 0],
            seed: 9,
        }
    }

    #[test]
    fn requests_are_stored_as_words() {
        let request = request();
        assert_eq!(request.to_string().parse(), Ok(request.clone()));
        // Earlier versions wrote no number of queues.
        let usual = PacketRequest {
            queues: vec![1],
            ..request
        };
        assert!(!usual.to_string().contains("--queues"));
        assert_eq!(usual.to_string().parse(), Ok(usual));
        let words = "net --path switch --size 60 --ring odd";
        assert!(words.parse::<PacketRequest>().is_err());
        assert!("kernel-build --size mini".parse::<PacketRequest>().is_err());
    }

    #[test]
    fn rounds_have_every_cell_once() {
        let planned = request().expand();
        assert_eq!(planned.len(), 3 * 16);
        for round in planned.chunks(16) {
            let mut cells = round.to_vec();
            cells.sort();
            cells.dedup();
            assert_eq!(cells.len(), 16);
            assert!(round.iter().all(|trial| trial.round == round[0].round));
        }
    }
}
