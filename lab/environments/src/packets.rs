//! Trials of packets: forwarders, and the program that sends frames through them.

use serde_json::Value;
use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trapline_host::process::{Command, Process};
use trapline_host::{find_program, tool, Error, Parts};
use trapline_model::packets::{Frames, Latency, Ring, TrialFigures};

/// Time in which a forwarder opens its sockets.
const OPEN: Duration = Duration::from_secs(20);
/// Interval of checks for them.
const INTERVAL: Duration = Duration::from_millis(5);

/// A way of frames from one port to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// Its name.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A forwarder between vhost-user sockets, as words with `{a}`, `{b}`, `{cpu}` and `{other}`.
    VhostUser {
        command: Vec<String>,
        remedy: &'static str,
    },
    /// A network of Linux, by its name in trapline-traffic.
    Kernel(&'static str),
    /// `vde_switch`, in the same form.
    Vde {
        command: Vec<String>,
        remedy: &'static str,
    },
}

/// A path of the table.
struct KnownPath {
    name: &'static str,
    /// The forwarder; `None` if it is Linux.
    command: Option<&'static str>,
    /// Its ports are those of VDE, not vhost-user.
    is_vde: bool,
    remedy: &'static str,
}

/// Paths that have a name.
const KNOWN: [KnownPath; 5] = [
    KnownPath {
        name: "switch",
        command: Some("trapline-switch --poll --cpu {cpu} --listen {a} --listen {b}"),
        is_vde: false,
        remedy: "make build",
    },
    KnownPath {
        name: "testpmd",
        // Without huge pages; the defaults for memory and buffers do not fit there.
        command: Some(
            "dpdk-testpmd --no-huge -m 1024 --no-telemetry --no-pci -l {cpu},{other} --main-lcore {other} \
             --file-prefix={a} --vdev net_vhost0,iface={a},queues=1 --vdev net_vhost1,iface={b},queues=1 -- \
             --nb-cores=1 --burst=64 --total-num-mbufs=8192 --forward-mode=io --auto-start --no-mlockall -i",
        ),
        is_vde: false,
        remedy: "apt-get install dpdk",
    },
    KnownPath {
        name: "veth",
        command: None,
        is_vde: false,
        remedy: "",
    },
    KnownPath {
        name: "bridge",
        command: None,
        is_vde: false,
        remedy: "",
    },
    KnownPath {
        name: "vde",
        command: Some("vde_switch --sock {a}"),
        is_vde: true,
        remedy: "apt-get install vde2",
    },
];

impl PacketPath {
    /// Returns the names of all known paths.
    pub fn names() -> [&'static str; KNOWN.len()] {
        KNOWN.map(|path| path.name)
    }

    /// Returns a known path.
    pub fn known(name: &str) -> Option<Self> {
        let known = KNOWN.into_iter().find(|path| path.name == name)?;
        let remedy = known.remedy;
        let words = |command: &str| command.split_whitespace().map(str::to_owned).collect();
        let kind = match (known.command.map(words), known.is_vde) {
            (None, _) => Kind::Kernel(known.name),
            (Some(command), true) => Kind::Vde { command, remedy },
            (Some(command), false) => Kind::VhostUser { command, remedy },
        };
        Some(Self {
            name: name.to_owned(),
            kind,
        })
    }

    /// Returns the path through a forwarder of the user's.
    ///
    /// # Errors
    /// The command is invalid, with the reason.
    pub fn custom(name: &str, command: &str) -> Result<Self, String> {
        let words = shlex::split(command).ok_or("a quote is not closed")?;
        for placeholder in ["{a}", "{b}"] {
            if !words.iter().any(|word| word.contains(placeholder)) {
                return Err(format!("{placeholder} is missing, a socket's path"));
            }
        }
        Ok(Self {
            name: name.to_owned(),
            kind: Kind::VhostUser {
                command: words,
                remedy: "name a program that exists",
            },
        })
    }

    /// Returns whether its ports are queues of virtio, so that their format matters.
    pub fn has_rings(&self) -> bool {
        matches!(self.kind, Kind::VhostUser { .. })
    }
}

/// A started forwarder. It ends when this is dropped.
pub struct Forwarder {
    process: Option<Process>,
    directory: TempDir,
    kind: Kind,
    /// The program that sends frames.
    traffic: PathBuf,
    cpus: [u32; 2],
}

impl Forwarder {
    /// Starts what `path` needs. `cpus` are that of the ports and that of the forwarder.
    ///
    /// # Errors
    /// A program is missing, or does not open its sockets.
    pub fn start(path: &PacketPath, parts: &Parts, cpus: [u32; 2]) -> Result<Self, Error> {
        let traffic = own_program(parts, "trapline-traffic")?;
        let directory = tempfile::Builder::new().prefix("trapline-net-").tempdir();
        let directory = directory.map_err(Error::file(std::env::temp_dir()))?;
        let mut forwarder = Self {
            process: None,
            directory,
            kind: path.kind.clone(),
            traffic,
            cpus,
        };
        let (words, remedy) = match &path.kind {
            Kind::Kernel(_) => return Ok(forwarder),
            Kind::VhostUser { command, remedy } | Kind::Vde { command, remedy } => {
                (command, *remedy)
            }
        };
        let words: Vec<String> = words.iter().map(|word| forwarder.filled(word)).collect();
        let (program, arguments) = words.split_first().ok_or_else(|| {
            Error::missing("the command of the forwarder is empty", "name a program")
        })?;
        let file = match program.as_str() {
            "trapline-switch" => own_program(parts, program)?,
            _ => find_program(program)
                .ok_or_else(|| Error::missing(format!("{program} is not installed"), remedy))?,
        };
        let mut command = Command::new(file).with_terminal();
        for argument in arguments {
            command = command.arg(argument);
        }
        forwarder.process = Some(Process::start(&command)?);
        forwarder.wait(&words.join(" "))?;
        Ok(forwarder)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn filled(&self, word: &str) -> String {
        let [ports, forwarder] = self.cpus;
        let path = |name| self.socket(name).display().to_string();
        word.replace("{a}", &path("a"))
            .replace("{b}", &path("b"))
            .replace("{cpu}", &forwarder.to_string())
            .replace("{other}", &ports.to_string())
    }

    /// Waits until the sockets are there.
    fn wait(&self, command: &str) -> Result<(), Error> {
        let sockets = match self.kind {
            Kind::Vde { .. } => vec![self.socket("a").join("ctl")],
            _ => vec![self.socket("a"), self.socket("b")],
        };
        let deadline = Instant::now() + OPEN;
        while !sockets.iter().all(|socket| socket.exists()) {
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

    /// Sends frames for a time, at a rate of each sender or as many as arrive.
    ///
    /// # Errors
    /// The program that sends fails, as when the forwarder has ended.
    pub fn trial(
        &self,
        frames: Frames,
        rate: Option<f64>,
        duration: Duration,
    ) -> Result<TrialFigures, Error> {
        let [ports, forwarder] = self.cpus;
        let mut command = process::Command::new(&self.traffic);
        match self.kind {
            Kind::VhostUser { .. } => command.args([self.socket("a"), self.socket("b")]),
            Kind::Kernel(name) => command.args(["--kernel", name]),
            Kind::Vde { .. } => command.arg("--vde").arg(self.socket("a")),
        };
        let mut option = |name: &str, value: String| {
            command.args([name, &value]);
        };
        option("--size", frames.size.to_string());
        option("--direction", frames.direction.name().to_owned());
        option("--seconds", duration.as_secs_f64().to_string());
        option("--cpu", ports.to_string());
        option("--switch-cpu", forwarder.to_string());
        if let Some(rate) = rate {
            option("--rate", rate.to_string());
        }
        if let Some(process) = &self.process {
            option("--switch-process", process.pid().to_string());
        }
        if frames.ring == Ring::Packed {
            command.arg("--packed");
        }
        let output = tool::output(&mut command)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::unavailable(text));
        }
        parse(&output.stdout, rate.is_some())
            .ok_or_else(|| Error::unavailable("trapline-traffic of another version"))
    }
}

/// Returns the path of a program that is installed with this one.
fn own_program(parts: &Parts, name: &str) -> Result<PathBuf, Error> {
    let file = parts.directory().join(name);
    match file.is_file() {
        true => Ok(file),
        false => Err(Error::missing(
            format!("{name} is not in {}", parts.directory().display()),
            trapline_host::MISSING_PARTS,
        )),
    }
}

/// Parses the output of trapline-traffic.
fn parse(output: &[u8], with_latency: bool) -> Option<TrialFigures> {
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
    Some(TrialFigures {
        duration_ns: (value["seconds"].as_f64()? * 1e9) as u64,
        sent: flow("sent")?,
        refused: flow("refused")?,
        received: flow("received")?,
        damaged: flow("damaged")?,
        ports_cpu_ns: value["cpu_ns"].as_u64()?,
        forwarder_cpu_ns: value["switch_cpu_ns"].as_u64(),
        kicks: value["kicks"].as_u64()?,
        calls: value["calls"].as_u64()?,
        latency: with_latency.then(latency).flatten(),
        round_trip_ns: value["round_trip_ns"].as_f64()?,
    })
}
