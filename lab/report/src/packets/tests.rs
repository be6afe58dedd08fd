use super::*;
use crate::document::{render, Format};
use crate::rates::Rates;
use crate::{Document, Report};
use trapline_model::packets::{Direction, Distance, PacketOperation, Purpose, Queues, Ring, Trial};
use trapline_model::testing::boot;
use trapline_model::{Clock, EnvironmentId, Observation, Operation, OperationResult, Outcome};

fn path(name: &str) -> EnvironmentId {
    EnvironmentId::known_forwarder(name).unwrap()
}

fn trial(received: u64, round_trip_ns: f64) -> Trial {
    Trial {
        duration_ns: 100_000_000,
        sent: received,
        received,
        ports_cpu_ns: 100_000_000,
        forwarder_cpu_ns: Some(90_000_000),
        kicks: received / 10,
        round_trip_ns,
        ..Trial::default()
    }
}

/// Returns a boot with trials of frames of 60 bytes in one direction.
fn round(name: &str, round: u32, purpose: Purpose, trials: Vec<Trial>) -> Observation {
    let operation = PacketOperation {
        direction: Direction::One,
        size: 60,
        purpose,
        distance: trials.first().map(Trial::distance),
    };
    let outcome = Outcome::of_trials(operation, trials);
    let mut boot = boot(path(name), round, []);
    let result = OperationResult::new(Operation::Packets(operation), outcome);
    boot.operations.push(result);
    boot
}

fn largest(name: &str, number: u32, received: u64, round_trip_ns: f64) -> Observation {
    let trial = trial(received, round_trip_ns);
    round(name, number, Purpose::Maximum, vec![trial])
}

fn report(boots: &[Observation]) -> Report {
    Report {
        packets: Rates::new(boots, [1, 0]),
        summary: trapline_stats::summarise(boots),
        ..Report::default()
    }
}

fn text(boots: &[Observation]) -> String {
    let report = report(boots);
    let style = crate::Style {
        width: 100,
        colour: false,
        unicode: true,
    };
    let document = Document {
        sections: sections(&report, &report.cells(), Clock::Wall),
        ..Document::default()
    };
    render(&document, Format::Text(style)).unwrap()
}

#[test]
fn paths_are_compared_in_the_rounds_that_both_have() {
    let mut boots = Vec::new();
    for round in 0..5 {
        // Every round has its own speed, which cancels in the ratio.
        let speed = u64::from(round + 1) * 100_000;
        boots.push(largest("veth", round, speed, 50.0));
        boots.push(largest("switch", round, speed * 3, 50.0));
    }
    let report = report(&boots);
    let [table] = report.packets.tables.as_slice() else {
        panic!("{:?}", report.packets);
    };
    let ratio = table.ratio(&table.cells[1]).unwrap();
    assert_eq!((table.cells[0].path(), ratio.estimate), ("switch", 3.0));
    assert_eq!(table.ratio(&table.cells[0]), None);
    assert!(findings(&report).is_empty(), "five rounds prove nothing");
}

/// Returns rounds of two paths, of which the second forwards so many percent of the first.
fn rounds(count: u32, percent: u64) -> Vec<Observation> {
    let speed = |round: u32| 300_000 + u64::from(round * 37 % 11) * 1_000;
    let both = (0..count).flat_map(|round| {
        [
            largest("switch", round, speed(round), 50.0),
            largest("veth", round, speed(round * 5 + 3) * percent / 100, 50.0),
        ]
    });
    both.collect()
}

#[test]
fn sentences_are_those_of_comparisons() {
    let of = |boots: &[Observation]| {
        let found = findings(&report(boots)).into_iter();
        found
            .map(|(title, text)| format!("{title} {text}"))
            .collect::<Vec<_>>()
    };
    let [changed] = of(&rounds(12, 50)).try_into().unwrap();
    assert!(
        changed.contains("switch forwards at least 1.9")
            && changed.contains(" times as many frames as veth. 3."),
        "{changed}"
    );
    let [same] = of(&rounds(60, 100)).try_into().unwrap();
    assert!(
        same.contains("switch and veth forward as many frames, within 2%."),
        "{same}"
    );
    let mut disturbed = rounds(12, 50);
    for boot in disturbed.iter_mut().skip(1).step_by(2) {
        if let Outcome::Measured { trials, .. } = &mut boot.operations[0].outcome {
            trials[0].ports_cpu_ns /= 2;
        }
    }
    assert_eq!(of(&disturbed), [""; 0], "no ratio of disturbed trials");
    assert!(text(&disturbed).contains("in 12 of 24 trials"));
}

#[test]
fn a_rate_is_the_figure_of_its_operation() {
    let boots = (0..5).map(|round| largest("switch", round, 300_000, 50.0));
    let cells = report(&boots.collect::<Vec<_>>()).cells();
    let [cell] = cells.as_slice() else {
        panic!("{cells:?}");
    };
    assert_eq!(
        cell.op.path(),
        "packets/rate:size=60,direction=one,distance=near"
    );
    let figure = cell.value.figure().unwrap();
    assert_eq!((cell.unit, figure.estimate), ("Mpps", 3.0));
}

#[test]
fn rates_of_different_distances_are_not_compared() {
    let boots = [
        largest("switch", 0, 1_000_000, 50.0),
        largest("veth", 0, 500_000, 400.0),
    ];
    let report = report(&boots);
    let tables = &report.packets.tables;
    assert_eq!(tables.len(), 2, "{tables:?}");
    assert!(findings(&report).is_empty());
    let distances: Vec<_> = tables.iter().map(|table| table.frames.distance).collect();
    assert_eq!(distances, [Distance::Near, Distance::Mid]);
}

#[test]
fn rounds_at_another_distance_are_not_in_the_figure() {
    let boots = [
        largest("switch", 0, 1_000_000, 50.0),
        largest("switch", 1, 1_000_000, 50.0),
        largest("switch", 2, 10, 400.0),
    ];
    let cells = report(&boots).cells();
    let figures = cells.iter().map(|cell| {
        let figure = cell.value.figure().unwrap();
        (cell.op.path(), figure.boots, figure.min)
    });
    let [near, mid] = figures.collect::<Vec<_>>().try_into().unwrap();
    let rate = |distance| format!("packets/rate:size=60,direction=one,distance={distance}");
    assert_eq!(near, (rate("near"), 2, 10.0));
    assert_eq!((mid.0, mid.1), (rate("mid"), 1));
}

#[test]
fn numbers_of_queues_are_in_tables_of_their_own() {
    let one = largest("switch", 0, 1_000_000, 50.0);
    let mut four = largest("switch", 0, 900_000, 50.0);
    let queues = Queues {
        ring: Ring::Split,
        pairs: 4,
    };
    four.config = queues.config(path("switch"));
    let report = report(&[four, one]);
    let sections = sections(&report, &report.cells(), Clock::Wall);
    let titles: Vec<_> = sections.iter().map(|it| it.title.text.as_str()).collect();
    assert_eq!(
        titles,
        [
            "60 bytes, split queues, one way, CPUs near",
            "60 bytes, 4 pairs of split queues, one way, CPUs near"
        ]
    );
    let json = serde_json::to_string(&json::cells(&report)).unwrap();
    assert!(json.contains("\"queues\":4"), "{json}");
}

#[test]
fn ports_without_their_cpu_are_reported() {
    let mut slow = trial(10, 50.0);
    let boots = |trial| [round("switch", 0, Purpose::Maximum, vec![trial])];
    let fast = text(&boots(slow));
    assert!(!fast.contains("other programs ran"), "{fast}");
    slow.ports_cpu_ns /= 4;
    let slow = text(&boots(slow));
    let words: Vec<&str> = slow.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("the ports had it for 25% of the time"),
        "{slow}"
    );
}

#[test]
fn few_lost_frames_are_not_none() {
    let trial = |lost: u64| Trial {
        offered: Some(1e6),
        refused: lost,
        ..trial(1_000_000 - lost, 50.0)
    };
    let given = |number, lost| {
        round(
            "switch",
            number,
            Purpose::Given(1_000_000),
            vec![trial(lost)],
        )
    };
    let boots = [0, 0, 0, 0, 2_000].map(|lost| given(lost as u32, lost));
    let report = report(&boots);
    let cell = &report.packets.tables[0].cells[0];
    assert_eq!(cell.lost(), Some((2_000, 5_000_000)));
    assert!(text(&boots).contains("0.04%"), "{}", text(&boots));
}

#[test]
fn damaged_frames_are_a_failure_and_no_figure() {
    let mut damaged = trial(10, 50.0);
    damaged.damaged = 1;
    let report = report(&[round("switch", 0, Purpose::Maximum, vec![damaged])]);
    assert!(report.packets.tables.is_empty());
    let value = format!("{:?}", report.cells()[0].value);
    assert!(value.contains("1 damaged frames"), "{value}");
}

#[test]
fn searched_rates_are_bounds_of_their_loads() {
    let mut searched = Vec::new();
    for (load, received) in [(4e6, 400_000), (5e6, 498_000), (6e6, 500_000)] {
        let refused = (load / 10.0) as u64 - received;
        let one = Trial {
            offered: Some(load),
            refused,
            ..trial(received, 50.0)
        };
        searched.extend([one; 5]);
    }
    let further = [400_000, 400_000, 399_000].map(|received| Trial {
        offered: Some(4e6),
        refused: 400_000 - received,
        ..trial(received, 50.0)
    });
    let other = Trial {
        offered: Some(5e6),
        ..trial(1, 50.0)
    };
    let further = further.into_iter().chain([other]).collect();
    let boots = [
        largest("switch", 0, 1_000_000, 50.0),
        round("switch", 0, Purpose::Search, searched),
        round("switch", 0, Purpose::Confirm, further),
    ];
    let report = report(&boots);
    let cell = &report.packets.tables[0].cells[0];
    assert_eq!(cell.searched(0.0).unwrap().lower, Some(4e6));
    assert_eq!(cell.searched(0.005).unwrap().lower, Some(5e6));
    let kept = cell.searched(0.0).unwrap();
    assert_eq!((kept.kept, kept.further, kept.searches), (2, 3, 1));
    let shown = text(&boots);
    assert!(shown.contains("4.00  2 of 3 (9%..99%)"), "{shown}");
    assert_eq!(cell.rate().unwrap().value, 1e7);
    assert_eq!(report.cells().len(), 1, "a search has no figure of its own");
}
