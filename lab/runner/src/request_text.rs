//! Requests as text: the `request` column of the store, in the form of a command line.

use crate::context::RunContext;
use crate::inventory::Inventory;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{block, OpSet};
use trapline_model::{irq, kernel_build, names, packets, Config, Request, EXACT_BOOTS};
use trapline_stats::history::SeriesSettings;
use trapline_store::RunInfo;

/// Fact that identifies the builds under test.
pub const PARTS: &str = "parts";

/// The request of a run as stored.
pub struct RecordedRequest {
    /// Options of a command line.
    pub text: String,
    /// Facts of the host and of the builds under test.
    pub facts: BTreeMap<String, String>,
}

impl RecordedRequest {
    /// Records a request for operations.
    pub fn of(request: &Request, context: &RunContext<'_>) -> Self {
        let configs = request.configs.iter();
        let inventories = configs.map(|it| context.inventory.with_files_of(&it.overrides));
        Self::new(describe(request), inventories, context)
    }

    /// Records a request for kernel builds.
    pub fn of_builds(request: &kernel_build::BuildRequest, context: &RunContext<'_>) -> Self {
        Self::new(
            request.to_string(),
            [context.inventory].into_iter(),
            context,
        )
    }

    /// Records a request for rates of packets.
    pub fn of_packets(request: &packets::PacketRequest, context: &RunContext<'_>) -> Self {
        let inventories = [context.inventory].into_iter();
        Self::new(request.to_string(), inventories, context)
    }

    fn new<'a>(
        text: String,
        inventories: impl Iterator<Item = &'a Inventory>,
        context: &RunContext<'_>,
    ) -> Self {
        let mut facts = context.host_facts.clone();
        let parts = inventories.map(|it| it.settings().parts.fingerprint());
        let parts: Vec<String> = parts.collect::<BTreeSet<_>>().into_iter().collect();
        facts.insert(PARTS.to_owned(), parts.join(" "));
        Self { text, facts }
    }
}

/// Returns a request as options of a command line.
pub fn describe(request: &Request) -> String {
    let configs = request.configs.iter().map(Config::to_string);
    let environments: Vec<_> = configs.collect();
    let command = match request.command.as_str() {
        "" => String::new(),
        command => format!("{command} "),
    };
    let mut words = format!(
        "{command}--env {} --workload {} --preset {}",
        environments.join(","),
        names::describe(request.operations),
        request.preset.name(),
    );
    if request.uses_seed() {
        words.push_str(&format!(" --seed {}", request.seed));
    }
    if let Some(boots) = request.boots {
        words.push_str(&format!(" --boots {boots}"));
    }
    if request.exact_boots != EXACT_BOOTS {
        words.push_str(&format!(" --exact-boots {}", request.exact_boots));
    }
    for option in request.overrides.options() {
        words.push_str(&format!(" {option}"));
    }
    if request.operations.intersects(irq::operations()) {
        for (name, value) in request.irq.facts() {
            let word = format!(" --{} {value}", name.trim_start_matches("irq-"));
            // Xen's schedulers are options of the machine, too.
            if !words.contains(&word) {
                words.push_str(&word);
            }
        }
    }
    if request.operations.intersects(block::operations()) {
        let (mib, requests) = request.block.largest(&request.configs);
        words.push_str(&format!(" --size {mib}M --requests {requests}"));
    }
    words
}

/// Returns the operations of a recorded request: all known ones if this version cannot parse them, and
/// none for kernel builds and packets.
pub fn operations(words: &str) -> OpSet {
    if words.parse::<kernel_build::BuildRequest>().is_ok()
        || words.parse::<packets::PacketRequest>().is_ok()
    {
        return OpSet::EMPTY;
    }
    let mut words = words.split(' ').skip_while(|word| *word != "--workload");
    let list = words.nth(1);
    let selected = list.and_then(|list| names::operations(list).ok());
    selected.unwrap_or(OpSet::ALL)
}

/// Returns a recorded request without its seed, which a run without one draws.
pub fn without_seed(words: &str) -> String {
    let mut words = words.split(' ');
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--seed" => _ = words.next(),
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Options of a request that its figures do not depend on.
const NOT_MEASURED: [&str; 6] = [
    "env",
    "workload",
    "seed",
    "boots",
    "exact-boots",
    "baseline",
];

/// Returns the settings of a run that its figures depend on. The store has the preset and the
/// settings of the machine only in the words of [`describe`]; those of workload irq are read
/// from the facts of the run.
pub fn comparable(run: &RunInfo) -> SeriesSettings {
    let mut general: Vec<String> = Vec::new();
    let mut block: Vec<String> = Vec::new();
    let options = format!(" {}", run.request);
    let mut is_of_irq = false;
    for option in options.split(" --").skip(1) {
        let name = option.split(' ').next().unwrap_or(option);
        // The first of the options of workload irq, which are before those of workload block.
        is_of_irq |= name == "between";
        match name {
            "size" | "requests" => block.push(option.to_owned()),
            name if is_of_irq || NOT_MEASURED.contains(&name) => {}
            _ => general.push(option.to_owned()),
        }
    }
    SeriesSettings {
        general: general.join(", "),
        irq: interrupts(&run.facts),
        block: block.join(", "),
    }
}

/// Returns the settings of workload irq that differ from the default, without thresholds.
fn interrupts(facts: &BTreeMap<String, String>) -> String {
    let settings = irq::Settings {
        threshold: irq::Settings::default().threshold,
        require: None,
        ..irq::Settings::from_facts(facts)
    };
    let usual = irq::Settings::default().facts();
    let facts = settings.facts().into_iter();
    let others = facts.filter(|(name, value)| usual.get(name) != Some(value));
    let others: Vec<String> = others
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    others.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_model::{EnvironmentId, Preset};

    #[test]
    fn operations_are_parsed_from_their_text() {
        let request = Request {
            configs: vec![EnvironmentId::HOST.into(), EnvironmentId::SIM_KVM.into()],
            ready: vec![],
            operations: names::operations("basic,exits/port-out").unwrap(),
            named: OpSet::EMPTY,
            preset: Preset::Quick,
            boots: Some(3),
            exact_boots: 1,
            overrides: "cpus=2,cap=25".parse().unwrap(),
            with_control: true,
            seed: 7,
            irq: Default::default(),
            block: Default::default(),
            without_taps: None,
            command: String::new(),
        };
        let words = describe(&request);
        let expected =
            "--env host,sim/kvm --workload basic,exits/port-out --preset quick --seed 7 --boots 3 \
             --exact-boots 1 --cpus 2 --cap 25";
        assert_eq!(words, expected);
        assert_eq!(operations(&words), request.operations);
        let check = Request {
            command: "check --baseline a.json".to_owned(),
            ..request.clone()
        };
        let text = describe(&check);
        assert_eq!(text, format!("check --baseline a.json {words}"));
        assert_eq!(operations(&text), request.operations);
        assert_eq!(comparable(&stored(&check)), comparable(&stored(&request)));
        assert_eq!(operations("of a later version"), OpSet::ALL);
        assert_eq!(
            operations("kernel-build --env host --size mini"),
            OpSet::EMPTY
        );
        let timers = Request {
            operations: irq::operations(),
            boots: None,
            exact_boots: EXACT_BOOTS,
            ..request
        };
        expect!["--env host,sim/kvm --workload irq --preset quick --seed 7 --cpus 2 --cap 25 --between halt --load none --period 10ms --pin free --sched other --threshold 30us"].assert_eq(&describe(&timers));
    }

    fn stored(request: &Request) -> RunInfo {
        RunInfo {
            id: trapline_store::RunId(1),
            started_at: 0,
            finished_at: None,
            seed: request.seed,
            request: describe(request),
            version: String::new(),
            facts: request.irq.facts(),
            boots: 0,
            owner: None,
            plan: None,
        }
    }

    #[test]
    fn settings_of_other_operations_are_ignored_in_comparisons() {
        let all = names::operations("basic,irq,block").unwrap();
        let of = |operations, preset, overrides: &str| {
            let request = Request {
                configs: vec![EnvironmentId::HOST.into()],
                operations,
                preset,
                boots: Some(7),
                overrides: overrides.parse().unwrap(),
                ..Request::default()
            };
            comparable(&stored(&request))
        };
        let some = of(names::operations("basic").unwrap(), Preset::Quick, "");
        assert_eq!(some.general, "preset quick");
        assert_eq!((some.irq.as_str(), some.block.as_str()), ("", ""));
        let every = of(all, Preset::Quick, "");
        assert_eq!((every.general, every.irq), (some.general, some.irq));
        expect!["size 256M, requests 32768"].assert_eq(&every.block);
        assert_eq!(
            of(all, Preset::Full, "cap=25").general,
            "preset full, cap 25"
        );
    }

    #[test]
    fn irq_settings_that_affect_figures_are_compared() {
        let request = Request {
            operations: irq::operations(),
            irq: irq::Settings {
                period: irq::Time(1_000_000),
                threshold: irq::Time(50_000),
                ..irq::Settings::default()
            },
            ..Request::default()
        };
        let found = comparable(&stored(&request));
        assert_eq!(
            (found.general.as_str(), found.irq.as_str()),
            ("preset quick", "irq-period 1ms")
        );
    }
}
