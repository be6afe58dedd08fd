//! Ports that do their worst beside two that exchange checked frames.

use crate::common::{wait_until, Switch, SPLIT};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use trapline_switch::driver::hostile::Hostile;
use trapline_switch::driver::traffic::{fill, Direction, Frames, Load, Outcome, Traffic};
use trapline_switch::driver::{Peer, Setup};

/// Frames in a second that the two offer in the benchmark.
const RATE: f64 = 50_000.0;

/// Steps of an attack in the test.
const STEPS: u64 = 200;

const EIGHT_PAIRS: Setup = Setup { pairs: 8, ..SPLIT };

/// Attacks a port while the function, which is called before each step, returns true.
type Attack = fn(&Path, &mut dyn FnMut() -> bool);

/// All attacks.
const ATTACKS: [(&str, Attack); 5] = [
    ("full events", fill_events),
    ("floods of frames to unknown cards", flood),
    ("messages that restart queues", restart),
    ("invalid queues", invalidate),
    ("truncated memory", truncate),
];

/// Sends frames to a card that does not exist by all queues.
fn send_by_all(peer: &mut Peer, length: usize) {
    for pair in 0..EIGHT_PAIRS.pairs {
        peer.send_by(pair, 64, |frame| {
            fill(&mut frame[..length], 77, 66, 7);
            length
        });
    }
}

fn fill_events(path: &Path, next: &mut dyn FnMut() -> bool) {
    let mut peer = Peer::connect(path, EIGHT_PAIRS).unwrap();
    peer.fill_events().unwrap();
    while next() {
        send_by_all(&mut peer, 60);
    }
}

fn flood(path: &Path, next: &mut dyn FnMut() -> bool) {
    let mut peer = Peer::connect(path, EIGHT_PAIRS).unwrap();
    while next() {
        send_by_all(&mut peer, 2000);
    }
}

fn restart(path: &Path, next: &mut dyn FnMut() -> bool) {
    let mut peer = Peer::connect(path, EIGHT_PAIRS).unwrap();
    while next() {
        peer.restart().unwrap();
    }
}

fn invalidate(path: &Path, next: &mut dyn FnMut() -> bool) {
    let mut hostile = Hostile::new(Peer::connect(path, SPLIT).unwrap()).unwrap();
    hostile.set_started(true).unwrap();
    while next() {
        hostile.attack().unwrap();
    }
}

fn truncate(path: &Path, next: &mut dyn FnMut() -> bool) {
    while next() {
        // The switch may end the connection as soon as memory is lost.
        if let Ok(peer) = Peer::connect(path, SPLIT) {
            peer.file.set_len(0).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts a switch with two ports of fixed addresses and a third one.
fn start() -> Switch {
    Switch::with_ports(&[
        ("a", ",mac=02:00:00:00:00:01"),
        ("b", ",mac=02:00:00:00:00:02"),
        ("c", ""),
    ])
}

fn traffic(switch: &Switch, load: Load) -> Traffic<Peer> {
    let peers = ["a", "b"].map(|port| Peer::connect(&switch.path(port), SPLIT).unwrap());
    let frames = Frames {
        size: 60,
        direction: Direction::One,
        load,
        window: SPLIT.size,
        pairs: 1,
        station: 1,
    };
    Traffic::new(peers, frames)
}

/// Runs traffic beside an attack on a port, for a time and until the attack has made some steps.
fn beside(
    traffic: &mut Traffic<Peer>,
    (attack, port): (Attack, PathBuf),
    time: Duration,
    steps: u64,
) -> Outcome {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            attack(&port, &mut || {
                done.fetch_add(1, Ordering::Relaxed);
                !is_over.load(Ordering::Relaxed)
            });
        });
        wait_until(|| done.load(Ordering::Relaxed) > 1);
        let mut all = Outcome::default();
        wait_until(|| {
            let outcome = traffic.run(time);
            all.flow.add(&outcome.flow);
            all.seconds += outcome.seconds;
            all.longest_pause = all.longest_pause.max(outcome.longest_pause);
            done.load(Ordering::Relaxed) >= steps
        });
        is_over.store(true, Ordering::Relaxed);
        all
    })
}

#[test]
fn port_whose_event_too_many_wait_for_is_stopped() {
    let switch = start();
    let mut peer = switch.peer("c", SPLIT);
    let _waiters = peer.wait_for_event(200).unwrap();
    let mut other = switch.peer("b", SPLIT);
    wait_until(|| {
        peer.receive(|_| ());
        other.send(1, |frame| {
            fill(&mut frame[..60], 0xff, 2, 7);
            60
        });
        switch.counters("c")["faults"] == 1
    });
    let fault = switch.counters("c")["last_fault"].to_string();
    assert!(fault.contains("its interrupt event takes"), "{fault}");
    assert_eq!(switch.counters("b")["faults"], 0);
    // Its next VMM has to wait at first.
    drop(peer);
    switch.peer("c", SPLIT);
}

#[test]
fn no_attack_costs_others_a_frame() {
    for (name, attack) in ATTACKS {
        let switch = start();
        let mut traffic = traffic(&switch, Load::Maximum);
        let time = Duration::from_millis(20);
        let Outcome { flow, .. } = beside(&mut traffic, (attack, switch.path("c")), time, STEPS);
        assert_eq!((flow.lost, flow.damaged), (0, 0), "{name}: {flow:?}");
        assert!(flow.received > 0, "{name}: {flow:?}");
    }
}

/// Prints the rate and the longest pause of two guests beside each attack, and beside the same attack on another switch, which takes
/// as much CPU time.
#[test]
#[ignore = "benchmark: make bench"]
fn rate_beside_attacks() {
    for (name, attack) in ATTACKS {
        let (switch, other) = (start(), start());
        let mut traffic = traffic(&switch, Load::Rate(RATE));
        let mut rates = [Vec::new(), Vec::new()];
        let mut pauses = [Vec::new(), Vec::new()];
        for round in 0..10 {
            // A B B A: what drifts is in both.
            let kind = usize::from(round % 4 == 1 || round % 4 == 2);
            let target = [&other, &switch][kind].path("c");
            let outcome = beside(
                &mut traffic,
                (attack, target),
                Duration::from_millis(500),
                0,
            );
            rates[kind].push(outcome.flow.received as f64 / outcome.seconds);
            pauses[kind].push(outcome.longest_pause);
        }
        let [elsewhere, here] = rates.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });
        let [without, with] = pauses.map(|mut all| {
            all.sort();
            all[all.len() / 2]
        });
        println!(
            "{name}: {here:.0} frames in a second, {:.1}% of {elsewhere:.0}; longest pause in half a second \
             {with:.1?}, {without:.1?} beside an attack on another switch (medians of 5)",
            100.0 * here / elsewhere
        );
    }
}
