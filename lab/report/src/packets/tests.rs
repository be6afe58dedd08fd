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
    let [(title, text)] = findings(&report).try_into().unwrap();
    let expected = "switch forwards 3.00 times as many frames as veth.";
    assert!(title.ends_with(expected), "{title}");
    let expected = "9.00 against 3.00 Mpps; 3.00× to";
    assert!(text.starts_with(expected), "{text}");
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
    assert!(text(&boots(slow)).contains("the ports had it for 25% of the time"));
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
    let boots = [
        largest("switch", 0, 1_000_000, 50.0),
        round("switch", 0, Purpose::Search, searched),
    ];
    let report = report(&boots);
    let cell = &report.packets.tables[0].cells[0];
    assert_eq!(cell.bounds(0.0).unwrap().lower, Some(4e6));
    assert_eq!(cell.bounds(0.005).unwrap().lower, Some(5e6));
    assert_eq!(cell.rate().unwrap().value, 1e7);
    assert_eq!(report.cells().len(), 1, "a search has no figure of its own");
}
