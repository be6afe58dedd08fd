//! Commands that repeat stored runs, for pasting into a shell.

use crate::timer::Timer;
use clap::ValueEnum;
use std::borrow::Cow;
use std::collections::BTreeSet;
use trapline_abi::{block, OpSet};
use trapline_model::kernel_build::Column;
use trapline_model::packets::{PacketOperation, Purpose, Queues};
use trapline_model::{irq, Aim, Config, Operation, RecordedRequest};

/// Returns the command of a run from its request.
pub fn command(request: &RecordedRequest) -> String {
    if let Some(words) = &request.unparsed {
        return format!("trapline {}", quoted(words));
    }
    let guests = request.guest_operations();
    let (name, options) = match request.long_operations().first() {
        _ if matches!(request.aim, Aim::Check(_)) => ("check", Vec::new()),
        Some(Operation::Build(_)) => ("kernel-build", builds(request)),
        Some(Operation::Packets(_)) => ("net", packets(request)),
        _ if request.aim == Aim::Baseline => ("baseline", operations(request, true)),
        _ if timer(guests).is_some() => ("irq", interrupts(request)),
        _ if guests.is_subset(block::operations()) => ("block", disk(request)),
        _ => ("run", operations(request, true)),
    };
    let baseline = match &request.aim {
        Aim::Check(baseline) => vec![("baseline", baseline.clone())],
        Aim::Report | Aim::Baseline => Vec::new(),
    };
    let options = baseline.into_iter().chain(options);
    let words = options.map(|(name, value)| format!(" --{name} {}", quoted(&value)));
    format!("trapline {name}{}", words.collect::<String>())
}

/// Name and value of an option.
type Setting = (&'static str, String);

/// Options that all commands for guests have.
fn common(request: &RecordedRequest) -> Vec<Setting> {
    let layout = |name: &&str| {
        let config = Config::from_recorded(name);
        config.map_or(0, |config| config.without_layout().1)
    };
    let names = || request.configs.iter().map(String::as_str);
    let environments: Vec<&str> = names().filter(|name| layout(name) == 0).collect();
    let last = names().map(|name| layout(&name)).max().unwrap_or(0);
    let layouts = (last > 0).then(|| ("layouts", (last + 1).to_string()));
    let environments = [("env", environments.join(","))];
    environments.into_iter().chain(layouts).collect()
}

/// Returns preset, boots and settings; baselines have no preset.
fn extent(request: &RecordedRequest) -> Vec<Setting> {
    let mut options = Vec::new();
    let preset = request
        .preset
        .clone()
        .filter(|_| request.aim != Aim::Baseline);
    options.extend(preset.map(|preset| ("preset", preset)));
    options.extend(request.boots.map(|boots| ("boots", boots.to_string())));
    let exact = request
        .exact_boots
        .map(|boots| ("exact-boots", boots.to_string()));
    options.extend(exact);
    options.extend(request.slice.clone().map(|slice| ("slice", slice)));
    let settings = trapline_model::SETTINGS.iter();
    let settings =
        settings.filter_map(|it| Some((it.name, request.settings.get(it.name)?.clone())));
    options.extend(settings);
    options
}

fn operations(request: &RecordedRequest, with_workloads: bool) -> Vec<Setting> {
    let mut options = common(request);
    if with_workloads {
        options.push(("workload", request.operations.join(",")));
    }
    options.extend(extent(request));
    options
}

/// Returns the option of command `irq` that measures these operations.
fn timer(operations: OpSet) -> Option<Timer> {
    let mut all = Timer::value_variants().iter().copied();
    all.find(|timer| timer.operations() == operations)
}

fn interrupts(request: &RecordedRequest) -> Vec<Setting> {
    let mut options = operations(request, false);
    let timer = timer(request.guest_operations()).filter(|timer| *timer != Timer::Both);
    let name = timer.and_then(|timer| Some(timer.to_possible_value()?.get_name().to_owned()));
    options.extend(name.map(|name| ("timer", name)));
    let idle = request.irq_settings().idle();
    if idle != irq::Settings::default().idle() {
        options.push(("idle", idle.to_owned()));
    }
    let of_command = [
        "load",
        "period",
        "pin",
        "policy",
        "require",
        "samples",
        "sched",
        "threshold",
        "vcpus-per-cpu",
    ];
    let known = of_command.into_iter();
    options.extend(known.filter_map(|name| Some((name, request.irq.get(name)?.clone()))));
    // Xen's schedulers are settings of the machine, too.
    let mut names = BTreeSet::new();
    options.retain(|(name, _)| names.insert(*name));
    options
}

fn disk(request: &RecordedRequest) -> Vec<Setting> {
    let mut options = operations(request, false);
    if request.guest_operations() != block::operations() {
        let list = request.operations.join(",").replace("block/", "");
        options.push(("op", list));
    }
    if let Some(block) = request.block {
        options.push(("size", format!("{}M", block.mib)));
        options.push(("requests", block.requests.to_string()));
    }
    options
}

/// Returns the configurations.
fn configs(request: &RecordedRequest) -> Vec<Config> {
    let all = request.configs.iter();
    all.filter_map(|name| Config::from_recorded(name)).collect()
}

/// Joins values, each once, in their order.
fn list<T: Ord>(values: impl Iterator<Item = T>, name: impl Fn(&T) -> String) -> String {
    let all: BTreeSet<T> = values.collect();
    all.iter().map(name).collect::<Vec<_>>().join(",")
}

fn builds(request: &RecordedRequest) -> Vec<Setting> {
    let configs = configs(request);
    let columns = || configs.iter().filter_map(Column::of);
    let size = request
        .operations
        .first()
        .and_then(|name| name.split_once('/'));
    let environments = configs.iter().map(|config| config.environment);
    let mut options = vec![
        ("env", list(environments, ToString::to_string)),
        (
            "size",
            size.map_or_else(String::new, |(_, size)| size.to_owned()),
        ),
        ("cpus", list(columns().map(|it| it.cpus), u32::to_string)),
        (
            "place",
            list(columns().map(|it| it.place), |it| it.name().to_owned()),
        ),
    ];
    options.extend(request.boots.map(|boots| ("boots", boots.to_string())));
    options
}

fn packets(request: &RecordedRequest) -> Vec<Setting> {
    let configs = configs(request);
    let queues = || configs.iter().map(Queues::of);
    let operations = request.long_operations();
    let of = || {
        let all = operations.iter();
        all.filter_map(|operation| match operation {
            Operation::Packets(of) => Some(*of),
            Operation::Guest(_) | Operation::Build(_) => None,
        })
    };
    let paths = configs.iter().map(|config| config.environment);
    let mut options = vec![
        (
            "path",
            list(paths, |id| id.forwarder().unwrap_or_default().to_owned()),
        ),
        ("size", list(of().map(|it| it.size), u32::to_string)),
        (
            "ring",
            list(queues().map(|it| it.ring), |it| it.name().to_owned()),
        ),
        ("queues", list(queues().map(|it| it.pairs), u32::to_string)),
        (
            "direction",
            list(of().map(|it| it.direction), |it| it.name().to_owned()),
        ),
    ];
    options.extend(of().find_map(load).map(|load| ("load", load)));
    if let Some(packets) = request.packets {
        let [ports, forwarder] = packets.cpus;
        options.push(("duration", packets.milliseconds.to_string()));
        options.push(("cpus", format!("{ports},{forwarder}")));
    }
    options.extend(request.boots.map(|rounds| ("rounds", rounds.to_string())));
    let commands = request.forwarders.iter();
    options.extend(commands.map(|(name, command)| ("forwarder", format!("{name}={command}"))));
    options
}

/// Returns the load of an operation, if one was asked for.
fn load(of: PacketOperation) -> Option<String> {
    match of.purpose {
        Purpose::Given(load) => Some(load.to_string()),
        Purpose::Search => Some("search".to_owned()),
        Purpose::Maximum | Purpose::HalfLoad | Purpose::Confirm => None,
    }
}

/// Quotes a word for a shell, if it needs that.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        shlex::Quoter::new()
            .allow_nul(true)
            .quote(word)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;
    use expect_test::expect;
    use trapline_abi::Op;
    use trapline_model::kernel_build::{self, Place, Size};
    use trapline_model::{names, packets, EnvironmentId, Halt, Request, Scheduling};

    fn request(operations: OpSet) -> Request {
        Request {
            configs: vec![Config::new(EnvironmentId::HOST)],
            operations,
            ..Request::default()
        }
    }

    /// Returns the command of a request, which is one that this program parses.
    fn parsed(request: &Request) -> String {
        let text = command(&RecordedRequest::of(request));
        let words = shlex::split(&text).expect("quotes are closed");
        let parsed = Cli::try_parse_from(words);
        assert!(parsed.is_ok(), "{text}: {:?}", parsed.err());
        text
    }

    /// Returns a request of packets through a user's program.
    fn of_packets() -> Request {
        let mine = EnvironmentId::define_forwarder("mine-of-commands", "./mine {a} {b}").unwrap();
        let packets = packets::operations(
            &[60],
            &packets::Direction::ALL[..1],
            &[Purpose::Given(1_000)],
        );
        Request {
            configs: packets::configs(&[mine], &packets::Ring::ALL, &[1]),
            long: packets.into_iter().map(Operation::Packets).collect(),
            boots: Some(5),
            ..Request::default()
        }
    }

    #[test]
    fn every_kind_of_run_is_repeated_by_its_command() {
        let halting = irq::Settings {
            scheduling: Scheduling {
                halt: Halt::InGuest,
                ..Scheduling::DEFAULT
            },
            ..irq::Settings::default()
        };
        let with = |aim| Request {
            aim,
            ..request(names::operations("exits/port-out").unwrap())
        };
        let requests = [
            request(names::operations("basic,irq").unwrap()),
            Request {
                configs: Config::in_layouts(&[EnvironmentId::SIM_KVM.into()], 3),
                ..request(names::operations("exits/port-out").unwrap())
            },
            request(block::operations()),
            request(names::operations("block/read-4k-1").unwrap()),
            request(Op::OwnTimer | Op::HostTimer),
            request(irq::operations()),
            Request {
                irq: halting,
                ..request(names::operations("irq/own-timer").unwrap())
            },
            Request {
                configs: vec![EnvironmentId::SIM.into()],
                ..with(Aim::Baseline)
            },
            with(Aim::Check("sim kvm.json".to_owned())),
            Request {
                configs: kernel_build::configs(&[EnvironmentId::HOST], &[1, 2], &Place::ALL),
                long: vec![Operation::Build(Size::Mini)],
                boots: Some(3),
                ..Request::default()
            },
            of_packets(),
        ];
        let commands: Vec<String> = requests.iter().map(parsed).collect();
        expect![[r#"
            trapline run --env host --workload basic,irq --preset quick
            trapline run --env sim/kvm --layouts 3 --workload exits/port-out --preset quick
            trapline block --env host --preset quick --size 256M --requests 32768
            trapline block --env host --preset quick --op read-4k-1 --size 256M --requests 32768
            trapline irq --env host --preset quick --load none --period 10ms --pin free --sched other --threshold 30us
            trapline irq --env host --preset quick --timer all --load none --period 10ms --pin free --sched other --threshold 30us
            trapline irq --env host --preset quick --timer own --idle halt-in-guest --load none --period 10ms --pin free --sched other --threshold 30us
            trapline baseline --env sim --workload exits/port-out
            trapline check --baseline 'sim kvm.json'
            trapline kernel-build --env host --size mini --cpus 1,2 --place same,disjoint --boots 3
            trapline net --path mine-of-commands --size 60 --ring split,packed --queues 1 --direction one --load 1000 --duration 300 --cpus 1,0 --rounds 5 --forwarder 'mine-of-commands=./mine {a} {b}'"#]].assert_eq(&commands.join("\n"));
    }

    /// A shell must take a pasted command as one command with these words.
    #[test]
    fn no_request_becomes_another_command() {
        let hostile = [
            ";touch x",
            "$(touch x)",
            "`touch x`",
            "&& x",
            "| x",
            "> x",
            "'",
            "\"",
            "\\",
            "\n x",
            "#",
            "*",
            "~",
            "!x",
            "\0",
        ];
        let places: [fn(&str) -> RecordedRequest; 7] = [
            |text| RecordedRequest {
                configs: [text.to_owned()].into(),
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                operations: vec![text.to_owned()],
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                settings: [("cpus".to_owned(), text.to_owned())].into(),
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                operations: vec!["irq/own-timer".to_owned()],
                irq: [("load".to_owned(), text.to_owned())].into(),
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                aim: Aim::Check(text.to_owned()),
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                operations: vec!["packets/rate:size=60,direction=one".to_owned()],
                forwarders: [(text.to_owned(), text.to_owned())].into(),
                ..RecordedRequest::default()
            },
            |text| RecordedRequest {
                unparsed: Some(text.to_owned()),
                ..RecordedRequest::default()
            },
        ];
        for text in hostile {
            for place in places {
                let command = command(&place(text));
                let words = shlex::split(&command).expect("quotes are closed");
                let again = words.iter().map(|word| quoted(word)).collect::<Vec<_>>();
                assert_eq!(again.join(" "), command.trim_end());
            }
        }
    }
}
