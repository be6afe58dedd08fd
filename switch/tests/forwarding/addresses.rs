//! Ports with fixed addresses, and isolated ones.

use crate::common::{next, send, start_error, wait_until, Switch, SPLIT};

#[test]
fn fixed_address_can_neither_be_taken_nor_left() {
    let switch = Switch::with_ports(&[("a", ",mac=02:00:00:00:00:01"), ("b", ""), ("thief", "")]);
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
    let switch = Switch::with_ports(&[("a", ",isolated"), ("b", ",isolated"), ("c", "")]);
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
    let group = start_error(&["--listen", "a,mac=01:00:00:00:00:00"]);
    assert!(
        group.contains("01:00:00:00:00:00 is not the address of a card"),
        "{group}"
    );
    let directory = tempfile::tempdir().unwrap();
    let port = |name| {
        let path = directory.path().join(name);
        format!("--listen={},mac=02:00:00:00:00:01", path.display())
    };
    let equal = start_error(&[&port("a"), &port("b")]);
    assert!(equal.contains("the same fixed address\nhelp: "), "{equal}");
}
