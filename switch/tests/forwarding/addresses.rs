//! Ports with fixed addresses, and isolated ones.

use crate::common::{next, send, wait_until, Switch, SPLIT};
use std::process::{Child, Command};

/// Starts a switch whose ports have options.
fn start(ports: &[(&str, &str)]) -> Switch {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
    for (port, options) in ports {
        let path = directory.path().join(port);
        command.arg(format!("--listen={}{options}", path.display()));
    }
    let process: Child = Switch::spawn_by(command, directory.path(), &[], &[]);
    Switch { process, directory }
}

#[test]
fn fixed_address_can_neither_be_taken_nor_left() {
    let switch = start(&[("a", ",mac=02:00:00:00:00:01"), ("b", ""), ("thief", "")]);
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", SPLIT);
    let mut thief = switch.peer("thief", SPLIT);
    // The thief sends from the address of a; b still reaches a, and only a.
    for _ in 0..3 {
        send(&mut thief, 9, 1, 60);
    }
    wait_until(|| switch.dropped("thief", "spoofed") == 3);
    send(&mut b, 1, 2, 77);
    assert_eq!(next(&mut a).len(), 77);
    // Another address of a is not let through.
    send(&mut a, 2, 5, 60);
    wait_until(|| switch.dropped("a", "spoofed") == 1);
    send(&mut a, 2, 1, 90);
    assert_eq!(next(&mut b).len(), 90);
    assert_eq!(thief.receive(|_| ()), 0);
    // Frames to unknown cards do not reach it, those to all do.
    send(&mut b, 8, 2, 60);
    assert_eq!(next(&mut thief).len(), 60);
    assert_eq!(a.receive(|_| ()), 0);
    b.send(1, |frame| {
        trapline_switch::driver::traffic::fill(&mut frame[..61], 2, 2, 7);
        frame[..6].fill(0xff);
        61
    });
    assert_eq!(next(&mut a).len(), 61);
}

#[test]
fn isolated_ports_reach_only_others() {
    let switch = start(&[("a", ",isolated"), ("b", ",isolated"), ("c", "")]);
    let mut a = switch.peer("a", SPLIT);
    let mut b = switch.peer("b", SPLIT);
    let mut c = switch.peer("c", SPLIT);
    // To all: c alone gets it.
    send(&mut a, 9, 1, 60);
    assert_eq!(next(&mut c).len(), 60);
    send(&mut b, 9, 2, 61);
    assert_eq!(next(&mut c).len(), 61);
    send(&mut a, 2, 1, 62);
    wait_until(|| switch.dropped("a", "isolated") == 1);
    send(&mut c, 1, 3, 63);
    assert_eq!(next(&mut a).len(), 63);
    assert_eq!(b.receive(|_| ()), 0);
}

#[test]
fn invalid_and_equal_addresses_are_errors_with_a_remedy() {
    let of = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
        let output = command.args(words).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let group = of(&["--listen", "a,mac=01:00:00:00:00:00"]);
    assert!(
        group.contains("01:00:00:00:00:00 is not the address of a card"),
        "{group}"
    );
    let directory = tempfile::tempdir().unwrap();
    let port = |name| {
        let path = directory.path().join(name);
        format!("--listen={},mac=02:00:00:00:00:01", path.display())
    };
    let equal = of(&[&port("a"), &port("b")]);
    assert!(equal.contains("the same fixed address\nhelp: "), "{equal}");
}
