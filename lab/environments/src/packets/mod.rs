//! Trials of packets: forwarders, and the program that sends frames through them.

mod path;

pub use path::PacketPath;

use path::{Kind, Ports, Program};
use serde_json::Value;
use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};
use trapline_host::draft::WorkDirectory;
use trapline_host::process::{Command, Process};
use trapline_host::{find_program, tool, Error, Parts};
use trapline_model::packets::{Latency, PacketOperation, Queues, Ring, Trial};

/// Time in which a forwarder opens its sockets.
const OPEN: Duration = Duration::from_secs(20);
/// Interval of checks for them.
const INTERVAL: Duration = Duration::from_millis(5);

/// Trapline's own forwarder.
const OWN_SWITCH: &str = "trapline-switch";

/// A started forwarder. It ends when this is dropped.
pub struct Forwarder {
    process: Option<Process>,
    directory: WorkDirectory,
    kind: Kind,
    /// The program that sends frames.
    traffic: PathBuf,
    cpus: [u32; 2],
    queues: Queues,
}

impl Forwarder {
    /// Starts what `path` needs for these queues. `cpus` are that of the ports and that of the forwarder.
    ///
    /// # Errors
    /// A program is missing, or does not open its sockets.
    pub fn start(
        path: &PacketPath,
        parts: &Parts,
        cpus: [u32; 2],
        queues: Queues,
    ) -> Result<Self, Error> {
        check(path, parts, queues)?;
        let traffic = own_program(parts, "trapline-traffic")?;
        let directory = WorkDirectory::temporary()?;
        let mut forwarder = Self {
            process: None,
            directory,
            kind: path.kind.clone(),
            traffic,
            cpus,
            queues,
        };
        let Kind::Program(program) = &path.kind else {
            return Ok(forwarder);
        };
        let words = program.command.iter();
        let words: Vec<String> = words.map(|word| forwarder.filled(word, parts)).collect();
        let mut command = Command::new(find(program, parts)?).with_terminal();
        for argument in &words[1..] {
            command = command.arg(argument);
        }
        forwarder.process = Some(Process::start(&command)?);
        forwarder.wait(&words.join(" "))?;
        Ok(forwarder)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn filled(&self, word: &str, parts: &Parts) -> String {
        let [ports, forwarder] = self.cpus;
        let path = |name| self.socket(name).display().to_string();
        let switch = parts.directory().join(OWN_SWITCH);
        word.replace("{a}", &path("a"))
            .replace("{b}", &path("b"))
            .replace("{directory}", &self.directory.path().display().to_string())
            .replace(path::SWITCH, &switch.display().to_string())
            .replace("{mask}", &format!("{:#x}", 1_u128 << (forwarder % 128)))
            .replace("{cpu}", &forwarder.to_string())
            .replace(path::QUEUES, &self.queues.pairs.to_string())
            .replace("{other}", &ports.to_string())
    }

    /// Waits until the sockets are there.
    fn wait(&self, command: &str) -> Result<(), Error> {
        let Kind::Program(program) = &self.kind else {
            return Ok(());
        };
        let sockets = program.ports.sockets();
        let deadline = Instant::now() + OPEN;
        while !sockets.iter().all(|name| self.socket(name).exists()) {
            if Instant::now() > deadline || self.has_ended() {
                return Err(Error::missing(
                    "the forwarder opens no sockets",
                    format!("try it: {command}"),
                ));
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn has_taps(&self) -> bool {
        matches!(&self.kind, Kind::Program(program) if program.ports == Ports::Taps)
    }

    fn has_ended(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        // A zombie until it is reaped (proc(5)).
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()));
        stat.map_or(true, |stat| {
            stat.rsplit(") ")
                .next()
                .is_none_or(|it| it.starts_with('Z'))
        })
    }

    /// Sends frames for a time: so many a second from each sender, or as many as arrive.
    ///
    /// # Errors
    /// The program that sends fails, as when the forwarder has ended.
    pub fn trial(
        &self,
        frames: PacketOperation,
        offered: Option<f64>,
        duration: Duration,
    ) -> Result<Trial, Error> {
        let [ports, forwarder] = self.cpus;
        let mut command = process::Command::new(&self.traffic);
        match &self.kind {
            Kind::Linux(name) => command.args(["--kernel", name]),
            Kind::Program(program) => match program.ports {
                Ports::VhostUser => command.args([self.socket("a"), self.socket("b")]),
                Ports::Vde => command.arg("--vde").arg(self.socket("a")),
                Ports::Taps => command.args(["interface:port-a", "interface:port-b"]),
            },
        };
        let mut option = |name: &str, value: String| {
            command.args([name, &value]);
        };
        option("--size", frames.size.to_string());
        option("--direction", frames.direction.name().to_owned());
        option("--seconds", duration.as_secs_f64().to_string());
        option("--cpu", ports.to_string());
        option("--switch-cpu", forwarder.to_string());
        if let Some(rate) = offered {
            option("--rate", rate.to_string());
        }
        if let Some(process) = &self.process {
            option("--switch-process", process.pid().to_string());
            if self.has_taps() {
                option("--namespace", process.pid().to_string());
            }
        }
        if self.queues.ring == Ring::Packed {
            command.arg("--packed");
        }
        if self.queues.pairs > 1 {
            command.args(["--queues", &self.queues.pairs.to_string()]);
        }
        let output = tool::output(&mut command)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::unavailable(text));
        }
        parse(&output.stdout, offered)
            .ok_or_else(|| Error::unavailable("trapline-traffic of another version"))
    }
}

/// Checks that the programs of a path are installed.
///
/// # Errors
/// One is missing.
pub fn check(path: &PacketPath, parts: &Parts, queues: Queues) -> Result<(), Error> {
    if !path.supports(queues) {
        let reason = format!(
            "{} has no {queues}: choose --ring split --queues 1",
            path.name
        );
        return Err(Error::unavailable(reason));
    }
    match &path.kind {
        Kind::Linux(_) => Ok(()),
        Kind::Program(program) => find(program, parts).map(drop),
    }
}

/// Returns the program of a forwarder, if all that it needs are installed.
fn find(program: &Program, parts: &Parts) -> Result<PathBuf, Error> {
    let own = || own_program(parts, OWN_SWITCH);
    let installed = |name: &str| {
        let missing = || Error::missing(format!("{name} is not installed"), program.remedy);
        find_program(name).ok_or_else(missing)
    };
    for name in program.needs {
        installed(name)?;
    }
    let is_own = |word: &String| word == path::SWITCH;
    match program.command.first() {
        Some(first) if is_own(first) => own(),
        first => {
            if program.command.iter().any(is_own) {
                own()?;
            }
            installed(first.map(String::as_str).unwrap_or_default())
        }
    }
}

/// Returns the path of a program that is installed with this one.
fn own_program(parts: &Parts, name: &str) -> Result<PathBuf, Error> {
    let file = parts.directory().join(name);
    if file.is_file() {
        Ok(file)
    } else {
        Err(Error::missing(
            format!("{name} is not in {}", parts.directory().display()),
            trapline_host::MISSING_PARTS,
        ))
    }
}

/// Parses the output of trapline-traffic.
fn parse(output: &[u8], offered: Option<f64>) -> Option<Trial> {
    let value: Value = serde_json::from_slice(output).ok()?;
    let flow = |name: &str| value["flow"][name].as_u64();
    let of_latency = |name: &str| value["latency_ns"][name].as_u64();
    let latency = || {
        Some(Latency {
            p50: of_latency("p50")?,
            p99: of_latency("p99")?,
            max: of_latency("max")?,
        })
    };
    Some(Trial {
        offered,
        duration_ns: (value["seconds"].as_f64()? * 1e9) as u64,
        sent: flow("sent")?,
        refused: flow("refused")?,
        received: flow("received")?,
        damaged: flow("damaged")?,
        ports_cpu_ns: value["cpu_ns"].as_u64()?,
        forwarder_cpu_ns: value["switch_cpu_ns"].as_u64(),
        kicks: value["kicks"].as_u64()?,
        calls: value["calls"].as_u64()?,
        latency: offered.and_then(|_| latency()),
        round_trip_ns: value["round_trip_ns"].as_f64()?,
    })
}
