//! A running switch, and the frames of tests.

use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trapline_switch::driver::traffic::fill;
use trapline_switch::driver::{Peer, Setup};

pub const SPLIT: Setup = Setup::SPLIT;
pub const PACKED: Setup = Setup {
    is_packed: true,
    ..SPLIT
};

/// A running switch.
pub struct Switch {
    pub process: Child,
    pub directory: TempDir,
}

impl Switch {
    pub fn start(ports: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = Self::spawn(directory.path(), ports, options);
        Self { process, directory }
    }

    /// Starts a switch whose ports have options, such as `,isolated`.
    pub fn with_ports(ports: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
        for (port, options) in ports {
            let path = directory.path().join(port);
            command.arg(format!("--listen={}{options}", path.display()));
        }
        let process = Self::spawn_by(command, directory.path(), &[], &[]);
        Self { process, directory }
    }

    pub fn spawn(directory: &Path, ports: &[&str], options: &[&str]) -> Child {
        let command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
        Self::spawn_by(command, directory, ports, options)
    }

    /// Starts a switch by a command that executes it.
    pub fn spawn_by(
        mut command: Command,
        directory: &Path,
        ports: &[&str],
        options: &[&str],
    ) -> Child {
        command.stderr(Stdio::null());
        Self::spawn_with_errors(command, directory, ports, options)
    }

    /// Starts a switch by a command that has its standard error.
    pub fn spawn_with_errors(
        mut command: Command,
        directory: &Path,
        ports: &[&str],
        options: &[&str],
    ) -> Child {
        for port in ports {
            command.arg("--listen").arg(directory.join(port));
        }
        command.arg("--counters").arg(directory.join("counters"));
        let process = command.args(options).spawn().unwrap();
        let is_up = || UnixStream::connect(directory.join("counters")).is_ok();
        wait_until(is_up);
        process
    }

    pub fn path(&self, port: &str) -> PathBuf {
        self.directory.path().join(port)
    }

    pub fn peer(&self, port: &str, setup: Setup) -> Peer {
        let before = self.started(port);
        let peer = Peer::connect(&self.path(port), setup).unwrap();
        wait_until(|| self.started(port) > before);
        peer
    }

    pub fn counters(&self, port: &str) -> Value {
        let state = self.state();
        let ports = state["ports"].as_array().unwrap();
        ports.iter().find(|it| it["port"] == port).unwrap().clone()
    }

    /// Returns all counters.
    pub fn state(&self) -> Value {
        let mut text = String::new();
        let mut socket = UnixStream::connect(self.path("counters")).unwrap();
        socket.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Returns how often a port was started with both queues.
    pub fn started(&self, port: &str) -> u64 {
        self.counters(port)["connections"].as_u64().unwrap()
    }

    pub fn dropped(&self, port: &str, reason: &str) -> u64 {
        self.counters(port)["dropped"][reason].as_u64().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "nothing happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the bytes of the next frame that arrives.
pub fn next(peer: &mut Peer) -> Vec<u8> {
    let mut frame = Vec::new();
    wait_until(|| peer.receive(|bytes| frame = bytes.to_vec()) > 0);
    frame
}

pub fn send(peer: &mut Peer, to: u8, from: u8, size: usize) {
    let sent = peer.send(1, |frame| {
        fill(&mut frame[..size], to, from, 7);
        size
    });
    assert_eq!(sent, 1);
}

/// Runs a switch that cannot start. Returns its message.
pub fn start_error(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-switch"));
    let output = command.args(options).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Runs `trapline-traffic` and returns what it prints.
pub fn measure(words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-traffic"));
    let output = command.args(words).output().unwrap();
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
