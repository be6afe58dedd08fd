//! The program, with guests that behave, misbehave and are killed.

mod addresses;
mod common;
mod fairness;
mod hostile;
mod memory;
mod messages;
mod mirror;
mod taps;

use common::{measure, next, send, start_error, wait_until, Switch, PACKED, SPLIT};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_skip::skip;
use trapline_switch::cpu::time_of_process;
use trapline_switch::driver::traffic::{fill, Outcome, Traffic};
use trapline_switch::driver::{Peer, Setup};

#[test]
fn frames_arrive_whole_and_in_order_in_every_format_and_size() {
    let switch = Switch::start(&["a", "b"], &[]);
    for setup in [SPLIT, PACKED] {
        for size in [60, 61, 100, 199, 1000, 1514] {
            let paths = [switch.path("a"), switch.path("b")];
            let paths = [paths[0].as_path(), paths[1].as_path()];
            let mut traffic = Traffic::connect(paths, setup, size, true, 1).unwrap();
            let flow = traffic.run(Duration::from_millis(50)).flow;
            assert_eq!(
                (flow.lost, flow.damaged),
                (0, 0),
                "{setup:?} {size} {flow:?}"
            );
            assert!(flow.received > 100, "{setup:?} {size} {flow:?}");
        }
    }
}

#[test]
fn frames_of_several_queues_arrive_whole_and_in_the_order_of_each() {
    let switch = Switch::start(&["a", "b"], &[]);
    for setup in [SPLIT, PACKED] {
        for pairs in [2, 3, 8] {
            let paths = [switch.path("a"), switch.path("b")];
            let paths = [paths[0].as_path(), paths[1].as_path()];
            let setup = Setup { pairs, ..setup };
            let mut traffic = Traffic::connect(paths, setup, 60, true, 1).unwrap();
            // The switch gets one queue after the other.
            traffic.run(Duration::from_millis(50));
            let flow = traffic.run(Duration::from_millis(50)).flow;
            assert_eq!((flow.lost, flow.damaged), (0, 0), "{setup:?} {flow:?}");
            assert!(flow.received > 100, "{setup:?} {flow:?}");
        }
    }
}

#[test]
fn frames_of_a_queue_arrive_in_that_of_the_same_number() {
    let switch = Switch::start(&["a", "b"], &[]);
    for setup in [SPLIT, PACKED] {
        let setup = Setup { pairs: 3, ..setup };
        let mut a = switch.peer("a", setup);
        let mut b = switch.peer("b", setup);
        let mut arrived = 0;
        // The first ones are lost until the switch has all queues.
        wait_until(|| {
            a.send_by(2, 1, |frame| {
                fill(&mut frame[..60], 2, 1, 7);
                60
            });
            arrived += b.receive(|frame| assert_eq!(frame.len(), 60));
            arrived > 10
        });
        let start = if setup.is_packed { 0x8000 } else { 0 };
        let positions = |peer: &Peer| {
            let positions = peer.stop().unwrap().into_iter();
            let positions = positions.map(|at| (at & 0xffff) - start);
            positions.collect::<Vec<_>>()
        };
        let (sent, received) = (positions(&a), positions(&b));
        assert!(sent[5] > 10 && sent[..5] == [0; 5], "{sent:?}");
        assert!(received[4] >= 10, "{received:?}");
    }
}

#[test]
fn unknown_destinations_are_flooded_and_known_ones_are_not() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", PACKED);
    let mut c = switch.peer("c", SPLIT);
    send(&mut a, 2, 1, 60);
    assert_eq!(next(&mut b)[6..12], [2, 0, 0, 0, 0, 1]);
    assert_eq!(next(&mut c).len(), 60);
    send(&mut b, 1, 2, 77);
    assert_eq!(next(&mut a).len(), 77);
    send(&mut a, 2, 1, 90);
    assert_eq!(next(&mut b).len(), 90);
    // To itself, and from the address of a group.
    send(&mut a, 1, 1, 60);
    let sent = a.send(1, |frame| {
        fill(&mut frame[..60], 2, 1, 7);
        frame[6] = 3;
        60
    });
    assert_eq!(sent, 1);
    wait_until(|| switch.dropped("a", "source") == 1);
    assert_eq!(switch.dropped("a", "same-port"), 1);
    assert_eq!(c.receive(|_| ()), 0, "only the first frame was flooded");
    let of = switch.counters("a");
    assert_eq!(
        (&of["sent"]["frames"], &of["received"]["frames"]),
        (&4.into(), &1.into())
    );
    assert_eq!(of["received"]["bytes"], 77);
}

#[test]
fn receiver_without_buffers_loses_frames_that_are_counted() {
    let switch = Switch::start(&["a", "b"], &[]);
    let mut a = switch.peer("a", SPLIT);
    let small = Setup { size: 8, ..SPLIT };
    let mut b = switch.peer("b", small);
    for _ in 0..5 {
        let mut number = 0;
        a.send(4, |frame| {
            number += 1;
            fill(&mut frame[..60], 9, 1, number);
            60
        });
    }
    wait_until(|| switch.dropped("b", "no-buffer") == 12);
    let mut count = 0;
    wait_until(|| {
        count += b.receive(|_| ());
        count == 8
    });
    assert_eq!(switch.counters("b")["received"]["frames"], 8);
}

#[test]
fn guests_that_are_killed_do_not_stop_others() {
    let switch = Switch::start(&["a", "b", "c", "d"], &[]);
    let paths = [switch.path("a"), switch.path("b")];
    let paths = [paths[0].as_path(), paths[1].as_path()];
    let mut traffic = Traffic::connect(paths, SPLIT, 60, false, 1).unwrap();
    let mut pauses = Vec::new();
    for round in 0..100_u64 {
        let mut victim = Command::new(env!("CARGO_BIN_EXE_trapline-traffic"))
            .args([switch.path("c"), switch.path("d")])
            .args(["--seconds", "9", "--direction", "both", "--station", "3"])
            .args((round % 2 == 1).then_some("--packed"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Moments from its start to its full rate.
        let Outcome { flow, .. } = traffic.run(Duration::from_millis(1 + round * 37 % 40));
        let lost = (flow.lost, flow.damaged);
        assert_eq!(lost, (0, 0), "{round}: {flow:?} {}", switch.state());
        assert!(flow.received > 0, "{round}: {flow:?}");
        victim.kill().unwrap();
        let outcome = traffic.run(Duration::from_millis(2));
        victim.wait().unwrap();
        let flow = &outcome.flow;
        assert_eq!((flow.lost, flow.damaged), (0, 0), "{round}: {flow:?}");
        assert!(flow.received > 0, "{round}: {flow:?}");
        pauses.push(outcome.longest_pause);
    }
    // The time is the host's, too: it is printed, not checked.
    pauses.sort();
    eprintln!("longest pauses: {:?} of 100", &pauses[97..]);
}

#[test]
fn switch_that_was_killed_is_replaced() {
    let mut switch = Switch::start(&["a", "b"], &[]);
    for _ in 0..3 {
        let paths = [switch.path("a"), switch.path("b")];
        let paths = [paths[0].as_path(), paths[1].as_path()];
        let mut traffic = Traffic::connect(paths, PACKED, 60, true, 1).unwrap();
        assert!(traffic.run(Duration::from_millis(5)).flow.received > 0);
        switch.process.kill().unwrap();
        switch.process.wait().unwrap();
        switch.process = Switch::spawn(switch.directory.path(), &["a", "b"], &[]);
    }
}

#[test]
fn invalid_queue_stops_its_port_alone() {
    let switch = Switch::start(&["a", "b", "c"], &[]);
    let paths = [switch.path("a"), switch.path("b")];
    let paths = [paths[0].as_path(), paths[1].as_path()];
    let mut traffic = Traffic::connect(paths, SPLIT, 60, false, 1).unwrap();
    for round in 1..=3 {
        let mut hostile = switch.peer("c", SPLIT);
        // A frame whose address is not in memory.
        hostile.corrupt();
        wait_until(|| switch.counters("c")["faults"] == round);
        let flow = traffic.run(Duration::from_millis(5)).flow;
        assert!(flow.received > 0 && flow.lost == 0, "{flow:?}");
    }
    let fault = switch.counters("c")["last_fault"].clone();
    assert_eq!(fault, "a descriptor is not in the guest's memory");
}

#[test]
fn positions_of_an_invalid_queue_are_those_at_which_it_stopped() {
    let switch = Switch::start(&["a", "b"], &[]);
    let mut b = switch.peer("b", SPLIT);
    let mut hostile = switch.peer("a", SPLIT);
    send(&mut b, 9, 2, 60);
    next(&mut hostile);
    for _ in 0..3 {
        send(&mut hostile, 9, 1, 60);
        next(&mut b);
    }
    hostile.corrupt();
    wait_until(|| switch.counters("a")["faults"] == 1);
    // One frame was received, three were sent before the invalid one.
    assert_eq!(hostile.stop().unwrap(), [1, 3]);
}

#[test]
fn half_a_message_and_garbage_do_not_stop_others() {
    let switch = Switch::start(&["a", "b", "c", "d"], &[]);
    let mut half = UnixStream::connect(switch.path("c")).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    let mut garbage = UnixStream::connect(switch.path("d")).unwrap();
    garbage.write_all(&[0xff; 4096]).unwrap();
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", SPLIT);
    send(&mut a, 9, 1, 60);
    assert_eq!(next(&mut b).len(), 60);
    drop(garbage);
    drop(switch.peer("d", SPLIT));
}

#[test]
fn idle_switch_with_eight_guests_uses_less_than_a_percent_of_a_cpu() {
    let ports = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let switch = Switch::start(&ports, &[]);
    let mut peers = ports.map(|port| switch.peer(port, SPLIT));
    let [a, b, ..] = &mut peers;
    send(a, 9, 1, 60);
    next(b);
    let time = || time_of_process(switch.process.id()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (before, start) = (time(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let used = Duration::from_nanos(time() - before);
    let elapsed = start.elapsed();
    eprintln!("an idle switch: {used:?} of CPU time in {elapsed:?}");
    assert!(used < elapsed / 100, "{used:?} in {elapsed:?}");
    send(a, 9, 1, 60);
    next(b);
}

#[test]
fn socket_that_cannot_be_opened_is_an_error_with_a_remedy() {
    let error = start_error(&["--listen", "/nonexistent/a"]);
    assert!(
        error.contains("/nonexistent/a") && error.contains("\nhelp: "),
        "{error}"
    );
    assert!(start_error(&[]).contains("help: --listen SOCKET"));
    let switch = Switch::start(&["a"], &[]);
    let taken = switch.path("a");
    assert!(start_error(&["--listen", taken.to_str().unwrap()]).contains("a"));
}

#[test]
fn second_vmm_of_a_port_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
    command.stderr(Stdio::piped());
    let process = Switch::spawn_with_errors(command, directory.path(), &["a", "b"], &[]);
    let mut switch = Switch { process, directory };
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", SPLIT);
    let second = Peer::connect(&switch.path("a"), SPLIT);
    assert!(second.is_err(), "both use the port");
    send(&mut a, 9, 1, 60);
    assert_eq!(next(&mut b).len(), 60);
    let errors = switch.process.stderr.take().unwrap();
    let line = BufReader::new(errors).lines().next().unwrap().unwrap();
    assert_eq!(
        line,
        "trapline-switch: a: a second VMM was refused: the first one is still connected"
    );
    // After the first one has ended there is room again.
    drop(a);
    drop(switch.peer("a", SPLIT));
}

/// Returns the value of a line of a process's status.
fn status(process: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().trim().to_owned()
}

#[test]
fn switch_keeps_no_privilege_and_no_file_of_its_parent() {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 7</dev/zero"]);
    command.arg(env!("CARGO_BIN_EXE_trapline-switch"));
    let directory = tempfile::tempdir().unwrap();
    let process = Switch::spawn_by(command, directory.path(), &["a"], &[]);
    let switch = Switch { process, directory };
    let id = switch.process.id();
    // It answers before it enters the sandbox.
    wait_until(|| status(id, "Seccomp") == "2");
    for sets in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(id, sets), "0000000000000000", "{sets}");
    }
    assert_eq!(status(id, "NoNewPrivs"), "1");
    let files = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    let names = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let foreign: Vec<_> = names
        .filter(|name| name == Path::new("/dev/zero"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn every_thread_is_confined() {
    let switch = Switch::start(&["a", "b"], &["--mirror", "a=/dev/null"]);
    // It answers before it enters the sandbox. Threads: two for each of two ports, mirror, counters, engine.
    wait_until(|| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", switch.process.id())).unwrap();
        let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
        let all: Vec<String> = tasks.map(|task| status(task.unwrap()).unwrap()).collect();
        all.len() == 7 && all.iter().all(|status| status.contains("Seccomp:\t2"))
    });
}

#[test]
fn switch_connects_to_sockets_of_vmms() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmm");
    let connect = ["--connect", path.to_str().unwrap()];
    let switch = Switch::start(&["b"], &connect);
    for _ in 0..2 {
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let before = switch.started("vmm");
        let mut vmm = Peer::over(socket, SPLIT).unwrap();
        wait_until(|| switch.started("vmm") > before);
        let mut b = switch.peer("b", SPLIT);
        send(&mut vmm, 9, 1, 60);
        assert_eq!(next(&mut b).len(), 60);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn offered_load_is_due_whatever_arrives() {
    let switch = Switch::start(&["a", "b"], &[]);
    let (a, b) = (switch.path("a"), switch.path("b"));
    let ports = [a.to_str().unwrap(), b.to_str().unwrap()];
    for direction in ["one", "both"] {
        let words = [
            "--rate",
            "20000",
            "--seconds",
            "2", // The end of the load may be late on a busy host, and what was due then is not offered.
            "--direction",
            direction,
        ];
        let result = measure(&[&ports[..], &words].concat()).unwrap();
        let count = |name: &str| result["flow"][name].as_u64().unwrap();
        let senders = if direction == "both" { 2.0 } else { 1.0 };
        let due = 20_000.0 * senders * result["seconds"].as_f64().unwrap();
        let offered = (count("sent") + count("refused")) as f64;
        assert!((offered / due - 1.0).abs() < 0.05, "{result} of {due}");
        assert_eq!(count("sent"), count("received") + count("lost"), "{result}");
        assert_eq!(count("damaged"), 0, "{result}");
        assert!(
            result["latency_ns"]["samples"].as_u64().unwrap() > 0,
            "{result}"
        );
    }
    let half = measure(&[&ports[..], &["--direction", "half", "--seconds", "0.3"]].concat());
    assert!(half.unwrap()["rate"].as_f64().unwrap() > 0.0);
}

#[test]
fn frames_arrive_through_the_kernel() {
    if !taps::are_permitted() {
        return;
    }
    for kernel in ["veth", "bridge"] {
        let result = match measure(&["--kernel", kernel, "--seconds", "0.1"]) {
            Err(message)
                if kernel == "bridge" && !std::path::Path::new("/sys/module/bridge").exists() =>
            {
                let why = format!("module bridge is not loaded: {message}");
                skip(&format!("frames through {kernel}"), &why);
                continue;
            }
            result => result.unwrap(),
        };
        let received = result["flow"]["received"].as_u64();
        assert!(received > Some(100), "{kernel}: {result}");
        assert_eq!(result["flow"]["damaged"], 0, "{kernel}: {result}");
    }
}
