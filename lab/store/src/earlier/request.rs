//! Words of a command line -> requests.

use crate::settings::EARLIER_CONTROL;
use trapline_model::kernel_build::{self, Place, Size};
use trapline_model::packets::{self, Direction, Purpose, Ring};
use trapline_model::recorded::{Block, Packets};
use trapline_model::{Aim, EnvironmentId, Operation, RecordedRequest, Setting, EXACT_BOOTS};

/// Returns the request of some words; with their text alone if they cannot be parsed.
pub fn parsed(words: &str) -> RecordedRequest {
    let parsed = match words.split(' ').next() {
        Some("kernel-build") => builds(words),
        Some("net") => frames(words),
        _ => operations(words),
    };
    parsed.unwrap_or_else(|| RecordedRequest {
        unparsed: Some(words.to_owned()),
        ..RecordedRequest::default()
    })
}

/// Returns names and values of options, which may have spaces. What precedes the first has no name.
fn options(words: &str) -> Vec<(&str, &str)> {
    let (first, rest) = match words.strip_prefix("--") {
        Some(rest) => ("", rest),
        None => words.split_once(" --").unwrap_or((words, "")),
    };
    let options = rest.split(" --").filter(|option| !option.is_empty());
    let options = options.map(|option| option.split_once(' ').unwrap_or((option, "")));
    let first = Some(("", first)).filter(|(_, words)| !words.is_empty());
    first.into_iter().chain(options).collect()
}

/// Separates configurations, whose settings are separated like themselves.
fn configs(list: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in list.split(',') {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let (word, is_setting) = match name {
            EARLIER_CONTROL => ("control", true),
            _ => (word, Setting::from_name(name).is_some()),
        };
        match all.last_mut().filter(|_| is_setting) {
            Some(config) => {
                config.push(',');
                config.push_str(word);
            }
            None => all.push(word.to_owned()),
        }
    }
    all
}

/// Names of the options of workload irq. They stood behind all others but those of workload block, whose first is `size`.
const FIRST_OF_IRQ: &str = "between";

fn operations(words: &str) -> Option<RecordedRequest> {
    let mut request = RecordedRequest::default();
    let mut block = (None, None);
    let mut is_of_irq = false;
    for (name, value) in options(words) {
        let text = || value.to_owned();
        is_of_irq |= name == FIRST_OF_IRQ;
        match name {
            "" if value == "baseline" => request.aim = Aim::Baseline,
            "" if value == "check" => {}
            "baseline" => request.aim = Aim::Check(text()),
            "env" => request.configs = configs(value).into_iter().collect(),
            "workload" => request.operations = value.split(',').map(str::to_owned).collect(),
            "preset" => request.preset = Some(text()),
            "seed" => {}
            "boots" => request.boots = Some(value.parse().ok()?),
            "exact-boots" => request.exact_boots = Some(value.parse().ok()?),
            "size" => block.0 = value.strip_suffix('M')?.parse().ok(),
            "requests" => block.1 = value.parse().ok(),
            "" => return None,
            name if is_of_irq => _ = request.irq.insert(name.to_owned(), text()),
            name => _ = request.settings.insert(name.to_owned(), text()),
        }
    }
    request.block = block
        .0
        .zip(block.1)
        .map(|(mib, requests)| Block { mib, requests });
    (!request.operations.is_empty()).then_some(request)
}

fn builds(words: &str) -> Option<RecordedRequest> {
    let mut request = RecordedRequest::default();
    let (mut environments, mut cpus, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in options(words).into_iter().skip(1) {
        match name {
            "env" => environments = each(value, EnvironmentId::from_recorded)?,
            "size" => request.operations = vec![Operation::Build(Size::from_name(value)?).path()],
            "cpus" => cpus = each(value, |text| text.parse().ok())?,
            "place" => places = each(value, Place::from_name)?,
            "seed" => {}
            "boots" => request.boots = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    request.exact_boots = request.boots.filter(|boots| *boots != EXACT_BOOTS);
    request.boots = Some(request.boots.unwrap_or(kernel_build::BUILDS));
    bounded([environments.len(), cpus.len(), places.len()])?;
    let all = kernel_build::configs(&environments, &cpus, &places);
    request.configs = all.iter().map(ToString::to_string).collect();
    Some(request)
}

fn frames(words: &str) -> Option<RecordedRequest> {
    let mut request = RecordedRequest::default();
    let mut packets = Packets {
        milliseconds: packets::Settings::default().milliseconds,
        cpus: packets::Settings::default().cpus,
    };
    let (mut paths, mut queues) = (Vec::new(), vec![1]);
    let (mut sizes, mut rings, mut directions) = (Vec::new(), Vec::new(), Vec::new());
    let mut purposes = vec![Purpose::Maximum, Purpose::HalfLoad];
    // Commands were quoted for a shell, and may have options of their own.
    let words = shlex::split(words)?;
    for pair in words.get(1..)?.chunks(2) {
        let [name, value] = pair else { return None };
        match name.strip_prefix("--")? {
            "path" => paths = each(value, |name| Some(name.to_owned()))?,
            "size" => sizes = each(value, |text| text.parse().ok())?,
            "ring" => rings = each(value, Ring::from_name)?,
            "queues" => queues = each(value, |text| text.parse().ok())?,
            "direction" => directions = each(value, Direction::from_name)?,
            "duration" => packets.milliseconds = value.parse().ok()?,
            "rounds" => request.boots = Some(value.parse().ok()?),
            "cpus" => packets.cpus = each(value, |text| text.parse().ok())?.try_into().ok()?,
            "seed" => {}
            "forwarder" => {
                let (name, command) = value.split_once('=')?;
                request
                    .forwarders
                    .insert(name.to_owned(), command.to_owned());
            }
            "load" if value == "search" => purposes.push(Purpose::Search),
            "load" => purposes = vec![Purpose::Given(value.parse::<f64>().ok()? as u32)],
            _ => return None,
        }
    }
    let environments = paths
        .iter()
        .map(|name| EnvironmentId::from_recorded(&format!("net/{name}")));
    let environments = environments.collect::<Option<Vec<_>>>()?;
    bounded([environments.len(), rings.len(), queues.len()])?;
    let all = packets::configs(&environments, &rings, &queues);
    request.configs = all.iter().map(ToString::to_string).collect();
    let all = packets::operations(&sizes, &directions, &purposes).into_iter();
    request.operations = all.map(|it| Operation::Packets(it).path()).collect();
    request.packets = Some(packets);
    Some(request)
}

/// Items of a list, at most.
const MOST: usize = 64;

/// Combinations of three lists, at most.
const MOST_COMBINATIONS: usize = 4096;

/// Returns `None` if lists of these lengths have too many combinations.
fn bounded(lengths: [usize; 3]) -> Option<()> {
    (lengths.iter().product::<usize>() <= MOST_COMBINATIONS).then_some(())
}

/// Parses the items of a list that are separated by commas; `None` if one is invalid, or if there are too many.
fn each<T>(list: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let items: Option<Vec<T>> = list.split(',').map(parse).collect();
    items.filter(|items| items.len() <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn words_of_every_command_are_converted() {
        let of = |words: &str| parsed(words).to_string();
        expect![[r#"{"aim":{"check":"a b.json"},"configs":["host","kvm:cpus=2,memory=1024M","sim/custom:vmm=b c"],"operations":["basic","exits/port-out"],"preset":"quick","boots":3,"exact-boots":1,"settings":{"cap":"25","cpus":"2"}}"#]].assert_eq(&of(
            "check --baseline a b.json --env host,kvm:cpus=2,memory=1024M,sim/custom:vmm=b c --workload \
             basic,exits/port-out --preset quick --seed 7 --boots 3 --exact-boots 1 --cpus 2 --cap 25",
        ));
        expect![[r#"{"aim":"report","configs":["host"],"operations":["irq","block"],"preset":"full","settings":{"cap":"25"},"irq":{"between":"halt","load":"none","period":"10ms","pin":"free","sched":"other","threshold":"30us"},"block":{"mib":256,"requests":32768}}"#]].assert_eq(&of(
            "--env host --workload irq,block --preset full --cap 25 --between halt --load none --period 10ms \
             --pin free --sched other --threshold 30us --size 256M --requests 32768",
        ));
        expect![[
            r#"{"aim":"baseline","configs":["sim"],"operations":["basic"],"preset":"quick"}"#
        ]]
        .assert_eq(&of("baseline --env sim --workload basic --preset quick"));
        expect![[r#"{"aim":"report","configs":["host:jobs=1,place=same","host:jobs=2,place=same","sim/linux:jobs=1,place=same"],"operations":["kernel-build/tiny"],"boots":2}"#]].assert_eq(&of(
            "kernel-build --env host,sim/linux --size tiny --cpus 1,2 --place same --seed 3 --boots 2",
        ));
        expect![[r#"{"aim":"report","configs":["net/mine-of-earlier","net/mine-of-earlier:queues=4","net/mine-of-earlier:ring=packed","net/mine-of-earlier:ring=packed,queues=4","net/switch","net/switch:queues=4","net/switch:ring=packed","net/switch:ring=packed,queues=4"],"operations":["packets/rate-at-load:size=60,direction=both,load=1000000","packets/rate-at-load:size=1500,direction=both,load=1000000"],"boots":3,"packets":{"milliseconds":500,"cpus":[1,0]},"forwarders":{"mine-of-earlier":"./my \"own\" --listen {a} {b}"}}"#]].assert_eq(&of(
            "net --path switch,mine-of-earlier --size 60,1500 --ring split,packed --direction both --duration 500 \
             --rounds 3 --cpus 1,0 --seed 9 --queues 1,4 --forwarder 'mine-of-earlier=./my \"own\" --listen {a} {b}' --load 1000000",
        ));
        expect![[r#"{"aim":"report","configs":["net/veth"],"operations":["packets/rate:size=60,direction=one","packets/latency:size=60,direction=one","packets/search:size=60,direction=one"],"boots":1,"packets":{"milliseconds":300,"cpus":[1,0]}}"#]].assert_eq(&of(
            "net --path veth --size 60 --ring split --direction one --duration 300 --rounds 1 --cpus 1,0 --seed 9 --load search",
        ));
    }

    #[test]
    fn other_words_are_kept_as_text() {
        let many = ["1"; 64].join(",");
        let many = format!("kernel-build --env host --size tiny --cpus {many} --place same");
        let too_many = format!("{many},{}", ["same"; 63].join(",")).replace("host", "host,sim");
        assert_eq!(parsed(&many).unparsed, None);
        for words in [
            "",
            "no options",
            "kernel-build --size huge",
            "net --path",
            &too_many,
        ] {
            let request = parsed(words);
            assert_eq!(request.unparsed.as_deref(), Some(words));
        }
    }
}
