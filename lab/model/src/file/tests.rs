use super::*;
use trapline_abi::{Op, Workload};

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
        "kvm:memory=1024M",
        "kvm/linux:cpus=1,memory=1024M",
        "kvm/linux:cpus=2,memory=1024M",
    ];
    assert_eq!(names, expected);
    assert_eq!(study.operations, Workload::Basic.set() | Op::PortOut.bit());
    assert_eq!(study.named, Op::PortOut.bit());
    assert_eq!(
        (study.preset, study.boots, study.seed),
        (Preset::Full, Some(12), Some(7))
    );
    assert_eq!(study.budget, Some(Duration::from_secs(1200)));
    assert_eq!(study.irq.period, irq::Time(2_000_000));
    assert_eq!(study.irq.conditions.loads.to_string(), "cpu");
    assert_eq!(
        study.tables[0].operations,
        Op::Yield.bit() | Op::Getpid.bit()
    );
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
    for (text, line, expected) in [
        ("", 1, "add environments = "),
        ("environments = ['host'", 1, "array"),
        ("\nenvironments = [\n 'host',\n 'qemu-kmv']", 4, "did you mean 'qemu-kvm'?"),
        ("environments = ['host']\nenvironment = ['kvm']", 2, "unknown field `environment`"),
        ("environments = ['host']\nworkloads = ['exits/port-oot']", 2, "'exits/port-out'"),
        ("contenders = ['host:memory=1G']", 1, "setting 'memory' is not supported by host"),
        ("environments = ['kvm']\n[machine]\nmemory = ['1G', 'lots']", 3, "a size like 512M"),
        ("environments = ['kvm']\n[machine]\nspeed = 9", 3, "choose from cpus, memory"),
        ("environments = ['kvm']\n[irq]\nperiod = 'often'", 3, "period = 'often'"),
        ("environments = ['kvm']\n[irq]\nrate = '9'", 3, "choose from period, samples"),
        ("environments = ['kvm']\nboots = 0", 2, "from 1 to 10000"),
        ("environments = ['kvm']\nboots = 'many'", 2, "expected u32"),
        ("environments = ['kvm']\nbudget = 'soon'", 2, "a time like 90s"),
        ("environments = ['kvm']\npreset = 'ful'", 2, "did you mean 'full'?"),
        (
            "environments = ['kvm']\nworkloads = ['basic']\n[[tables]]\ntitle = 'x'\noperations = ['stream']",
            5,
            "not among the workloads",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.what.contains(expected), "{text}: {error}");
    }
}
