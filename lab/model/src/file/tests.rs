use super::*;
use crate::features::Feature;
use expect_test::expect;
use trapline_abi::{Op, OpSet, Workload};

const WHOLE: &str = r#"
about = "everything that can be written"
environments = ["host", "kvm", "kvm/linux"]
contenders = ["kvm:idle=in-guest"]
workloads = ["basic", "exits/port-out"]
preset = "full"
boots = 12
seed = 7
budget = "20m"

[machine]
cpus = [1, 2]
memory = "1G"

[irq]
period = "2ms"
load = "cpu"

[[tables]]
title = "What a kernel does"
operations = ["basic/yield", "basic/getpid"]
"#;

#[test]
fn a_plan_is_read_whole() {
    let study = read(WHOLE).unwrap();
    let names: Vec<String> = study.configs.iter().map(ToString::to_string).collect();
    let expected = [
        "host",
        "kvm:idle=in-guest",
        "kvm:cpus=1,memory=1024M",
        "kvm:cpus=2,memory=1024M",
        "kvm/linux:cpus=1,memory=1024M",
        "kvm/linux:cpus=2,memory=1024M",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        study.operations,
        (Workload::Basic.set() - OpSet::APART) | Op::PortOut
    );
    assert_eq!(study.named, Op::PortOut.into());
    assert_eq!(
        (study.preset, study.boots, study.seed),
        (Preset::Full, Some(12), Some(7))
    );
    assert_eq!(study.budget, Some(Duration::from_secs(1200)));
    assert_eq!(study.irq.period, irq::Time(2_000_000));
    assert_eq!(study.irq.conditions.loads.to_string(), "cpu");
    assert_eq!(study.tables[0].operations, Op::Yield | Op::Getpid);
}

#[test]
fn defaults_are_those_of_the_command_line() {
    let study = read("environments = ['sim']").unwrap();
    assert_eq!(study.configs, [EnvironmentId::SIM.into()]);
    assert_eq!(study.operations, usual_operations());
    assert_eq!(
        (study.preset, study.boots, study.seed),
        (Preset::Quick, None, None)
    );
    assert_eq!((study.budget, study.tables), (None, vec![]));
}

#[test]
fn errors_have_a_line_and_a_remedy() {
    let texts = [
        "",
        "environments = ['host'",
        "\nenvironments = [\n 'host',\n 'qemu-kmv']",
        "environments = ['host']\nenvironment = ['kvm']",
        "environments = ['host']\nworkloads = ['exits/port-oot']",
        "contenders = ['host:memory=1G']",
        "environments = ['kvm']\n[machine]\nmemory = ['1G', 'lots']",
        "environments = ['kvm']\n[machine]\nspeed = 9",
        "environments = ['kvm']\n[irq]\nperiod = 'often'",
        "environments = ['kvm']\n[irq]\nperiod = '0us'",
        "environments = ['kvm']\n[irq]\nrate = '9'",
        "environments = ['kvm']\nboots = 0",
        "environments = ['kvm']\nboots = 'many'",
        "environments = ['sim']\nexact-boots = 0",
        "environments = ['kvm']\nbudget = 'soon'",
        "environments = ['kvm']\npreset = 'ful'",
        "environments = ['kvm']\nworkloads = ['basic']\n[[tables]]\ntitle = 'x'\noperations = ['stream']",
    ];
    let errors = texts.map(|text| format!("{text:?}\n  {}\n", read(text).unwrap_err()));
    let supporting = EnvironmentId::names_of(|id| id.has(Feature::MemorySize));
    let errors = errors.map(|error| error.replace(&supporting, "ENVIRONMENTS"));
    expect![[r#"
        ""
          line 1: no environments: add environments = ["host", "kvm"], or others that 'trapline list' has
        "environments = ['host'"
          line 1: unclosed array, expected `]`
        "\nenvironments = [\n 'host',\n 'qemu-kmv']"
          line 4: unknown environment 'qemu-kmv'; did you mean 'qemu-kvm'?
        "environments = ['host']\nenvironment = ['kvm']"
          line 2: unknown field `environment`, expected one of `about`, `environments`, `contenders`, `workloads`, `preset`, `boots`, `exact-boots`, `seed`, `budget`, `vmm`, `machine`, `irq`, `tables`, `kernel-build`, `packets`
        "environments = ['host']\nworkloads = ['exits/port-oot']"
          line 2: unknown workload or operation 'exits/port-oot'; did you mean 'exits/port-out'?
        "contenders = ['host:memory=1G']"
          line 1: setting 'memory' is not supported by host, as nothing is virtualized there: leave it out, or choose from ENVIRONMENTS
        "environments = ['kvm']\n[machine]\nmemory = ['1G', 'lots']"
          line 3: invalid setting: memory=lots: expected a size like 512M or 2G
        "environments = ['kvm']\n[machine]\nspeed = 9"
          line 3: unknown setting: speed: choose from cpus, guests, memory, pages, crossing, spaces, switch, batching, state, paging, thp, cgroup, mitigations, layout, wake, path, peer, zeroing, isolation, file-mib, pin, competitor, idle, sched, cap, weight, jobs, place, ring, queues, image, agent, vmm, nova, qemu, kernel, modules
        "environments = ['kvm']\n[irq]\nperiod = 'often'"
          line 3: period = 'often': unsupported value, see 'trapline irq --help'
        "environments = ['kvm']\n[irq]\nperiod = '0us'"
          line 3: period = '0us': expected a period from 100us to 1s
        "environments = ['kvm']\n[irq]\nrate = '9'"
          line 3: unknown setting 'rate' in [irq]: choose from period, samples, between, threshold, require, load, pin, sched, halt, vcpus-per-cpu
        "environments = ['kvm']\nboots = 0"
          line 2: boots: expected a number from 1 to 10000
        "environments = ['kvm']\nboots = 'many'"
          line 2: invalid type: string "many", expected u32
        "environments = ['sim']\nexact-boots = 0"
          line 2: exact-boots: expected a number from 1 to 100
        "environments = ['kvm']\nbudget = 'soon'"
          line 2: budget = 'soon': expected a time above zero, like 90s, 20m or 2h
        "environments = ['kvm']\npreset = 'ful'"
          line 2: unknown preset 'ful'; did you mean 'full'?
        "environments = ['kvm']\nworkloads = ['basic']\n[[tables]]\ntitle = 'x'\noperations = ['stream']"
          line 5: 'stream' is not among the workloads above
    "#]].assert_eq(&errors.concat());
}
