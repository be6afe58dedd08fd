use super::*;
use crate::block;
use crate::names;
use crate::overrides::Overrides;
use crate::preset::Preset;
use crate::request::usual_operations;
use expect_test::expect;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::Op;

/// Returns every environment, and its control.
fn all() -> Vec<Config> {
    let usual = EnvironmentId::BUILT_IN.map(Config::new).into_iter();
    usual.flat_map(|one| [one.control(), one]).collect()
}

fn configs() -> impl Strategy<Value = Vec<Config>> {
    proptest::sample::subsequence(all(), 0..=all().len()).prop_shuffle()
}

prop_compose! {
    fn requests()(
        configs in configs(),
        ready in configs(),
        operations in proptest::sample::subsequence(Op::ALL.to_vec(), 0..=Op::ALL.len()),
        full in any::<bool>(),
        boots in proptest::option::of(1u32..12),
        exact_boots in 1u32..4,
        cpus in 2u32..4,
        seed in any::<u64>(),
    ) -> Request {
        Request {
            configs,
            ready,
            operations: OpSet::of(&operations),
            named: OpSet::EMPTY,
            preset: if full { Preset::Full } else { Preset::Quick },
            boots,
            exact_boots,
            overrides: format!("cpus={cpus}").parse().unwrap(),
            with_control: false,
            seed,
            irq: irq::Settings::default(),
            block: block::Settings::default(),
            ..Request::default()
        }
    }
}

fn everything(seed: u64) -> Request {
    Request {
        configs: EnvironmentId::BUILT_IN.map(Config::new).to_vec(),
        ready: EnvironmentId::BUILT_IN.map(Config::new).to_vec(),
        operations: OpSet::ALL,
        boots: Some(8),
        seed,
        ..Request::default()
    }
}

fn has_work(request: &Request, config: &Config) -> bool {
    !request.operations.is_subset(LeftOut::union(&left_out(
        request,
        config,
        request.operations,
    )))
}

fn boots_wanted(request: &Request) -> u32 {
    let only_irq = request.operations.is_subset(irq::operations());
    let usual = if only_irq { 1 } else { request.preset.boots() };
    request.boots.unwrap_or(usual)
}

proptest! {
    #[test]
    fn the_same_request_gives_the_same_plan(request in requests()) {
        prop_assert_eq!(expand(&request), expand(&request));
        let mut backwards = request.clone();
        backwards.configs.reverse();
        backwards.ready.reverse();
        prop_assert_eq!(expand(&backwards), expand(&request));
    }

    #[test]
    fn every_block_on_the_wall_clock_holds_every_config_once(request in requests()) {
        let plan = expand(&request);
        let mut blocks: BTreeMap<u32, Vec<Config>> = BTreeMap::new();
        for boot in plan.boots.iter().filter(|boot| boot.purpose == Purpose::Replicate) {
            prop_assert_eq!(boot.block, boot.replicate);
            blocks.entry(boot.block).or_default().push(boot.config.clone());
        }
        let mut wanted = request.configs.clone();
        wanted.sort();
        wanted.retain(|config| {
            let on_wall = config.environment.clock() == Clock::Wall;
            on_wall && request.ready.contains(config) && has_work(&request, config)
        });
        for block in blocks.values_mut() {
            block.sort();
            prop_assert_eq!(&*block, &wanted);
        }
        if !wanted.is_empty() && !request.operations.is_empty() {
            let blocks_wanted = boots_wanted(&request);
            prop_assert_eq!(blocks.len(), blocks_wanted as usize);
        }
    }

    #[test]
    fn every_config_and_operation_is_planned_exactly_as_asked(request in requests()) {
        let plan = expand(&request);
        let mut boots: BTreeMap<Config, Vec<&PlannedBoot>> = BTreeMap::new();
        for boot in &plan.boots {
            boots.entry(boot.config.clone()).or_default().push(boot);
            let once = boot.replicate > 0 && request.boots.is_none() && !boot.config.environment.clock().is_exact();
            let asked = if once { request.operations - irq::operations() } else { request.operations };
            let expected = asked - LeftOut::union(&boot.left_out);
            prop_assert_eq!(boot.starts().map(|start| start.kept).collect::<OpSet>(), expected);
            let kept: usize = boot.starts().map(|start| start.kept.len()).sum();
            prop_assert_eq!(kept, expected.len(), "each by one start");
            let is_exact = boot.config.environment.clock().is_exact();
            for start in boot.starts() {
                let run = start.job.run | start.boot_job.run;
                prop_assert!(start.kept.is_subset(run));
                prop_assert!(is_exact || start.kept == run);
                prop_assert!(!start.job.run.intersects(start.boot_job.run));
                let is_observed = |op| Feature::of_start(op).is_some_and(|it| boot.config.environment.has(it));
                let is_any_observed = Workload::Boot.operations().any(is_observed);
                prop_assert_eq!(start.boot_launches > 0, !start.boot_job.run.is_empty() && is_any_observed);
            }
        }
        for id in all() {
            let asked = request.configs.contains(&id);
            let ready = request.ready.contains(&id);
            prop_assert_eq!(plan.left_out.contains(&id), asked && !ready);
            let idle = plan.without_work.iter().any(|(idle, _)| idle == &id);
            prop_assert_eq!(idle, asked && ready && !request.operations.is_empty() && !has_work(&request, &id));
            let planned = asked && ready && !request.operations.is_empty() && !idle;
            let expected = match id.environment.clock() {
                _ if !planned => 0,
                Clock::Wall => boots_wanted(&request),
                _ => request.exact_boots,
            };
            let found = boots.remove(&id).unwrap_or_default();
            let replicates: Vec<_> = found.iter().map(|boot| boot.replicate).collect();
            prop_assert_eq!(replicates, (0..expected).collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A host leaves out of a slice only configurations that are not ready there.
    #[test]
    fn slices_are_the_whole_plan_whatever_is_ready(
        request in requests(), with_control in any::<bool>(), of in 1u32..9,
        hosts in proptest::collection::vec(configs(), 9),
    ) {
        let ready = all();
        let whole = Request { ready, with_control, ..request };
        let slice = |number: u32, ready: &[Config]| expand(&Request {
            slice: Some(format!("{number}/{of}").parse().unwrap()),
            ready: ready.to_vec(),
            ..whole.clone()
        });
        let slices: Vec<Plan> = (1..=of).map(|number| slice(number, &whole.ready)).collect();
        let mut together: Vec<PlannedBoot> = slices.iter().flat_map(|it| it.boots.clone()).collect();
        let key = |boot: &PlannedBoot| (boot.block, boot.config.clone(), boot.replicate);
        let mut serial = expand(&whole).boots;
        together.sort_by_key(key);
        serial.sort_by_key(key);
        prop_assert_eq!(together, serial);
        for (number, (plan, ready)) in (1..).zip(slices.iter().zip(&hosts)) {
            let here = slice(number, ready);
            let is_ready = |boot: &&PlannedBoot| {
                let mut config = boot.config.clone();
                config.overrides.is_control = false;
                ready.contains(&boot.config) || (with_control && ready.contains(&config))
            };
            let expected: Vec<_> = plan.boots.iter().filter(is_ready).cloned().collect();
            // Of a control that is asked for, nothing is known here.
            let asks = whole.configs.iter().any(|config| config.overrides.is_control);
            if !asks {
                prop_assert_eq!(here.boots, expected);
            }
        }
    }

    #[test]
    fn figure_and_proof_are_in_different_slices_and_blocks_in_one(request in requests(), of in 2u32..9) {
        let mut slice_of = BTreeMap::new();
        for number in 1..=of {
            let slice = Some(format!("{number}/{of}").parse().unwrap());
            let plan = expand(&Request { slice, ready: all(), ..request.clone() });
            for boot in plan.boots {
                let unit = match boot.purpose {
                    Purpose::Replicate => (None, boot.block),
                    Purpose::Exact => (Some(boot.config), 0),
                    Purpose::Proof => (Some(boot.config), boot.replicate),
                };
                let other = slice_of.insert(unit, number);
                prop_assert!(other.is_none_or(|other| other == number));
            }
        }
        for ((config, replicate), number) in &slice_of {
            let figure = config.as_ref().filter(|_| *replicate == 1);
            let figure = figure.map(|config| slice_of[&(Some(config.clone()), 0)]);
            prop_assert_ne!(figure, Some(*number));
        }
    }
}

#[test]
fn seeds_change_the_order_on_the_wall_clock_and_nothing_else() {
    let order = |seed, clock: Clock| -> Vec<EnvironmentId> {
        let boots = expand(&everything(seed)).boots;
        let ids = boots.iter().map(|boot| boot.config.environment);
        ids.filter(|id| id.clock() == clock).collect()
    };
    let orders: BTreeSet<_> = (0..8).map(|seed| order(seed, Clock::Wall)).collect();
    assert!(orders.len() > 1, "no seed changes the order");
    assert_eq!(order(1, Clock::Insn), order(2, Clock::Insn));
}

#[test]
fn what_is_measured_beside_an_operation_does_not_depend_on_the_request() {
    let usual = usual_operations();
    for id in EnvironmentId::all().filter(|id| measures_groups(*id)) {
        let start = |op: Op, operations: OpSet| {
            let boots = expand(&Request {
                configs: vec![id.into()],
                ready: vec![id.into()],
                operations,
                ..everything(1)
            })
            .boots;
            let starts = boots.first().map(PlannedBoot::starts);
            let found = starts
                .into_iter()
                .flatten()
                .find(|start| start.kept.contains(op));
            found.map(|start| {
                let is_start = op.workload() == Workload::Boot;
                let start_of_guest = is_start.then_some((start.boot_job, start.boot_launches));
                (start.job, start.guest, start_of_guest)
            })
        };
        for op in usual.iter() {
            let alone = start(op, op.into());
            assert_eq!(alone, start(op, usual), "{} in {id}", names::path(op));
            assert_eq!(alone, start(op, OpSet::ALL), "{} in {id}", names::path(op));
        }
    }
}

#[test]
fn the_control_takes_every_position_as_often_as_the_others() {
    let two = vec![EnvironmentId::HOST.into(), EnvironmentId::KVM.into()];
    let request = Request {
        configs: two.clone(),
        ready: two,
        boots: Some(12),
        with_control: true,
        ..everything(5)
    };
    let boots = expand(&request).boots;
    for position in 0..3 {
        let mut counts: BTreeMap<Config, usize> = BTreeMap::new();
        for block in boots.chunks(3) {
            *counts.entry(block[position].config.clone()).or_default() += 1;
        }
        let counts: Vec<usize> = counts.into_values().collect();
        assert_eq!(counts, [4, 4, 4], "position {position}");
    }
}

#[test]
fn of_two_configs_each_goes_first_in_five_of_ten_blocks() {
    let two = vec![EnvironmentId::KVM.into(), EnvironmentId::QEMU_KVM.into()];
    for seed in 0..20 {
        let request = Request {
            configs: two.clone(),
            ready: two.clone(),
            boots: Some(10),
            ..everything(seed)
        };
        let boots = expand(&request).boots;
        let firsts = boots.chunks(2).map(|block| block[0].config.environment);
        let kvm_first = firsts.filter(|id| *id == EnvironmentId::KVM).count();
        assert_eq!(kvm_first, 5, "seed {seed}");
    }
}

#[test]
fn only_the_wall_clock_uses_the_seed() {
    let of = |id: EnvironmentId| Request {
        configs: vec![id.into()],
        ..everything(1)
    };
    assert!(of(EnvironmentId::KVM).uses_seed());
    assert!(!of(EnvironmentId::SIM_KVM).uses_seed());
}

#[test]
fn an_exact_environment_is_booted_twice_in_a_row_in_one_block() {
    let boots = expand(&everything(3)).boots;
    let exact: Vec<_> = boots
        .iter()
        .filter(|boot| boot.config.environment.clock().is_exact())
        .collect();
    let first_block = boots.len() as u32 - exact.len() as u32;
    let wall = EnvironmentId::all().filter(|id| id.clock() == Clock::Wall);
    assert_eq!(first_block, 8 * wall.count() as u32, "they come last");
    for pair in exact.chunks(2) {
        assert_eq!(pair[0].config.environment, pair[1].config.environment);
        assert_eq!(pair[0].block, pair[1].block);
        let purposes = (pair[0].purpose, pair[1].purpose);
        assert_eq!(purposes, (Purpose::Exact, Purpose::Proof));
        assert_eq!(pair[0].job, pair[1].job);
    }
}

#[test]
fn a_long_run_has_its_first_config_twice_in_each_block() {
    let controls = |request: &Request| -> Vec<(u32, EnvironmentId)> {
        let boots = expand(request).boots.into_iter();
        let controls = boots.filter(|boot| boot.config.overrides.is_control);
        controls
            .map(|boot| (boot.block, boot.config.environment))
            .collect()
    };
    let asked = Request {
        with_control: true,
        ..everything(1)
    };
    let expected: Vec<_> = (0..8).map(|block| (block, EnvironmentId::HOST)).collect();
    assert_eq!(controls(&asked), expected);
    let short = Request {
        boots: Some(LONG - 1),
        ..asked.clone()
    };
    assert_eq!(controls(&short), []);
    let own = Config::new(EnvironmentId::KVM).control();
    let pair = Request {
        configs: vec![EnvironmentId::HOST.into(), own.clone()],
        ready: vec![EnvironmentId::HOST.into(), own],
        ..asked
    };
    assert!(controls(&pair)
        .iter()
        .all(|(_, id)| *id == EnvironmentId::KVM));
    assert_eq!(controls(&everything(1)), []);
}

#[test]
fn a_guest_is_configured_by_overrides() {
    let config = |text: &str| text.parse::<Config>().unwrap();
    let of = |text: &str| {
        let plan = expand(&Request {
            configs: vec![config(text)],
            ready: vec![config(text)],
            ..everything(1)
        });
        (plan.boots.first().cloned(), plan.without_work)
    };
    let boot = of("kvm:memory=1G,pages=2m,pin=exclusive,idle=in-guest")
        .0
        .unwrap();
    assert_eq!(boot.guest.memory_mib, 1024);
    assert_eq!(boot.guest.pages, crate::MemoryPages::Huge);
    assert_eq!(boot.guest.scheduling.pin, crate::Pin::Exclusive);
    assert_eq!(boot.guest.scheduling.halt, crate::Halt::InGuest);
    assert_eq!(of("kvm/linux:cpus=2").0.unwrap().guest.cpus, 2);
    let (none, idle) = of("kvm:memory=64M");
    assert_eq!(none, None);
    expect!["the operations need 512 MiB: set at least memory=512M, or leave it out"]
        .assert_eq(&idle[0].1);
}

#[test]
fn the_large_file_has_the_size_of_the_setting_and_fits_the_disk() {
    let sizes = |text: &str, operations| {
        let config = text.parse::<Config>().unwrap();
        let plan = expand(&Request {
            configs: vec![config.clone()],
            ready: vec![config],
            operations,
            ..everything(1)
        });
        let guest = plan.boots[0].guest;
        (plan.boots[0].job.file_mib, guest.file_mib, guest.disk_mib)
    };
    let writes = Op::WriteLarge.into();
    assert_eq!(sizes("kvm:file-mib=1024", writes), (1024, 1024, 1072));
    assert_eq!(sizes("kvm", writes), (64, 64, 82));
    assert_eq!(sizes("sim/kvm", writes), (8, 8, 24));
    assert_eq!(sizes("kvm:file-mib=1024", Op::Read4k1.into()).2, 256);
    assert_eq!(sizes("kvm:file-mib=1024", Op::Getpid.into()), (1024, 0, 0));
    let error = "sim/kvm:file-mib=16".parse::<Config>().unwrap_err();
    assert!(
        error.to_string().contains("not supported by sim/kvm"),
        "{error}"
    );
}

#[test]
fn interrupts_are_measured_in_the_first_boot_unless_a_number_of_boots_is_given() {
    let asked = Request {
        boots: None,
        operations: OpSet::ALL,
        ..everything(1)
    };
    let of = |request: &Request, id| -> Vec<bool> {
        let boots = expand(request).boots.into_iter();
        let of_id = boots.filter(|boot| boot.config.environment == id);
        of_id
            .map(|boot| boot.starts().any(|start| start.job.selects(Op::OwnTimer)))
            .collect()
    };
    assert_eq!(
        of(&asked, EnvironmentId::KVM),
        [true, false, false, false, false]
    );
    assert_eq!(of(&asked, EnvironmentId::SIM_KVM), [true, true]);
    let thrice = Request {
        boots: Some(3),
        ..asked.clone()
    };
    assert_eq!(of(&thrice, EnvironmentId::KVM), [true; 3]);
    let alone = Request {
        operations: irq::operations(),
        ..asked
    };
    assert_eq!(of(&alone, EnvironmentId::KVM), [true]);
    assert!(!usual_operations().intersects(irq::operations()));
}

#[test]
fn network_without_taps_is_measured_on_simulated_machines_only() {
    let operations = Op::TcpPing | Op::PortOut;
    let configs = [
        EnvironmentId::HOST,
        EnvironmentId::KVM,
        EnvironmentId::SIM_KVM,
    ]
    .map(Config::new);
    let plan = expand(&Request {
        configs: configs.to_vec(),
        ready: configs.to_vec(),
        operations,
        boots: Some(1),
        without_taps: Some("no taps".to_owned()),
        ..Request::default()
    });
    for boot in plan.boots {
        let is_kvm = boot.config.environment == EnvironmentId::KVM;
        assert_eq!(boot.guest.network, !is_kvm, "{}", boot.config.environment);
        assert_eq!(boot.job.selects(Op::TcpPing), !is_kvm);
        assert_eq!(boot.left_out.len(), usize::from(is_kvm));
    }
}

#[test]
fn cards_and_taps_of_guests_follow_path_and_peer() {
    let planned = |words: &[(&str, &str)], operation: Op| {
        let mut overrides = Overrides::default();
        for (name, value) in words {
            overrides.set(name, value).unwrap();
        }
        let plan = expand(&Request {
            configs: vec![EnvironmentId::KVM.into()],
            ready: vec![EnvironmentId::KVM.into()],
            operations: operation | Op::PortOut,
            overrides,
            boots: Some(1),
            without_taps: Some("no taps".to_owned()),
            ..Request::default()
        });
        let boot = plan.boots.into_iter().next().unwrap();
        let guest = boot.guest;
        (boot.job.selects(operation), guest.network, guest.packets)
    };
    let (guest, bridge) = (("peer", "guest"), ("path", "bridge"));
    assert_eq!(planned(&[], Op::TcpPing), (false, false, false));
    assert_eq!(planned(&[guest], Op::TcpPing), (true, false, true));
    assert_eq!(
        planned(&[guest, bridge], Op::TcpPing),
        (false, false, false)
    );
    assert_eq!(planned(&[], Op::Packet64), (true, false, true));
    assert_eq!(planned(&[bridge], Op::Packet64), (false, false, false));
}
