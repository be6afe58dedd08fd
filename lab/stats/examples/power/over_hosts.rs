//! Several hosts: boots taken together, and hosts as replicates.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_abi::Op;
use trapline_model::testing::{batch, boot, measured};
use trapline_model::{Clock, EnvironmentId, Observation};
use trapline_stats::hosts::values;
use trapline_stats::order::{median_interval, median_interval_level};
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{boot_values, BootValues, Design, Settings, TableTest, TestInput};

const HOSTS: [usize; 6] = [2, 3, 6, 10, 30, 100];

/// Standard deviations of the ratio between hosts.
const RATIO: [f64; 3] = [0.0, 0.005, 0.02];

/// That of the level between hosts, of what the boots of a block share, and of a boot.
const LEVEL: f64 = 0.1;
const BLOCK: f64 = 0.02;
const BOOT: f64 = 0.01;

const OP: Op = Op::PortOut;

pub fn print(trials: Trials) {
    let trials = trials.of(2000);
    println!(
        "Two configurations in blocks on several hosts (20 blocks each, five with a hundred hosts;"
    );
    println!(
        "sd of a boot 1%, of a block 2%, of a host's level 10%), whose ratio is 1 for hosts like"
    );
    println!(
        "these, and differs between hosts by this deviation: how often they are changed at 1% if"
    );
    println!(
        "all blocks are taken together, and with hosts as blocks; the level of the interval over"
    );
    println!("hosts, and how often it has 1. {trials} trials.");
    println!("hosts  between hosts   together   hosts   level   covers");
    let test = TableTest::new(&Settings::default());
    for hosts in HOSTS {
        for (deviation, stream) in RATIO.into_iter().zip(0..) {
            let mut rng = rng(900 + hosts as u64, stream);
            let all: Vec<Trial> = (0..trials)
                .map(|_| Trial::of(hosts, deviation, &test, &mut rng))
                .collect();
            let share = |is: fn(&Trial) -> bool| {
                percent(all.iter().filter(|one| is(one)).count(), trials, 1)
            };
            println!(
                "{hosts:5} {:>14} {:>10} {:>7} {:>6.1}% {:>8}",
                format!("{:.1}%", 100.0 * deviation),
                share(|one| one.together),
                share(|one| one.hosts),
                100.0 * median_interval_level(hosts).unwrap_or_default(),
                share(|one| one.covers)
            );
        }
    }
    println!();
}

/// Findings of one set of hosts.
struct Trial {
    together: bool,
    hosts: bool,
    covers: bool,
}

impl Trial {
    fn of(hosts: usize, deviation: f64, test: &TableTest, rng: &mut ChaCha8Rng) -> Self {
        let blocks = if hosts < 100 { 20 } else { 5 };
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for host in 0..hosts {
            let (level, ratio) = (LEVEL * normal(rng), deviation * normal(rng));
            for block in 0..blocks {
                let of_block = level + BLOCK * normal(rng);
                a.push(on(
                    host,
                    EnvironmentId::KVM,
                    block,
                    of_block + BOOT * normal(rng),
                ));
                let of_b = of_block + ratio + BOOT * normal(rng);
                b.push(on(host, EnvironmentId::QEMU_KVM, block, of_b));
            }
        }
        let is_found = |design, [a, b]: [Vec<BootValues>; 2]| {
            let clock = Clock::Wall;
            let input = TestInput {
                clock,
                design,
                a,
                b,
            };
            let found = test.test(&[input]).remove(0).expect("it is tested");
            found.p.is_some_and(|p| p <= 0.01)
        };
        let together = [&a, &b].map(|side| {
            let numbered = (0..).zip(boot_values(side, OP));
            numbered
                .map(|(block, boot)| BootValues { block, ..boot })
                .collect()
        });
        let of_hosts = values(
            &a.iter().collect::<Vec<_>>(),
            &b.iter().collect::<Vec<_>>(),
            OP.into(),
            true,
        );
        let ratios = of_hosts[0].iter().zip(&of_hosts[1]);
        let ratios: Vec<f64> = ratios
            .filter_map(|(a, b)| Some(b.median()? / a.median()?))
            .collect();
        let interval = median_interval(&ratios);
        Self {
            together: is_found(Design::Blocked, together),
            hosts: is_found(Design::Hosts { in_blocks: true }, of_hosts),
            covers: interval.is_some_and(|it| it.low <= 1.0 && 1.0 <= it.high),
        }
    }
}

/// Returns a boot of a host with one batch.
fn on(host: usize, environment: EnvironmentId, replicate: u32, logarithm: f64) -> Observation {
    let ticks = (1e6 * logarithm.exp()).round() as u64;
    let outcome = measured(vec![batch(ticks, 1)]);
    Observation {
        host: format!("{host:03}"),
        ..boot(environment, replicate, [(OP, outcome)])
    }
}
