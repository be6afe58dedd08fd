//! The socket of a machine, from outside: what is answered, and who is shut out. The kernel
//! is a few bytes that never end, so that this runs wherever there is a KVM.

use crate::common::{await_end, no_kvm, signal, ImageFile, SPIN, SPIN_POLLS};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use trapline_monitor::boot::test_image::TestImage;

/// A machine that listens, and its socket.
struct Machine {
    child: Child,
    socket: PathBuf,
    _kernel: ImageFile,
}

fn command(kernel: &ImageFile, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-vmm"));
    command.args(["--memory", "8M", "--cpus", "2", "--kernel"]);
    command.arg(&kernel.0).arg("--api").arg(socket);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Machine {
    fn start() -> Self {
        let kernel = ImageFile::new(&TestImage::pvh(&SPIN).bytes());
        let socket = kernel.0.with_extension("socket");
        Self {
            child: command(&kernel, &socket).spawn().unwrap(),
            socket,
            _kernel: kernel,
        }
    }

    fn connect(&mut self) -> Peer {
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "it ended before it listened");
        };
        stream.set_read_timeout(Some(SPIN_POLLS)).unwrap();
        let mut peer = Peer(BufReader::new(stream));
        assert_eq!(peer.hear(), r#"{"trapline-vmm":"api","version":1}"#);
        peer
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
        let _gone = std::fs::remove_file(&self.socket);
    }
}

struct Peer(BufReader<UnixStream>);

impl Peer {
    /// The next line; empty if there will be none.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        let _reset = self.0.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Sent as one piece: who is shut out may find the listening closed at the second.
    fn ask(&mut self, command: &str) -> String {
        let sent = self
            .0
            .get_mut()
            .write_all(format!("{command}\n").as_bytes());
        sent.expect("the machine listens");
        self.hear()
    }
}

const OK: &str = r#"{"ok":true}"#;

#[test]
fn vm_is_paused_queried_and_stopped() {
    if no_kvm() {
        return;
    }
    let mut machine = Machine::start();
    let mut peer = machine.connect();
    assert!(peer.ask("statistics").contains(r#""state":"running""#));
    assert_eq!(peer.ask("pause"), OK);
    let output = peer.ask("statistics");
    let output: serde_json::Value = serde_json::from_str(&output).expect("it is JSON");
    assert_eq!(output["state"], "paused");
    // Both vCPUs are paused, including the one that was not started.
    let vcpus = output["vcpus"].as_array().unwrap();
    assert_eq!(vcpus.len(), 2);
    assert!(vcpus.iter().all(|vcpu| vcpu["other"] == 1), "{output}");
    let names = |what: &str| -> Vec<String> {
        let all = output[what].as_array().unwrap();
        all.iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("devices"), ["console", "entropy"]);
    assert!(names("threads").iter().any(|name| name == "vcpu1"));
    assert_eq!(peer.ask("resume"), OK);
    assert_eq!(peer.ask("button"), OK);
    assert!(peer.ask("dance").contains(r#""ok":false"#));
    assert_eq!(peer.ask("stop"), "");
    assert_eq!(await_end(&mut machine.child).code(), Some(39));
}

#[test]
fn misbehaving_clients_are_disconnected() {
    if no_kvm() {
        return;
    }
    let mut machine = Machine::start();
    let mut other = machine.connect();
    let mut peer = machine.connect();
    assert!(peer.ask(&"x".repeat(100)).contains("too long"));
    assert_eq!(peer.hear(), "");
    assert!(other.ask("statistics").contains("running"));
    // A second machine does not take the socket from the first.
    let second = command(&machine._kernel, &machine.socket).output().unwrap();
    let output = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{output}");
    assert!(output.contains("in use by another process"), "{output}");
    assert!(other.ask("statistics").contains("running"));
}

#[test]
fn idle_clients_keep_nobody_out() {
    if no_kvm() {
        return;
    }
    let mut machine = Machine::start();
    let mut clients: Vec<_> = (0..4).map(|_| machine.connect()).collect();
    // The first is no longer the one that was idle longest.
    assert!(clients[0].ask("statistics").contains("running"));
    let mut fifth = machine.connect();
    assert!(fifth.ask("statistics").contains("running"));
    assert!(clients[0].ask("statistics").contains("running"));
    assert!(clients[1].hear().contains("more clients than the limit"));
    assert_eq!(clients[1].hear(), "");
    assert_eq!(fifth.ask("stop"), "");
    assert_eq!(await_end(&mut machine.child).code(), Some(39));
}

#[test]
fn paused_vm_can_be_stopped() {
    if no_kvm() {
        return;
    }
    let mut machine = Machine::start();
    assert_eq!(machine.connect().ask("pause"), OK);
    signal(&machine.child, libc::SIGTERM);
    let status = await_end(&mut machine.child);
    assert_eq!(
        (status.code(), status.signal()),
        (Some(128 + libc::SIGTERM), None)
    );
    // What it left behind is replaced.
    machine.child = command(&machine._kernel, &machine.socket).spawn().unwrap();
    assert!(machine.connect().ask("statistics").contains("running"));
}
