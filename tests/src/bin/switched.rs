//! Runs on the simulated machine: starts a switch and two VMMs with the given arguments, in which `ROLE` stands for the test of
//! the guest's agent (guest/agent/src/init/network.rs): one guest calls the other.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const SWITCH: &str = "/switch";
const VMM: &str = "/vmm";

/// Port of the switch, test, and options of each guest.
const GUESTS: [(&str, &str, &[&str]); 2] = [
    (
        "/a",
        "trapline-answer=10.9.0.2",
        &["--cpus", "2", "--net", "vhost-user=/a,queues=2"],
    ),
    ("/b", "trapline-call=10.9.0.2", &["--net", "vhost-user=/b"]),
];

fn main() -> io::Result<()> {
    for program in [SWITCH, VMM] {
        fs::set_permissions(program, Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new(SWITCH);
    command.args(["--sleep-after", "0"]);
    for (port, ..) in GUESTS {
        command.args(["--listen", port]);
    }
    let mut switch = command.spawn()?;
    while !GUESTS.iter().all(|(port, ..)| Path::new(port).exists()) {
        thread::sleep(Duration::from_millis(10));
    }
    let guests: io::Result<Vec<Child>> = GUESTS.iter().map(start).collect();
    for mut guest in guests? {
        let status = guest.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("a VMM: {status}")));
        }
    }
    switch.kill()
}

fn start((_, role, options): &(&str, &str, &[&str])) -> io::Result<Child> {
    let arguments = std::env::args().skip(1);
    let arguments = arguments.map(|word| word.replace("ROLE", role));
    let mut command = Command::new(VMM);
    command.args(arguments).args(*options);
    command.stdin(Stdio::null()).spawn()
}
