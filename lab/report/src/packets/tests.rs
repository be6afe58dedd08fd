use super::*;
use crate::document::{render, Format};
use trapline_model::packets::{Direction, PlannedTrial, Ring};

fn request(paths: &[&str]) -> PacketRequest {
    PacketRequest {
        paths: paths.iter().map(|it| (*it).to_owned()).collect(),
        forwarders: Vec::new(),
        sizes: vec![60],
        rings: vec![Ring::Split],
        queues: vec![1],
        directions: vec![Direction::One],
        rate: None,
        search: true,
        milliseconds: 100,
        rounds: 5,
        cpus: [1, 0],
        seed: 0,
    }
}

fn trial(path: &str, round: u32, received: u64, round_trip_ns: f64) -> Trial {
    Trial {
        planned: PlannedTrial {
            round,
            path: path.to_owned(),
            frames: Frames {
                size: 60,
                ring: Ring::Split,
                queues: 1,
                direction: Direction::One,
            },
        },
        purpose: Purpose::Maximum,
        offered: None,
        outcome: TrialOutcome::Done(TrialFigures {
            duration_ns: 100_000_000,
            sent: received,
            received,
            ports_cpu_ns: 100_000_000,
            forwarder_cpu_ns: Some(90_000_000),
            kicks: received / 10,
            round_trip_ns,
            ..TrialFigures::default()
        }),
    }
}

fn text(rates: &Rates) -> String {
    let style = crate::Style {
        width: 100,
        colour: false,
        unicode: true,
    };
    render(&rates.document("1"), Format::Text(style)).unwrap()
}

#[test]
fn paths_are_compared_in_the_rounds_that_both_have() {
    let request = request(&["switch", "other"]);
    let mut trials = Vec::new();
    for round in 0..5 {
        // Every round has its own speed, which cancels in the ratio.
        let speed = u64::from(round + 1) * 100_000;
        trials.push(trial("other", round, speed, 50.0));
        trials.push(trial("switch", round, speed * 3, 50.0));
    }
    let rates = Rates::new(&request, &trials);
    let [table] = rates.tables.as_slice() else {
        panic!("{rates:?}");
    };
    let ratio = table.ratio(&table.cells[1]).unwrap();
    assert_eq!(
        (table.cells[0].path.as_str(), ratio.estimate),
        ("switch", 3.0)
    );
    assert_eq!(table.ratio(&table.cells[0]), None);
    let text = text(&rates);
    let words =
        "switch forwards 3.00 times as many frames as other: 9.00 against 3.00 Mpps; 3.00× to";
    assert!(text.replace("\n  ", "").contains(words), "{text}");
}

#[test]
fn rates_of_different_distances_are_not_compared() {
    let request = request(&["switch", "other"]);
    let trials = [
        trial("switch", 0, 1_000_000, 50.0),
        trial("other", 0, 500_000, 400.0),
    ];
    let rates = Rates::new(&request, &trials);
    assert_eq!(rates.tables.len(), 2, "{rates:?}");
    assert!(table::findings(&rates).is_empty());
    let distances: Vec<_> = rates.tables.iter().map(|table| table.distance).collect();
    assert_eq!(distances, [Distance::Near, Distance::Mid]);
}

#[test]
fn numbers_of_queues_are_in_tables_of_their_own() {
    let one = trial("switch", 0, 1_000_000, 50.0);
    let mut four = trial("switch", 0, 900_000, 50.0);
    four.planned.frames.queues = 4;
    let rates = Rates::new(&request(&["switch"]), &[four, one]);
    let titles: Vec<_> = rates
        .tables
        .iter()
        .map(|it| it.frames.to_string())
        .collect();
    assert_eq!(
        titles,
        [
            "60 bytes, split queues, one way",
            "60 bytes, 4 pairs of split queues, one way"
        ]
    );
    let text = rates.document("1");
    let json = render(&text, Format::Json).unwrap();
    assert!(json.contains("\"queues\": 4"), "{json}");
}

#[test]
fn ports_without_their_cpu_are_reported() {
    let mut slow = trial("switch", 0, 10, 50.0);
    let one = Rates::new(&request(&["switch"]), &[slow.clone()]);
    assert!(!text(&one).contains("other programs ran"), "{}", text(&one));
    if let TrialOutcome::Done(figures) = &mut slow.outcome {
        figures.ports_cpu_ns /= 4;
    }
    let one = Rates::new(&request(&["switch"]), &[slow]);
    assert!(text(&one).contains("the ports had it for 25% of the time"));
}

#[test]
fn damaged_frames_are_a_failure_and_no_figure() {
    let mut damaged = trial("switch", 0, 10, 50.0);
    if let TrialOutcome::Done(figures) = &mut damaged.outcome {
        figures.damaged = 1;
    }
    let rates = Rates::new(&request(&["switch"]), &[damaged]);
    assert!(!rates.is_good() && !rates.has_figures());
    assert!(text(&rates).contains("FAILED: 1 damaged frames"));
}

#[test]
fn searched_rates_are_bounds_of_their_loads() {
    let mut trials = vec![trial("switch", 0, 1_000_000, 50.0)];
    for (load, received) in [(4e6, 400_000), (5e6, 498_000), (6e6, 500_000)] {
        for round in 0..5 {
            let mut one = trial("switch", round, received, 50.0);
            one.purpose = Purpose::Search;
            one.offered = Some(load);
            if let TrialOutcome::Done(figures) = &mut one.outcome {
                figures.refused = (load / 10.0) as u64 - received;
            }
            trials.push(one);
        }
    }
    let rates = Rates::new(&request(&["switch"]), &trials);
    let cell = &rates.tables[0].cells[0];
    assert_eq!(cell.bounds(0.0).unwrap().lower, Some(4e6));
    assert_eq!(cell.bounds(0.005).unwrap().lower, Some(5e6));
    assert_eq!(cell.rate().unwrap().value, 1e7);
}
