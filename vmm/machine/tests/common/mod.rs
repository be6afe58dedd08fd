//! Fixtures for tests of the program.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trapline_interface::Hypervisor;
pub use trapline_skip::skip;

/// Longer than any of this takes, even on a busy machine.
pub const SPIN_POLLS: Duration = Duration::from_secs(60);

pub fn no_kvm() -> bool {
    match trapline_kvm::Kvm::probe() {
        Ok(_) => false,
        Err(missing) => {
            skip("trapline-vmm with real guests", &missing.to_string());
            true
        }
    }
}

/// An image in a file that goes away again.
pub struct ImageFile(pub PathBuf);

impl ImageFile {
    pub fn new(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("trapline-guest-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn vmm(image: &ImageFile) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-vmm"));
    command.args(["--memory", "8M", "--image"]).arg(&image.0);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

pub fn signal(child: &Child, number: i32) {
    // SAFETY: takes numbers only; the child has not been reaped.
    unsafe { libc::kill(child.id() as i32, number) };
}

pub fn await_end(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < SPIN_POLLS, "the VMM does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

pub const SPIN: [u8; 2] = [0xeb, 0xfe]; // jmp to itself
