//! Taps as ports, in a network namespace of the switch.

use crate::common::{measure, send, wait_until, Switch, SPLIT};
use std::process::{Command, Stdio};
use std::time::Duration;
use trapline_skip::skip;

/// Returns a command that executes the switch in user and network namespaces of its own, with taps.
fn with_taps(names: &[&str]) -> Command {
    let make = |name: &&str| format!("ip tuntap add {name} mode tap && ip link set {name} up && ");
    let script = names.iter().map(make).collect::<String>() + "exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
    command
}

/// Returns whether the host permits taps; otherwise records them as skipped.
pub fn are_permitted() -> bool {
    let probe = with_taps(&["tap0"])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    let are_permitted = probe.is_ok_and(|status| status.success());
    if !are_permitted {
        skip("taps as ports", "no network with a tap can be made");
    }
    are_permitted
}

/// Starts a switch with ports a, tap0 and tap1. `None` where the host does not permit that.
fn start() -> Option<Switch> {
    if !are_permitted() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = with_taps(&["tap0", "tap1"]);
    command.arg(env!("CARGO_BIN_EXE_trapline-switch"));
    let options = ["--tap", "tap0", "--tap", "tap1"];
    let process = Switch::spawn_by(command, directory.path(), &["a"], &options);
    Some(Switch { process, directory })
}

#[test]
fn frames_pass_between_guests_and_taps_in_both_directions() {
    let Some(switch) = start() else { return };
    let (guest, process) = (switch.path("a"), switch.process.id().to_string());
    let guest = guest.to_str().unwrap();
    for (ports, size) in [
        ([guest, "interface:tap0"], "60"),
        (["interface:tap1", guest], "1514"),
        (["interface:tap0", "interface:tap1"], "333"),
    ] {
        let words = ["--size", size, "--seconds", "0.2", "--direction", "both"];
        let words = [&ports[..], &words, &["--namespace", &process]].concat();
        let flow = &measure(&words).unwrap()["flow"];
        assert_eq!(flow["damaged"], 0, "{ports:?}: {flow}");
        assert!(flow["received"].as_u64() > Some(100), "{ports:?}: {flow}");
    }
    let received = switch.counters("tap0")["received"]["frames"].as_u64();
    assert!(received > Some(100), "{received:?}");
}

#[test]
fn deleted_tap_is_down_and_does_not_stop_others() {
    let Some(switch) = start() else { return };
    let mut a = switch.peer("a", SPLIT);
    let process = switch.process.id().to_string();
    let inside = |words: &str| {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &process,
            "--user",
            "--net",
            "--preserve-credentials",
        ]);
        let status = command.arg("ip").args(words.split(' ')).status();
        assert!(status.unwrap().success(), "{words}");
    };
    inside("link set tap0 down");
    send(&mut a, 9, 1, 60);
    // That, and what the kernel sends by the other tap.
    wait_until(|| switch.dropped("tap0", "down") >= 1);
    inside("link del tap0");
    // A deleted tap is no port any more, once it was read: no frame is dropped there.
    wait_until(|| {
        let before = switch.dropped("tap0", "down");
        send(&mut a, 9, 1, 60);
        wait_until(|| a.unsent() == 0);
        std::thread::sleep(Duration::from_millis(20));
        switch.dropped("tap0", "down") == before
    });
    drop(a);
    let guest = switch.path("a");
    let ports = [guest.to_str().unwrap(), "interface:tap1"];
    let words = ["--namespace", &process, "--seconds", "0.1"];
    let result = measure(&[&ports[..], &words].concat()).unwrap();
    assert!(result["flow"]["received"].as_u64() > Some(10), "{result}");
}

#[test]
fn missing_tap_is_an_error_with_a_remedy() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
    let output = command.args(["--tap", "no-such-tap"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cannot open the tap no-such-tap: "),
        "{error}"
    );
    assert!(
        error.contains("\nhelp: 'ip tuntap add no-such-tap"),
        "{error}"
    );
}
