//! Consoles that are not read, that are read slowly, whose disk is full or whose reader is gone: the control socket answers,
//! and the VM ends.

use crate::common::{await_end, no_kvm, signal, ImageFile, SPIN_POLLS};
use serde_json::Value;
use std::arch::global_asm;
use std::fs::File;
use std::io::{pipe, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};
use trapline_abi::platform::{POWER_CONTROL, POWER_OFF, VIRTIO_MMIO};
use trapline_monitor::boot::test_image::TestImage;

/// Time for which a VM whose guest has ended waits for a reader.
const READER_PATIENCE: Duration = Duration::from_secs(10);

/// Length of a burst, of which most is in the queue when the guest ends.
const BURST: usize = 20_000;

// Kernels in 32-bit mode that write for ever: to COM1 on the only vCPU, to COM1 on all vCPUs but the first, and to hvc0.
// Another one writes a burst and powers off.
global_asm!(
    r#"
    .pushsection .rodata
    .code32
flood_serial:
    mov $0x3f8, %dx
1:  mov $64, %ecx
    mov $'x', %al
2:  out %al, %dx
    loop 2b
    mov $10, %al
    out %al, %dx
    jmp 1b
flood_serial_end:

flood_serial_others:
    mov $0x80000, %esp
    call 1f
1:  pop %esi
    add $(3f - 1b), %esi
    mov $0x10000, %edi
    mov $(4f - 3f), %ecx
    rep movsb
    mov $0xfee00000, %ebx       # local APIC: enable, INIT, SIPI to all others
    movl $0x1ff, 0xf0(%ebx)
    movl $0x000c4500, 0x300(%ebx)
    mov $20000, %ecx
2:  loop 2b
    movl $0x000c4610, 0x300(%ebx)
2:  hlt
    jmp 2b
    .code16
3:  cli
    mov $0x3f8, %dx
1:  mov $64, %cx
    mov $'y', %al
2:  out %al, %dx
    loop 2b
    mov $10, %al
    out %al, %dx
    jmp 1b
4:
flood_serial_others_end:

    .code32
burst:
    mov $0x3f8, %dx
    mov ${burst_length}, %ecx
    mov $'b', %al
1:  out %al, %dx
    loop 1b
    mov ${power_control}, %dx
    mov ${power_off}, %al
    out %al, %dx
burst_end:

flood_virtio:
    mov ${virtio}, %ebx         # virtio-mmio: acknowledge, driver, VERSION_1, features accepted
    movl $0, 0x70(%ebx)
    movl $1, 0x70(%ebx)
    movl $3, 0x70(%ebx)
    movl $1, 0x24(%ebx)
    movl $1, 0x20(%ebx)
    movl $11, 0x70(%ebx)
    movl $1, 0x30(%ebx)         # transmit queue of 8 descriptors
    movl $8, 0x38(%ebx)
    movl $0x200000, 0x80(%ebx)
    movl $0, 0x84(%ebx)
    movl $0x201000, 0x90(%ebx)
    movl $0, 0x94(%ebx)
    movl $0x202000, 0xa0(%ebx)
    movl $0, 0xa4(%ebx)
    movl $1, 0x44(%ebx)
    movl $15, 0x70(%ebx)
    movl $0x210000, 0x200000    # descriptor 0: 4096 bytes
    movl $4096, 0x200008
    mov $0x210000, %edi
    mov $4095, %ecx
    mov $'z', %al
    rep stosb
    movb $10, (%edi)
    movw $1, 0x201000           # no interrupt
1:  incw 0x201002
    movl $1, 0x50(%ebx)
    mov 0x201002, %ax
2:  pause
    cmp 0x202002, %ax
    jne 2b
    jmp 1b
flood_virtio_end:
    .code64
    .popsection
    "#,
    virtio = const VIRTIO_MMIO,
    burst_length = const BURST,
    power_control = const POWER_CONTROL,
    power_off = const POWER_OFF,
    options(att_syntax)
);

extern "C" {
    static flood_serial: u8;
    static flood_serial_end: u8;
    static flood_serial_others: u8;
    static flood_serial_others_end: u8;
    static burst: u8;
    static burst_end: u8;
    static flood_virtio: u8;
    static flood_virtio_end: u8;
}

/// Returns the kernel that floods the console of this mode.
fn flood_kernel(mode: &str, cpus: u32) -> ImageFile {
    match (mode, cpus) {
        ("hvc0", _) => kernel(&raw const flood_virtio, &raw const flood_virtio_end),
        (_, 1) => kernel(&raw const flood_serial, &raw const flood_serial_end),
        _ => kernel(
            &raw const flood_serial_others,
            &raw const flood_serial_others_end,
        ),
    }
}

/// Creates a kernel of the code from `start` to `end`, which are symbols of one section.
fn kernel(start: *const u8, end: *const u8) -> ImageFile {
    // SAFETY: both are of one section, the second behind the first.
    let code = unsafe { slice::from_raw_parts(start, end.offset_from(start) as usize) };
    ImageFile::new(&TestImage::pvh(code).bytes())
}

fn vmm(kernel: &ImageFile, mode: &str, cpus: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline-vmm"));
    command.args(["--memory", "8M", "--cpus", &cpus.to_string(), "--kernel"]);
    command.arg(&kernel.0).stdin(Stdio::null());
    if mode != "hvc0" {
        command.args(["--serial", mode]);
    }
    command
}

/// What becomes of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Unread,
    Slow,
    FullDisk,
}

const OUTPUTS: [Output; 3] = [Output::Unread, Output::Slow, Output::FullDisk];

/// A VM whose guest floods its console.
struct Flood {
    child: Child,
    socket: std::path::PathBuf,
    _kernel: ImageFile,
    _reader: Option<PipeReader>,
}

/// Creates a pipe of one page.
fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    // SAFETY: takes numbers only.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    (reader, writer)
}

fn read_slowly(mut reader: PipeReader) {
    let mut bytes = [0; 512];
    while reader.read(&mut bytes).is_ok_and(|count| count > 0) {
        thread::sleep(Duration::from_millis(20));
    }
}

impl Flood {
    /// Starts a VM, whose standard error goes where its output goes.
    fn start(mode: &str, cpus: u32, output: Output) -> Self {
        let (reader, writer) = small_pipe();
        let (reader, stdio): (_, [Stdio; 2]) = match output {
            Output::Unread => {
                let errors = writer.try_clone().unwrap();
                (Some(reader), [writer.into(), errors.into()])
            }
            Output::Slow => {
                let errors = writer.try_clone().unwrap();
                thread::spawn(move || read_slowly(reader));
                (None, [writer.into(), errors.into()])
            }
            Output::FullDisk => {
                let full = || File::options().write(true).open("/dev/full").unwrap();
                (None, [full().into(), full().into()])
            }
        };
        let mut flood = Self::start_with(mode, cpus, stdio);
        flood._reader = reader;
        flood
    }

    fn start_with(mode: &str, cpus: u32, [output, errors]: [Stdio; 2]) -> Self {
        let kernel = flood_kernel(mode, cpus);
        let socket = kernel.0.with_extension("socket");
        let mut command = vmm(&kernel, mode, cpus);
        command.arg("--api").arg(&socket);
        command.stdout(output).stderr(errors);
        Self {
            child: command.spawn().unwrap(),
            socket,
            _kernel: kernel,
            _reader: None,
        }
    }

    fn connect(&mut self) -> BufReader<UnixStream> {
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "it ended before it listened");
            assert!(begun.elapsed() < SPIN_POLLS, "it does not listen");
        };
        stream.set_read_timeout(Some(SPIN_POLLS)).unwrap();
        let mut client = BufReader::new(stream);
        client.read_line(&mut String::new()).unwrap();
        client
    }

    /// Sends a request on a connection of its own; returns the answer.
    fn ask(&mut self, request: &str) -> String {
        let mut client = self.connect();
        let stream = client.get_mut();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        let read = client.read_line(&mut answer);
        assert!(read.is_ok(), "no answer to {request}: {read:?}");
        answer
    }

    fn statistics(&mut self) -> Value {
        serde_json::from_str(&self.ask("statistics")).unwrap()
    }

    /// Waits until the guest has written more than the pipe holds.
    fn await_flood(&mut self) {
        let begun = Instant::now();
        loop {
            let statistics = self.statistics();
            let vcpus = statistics["vcpus"].as_array().unwrap();
            let serial: u64 = vcpus.iter().flat_map(|vcpu| vcpu["port"].as_u64()).sum();
            let virtio = statistics["devices"][0]["bytes_from_guest"].as_u64();
            if serial + virtio.unwrap() > 3 * 4096 {
                return;
            }
            assert!(begun.elapsed() < SPIN_POLLS, "{statistics}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the exit status of a VM that ends.
    fn end(&mut self) -> Option<i32> {
        await_end(&mut self.child).code()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
        let _gone = std::fs::remove_file(&self.socket);
    }
}

/// Checks each request and each way to end a VM while its guest floods the console.
fn requests_are_answered(mode: &str) {
    if no_kvm() {
        return;
    }
    let mut shortest = Duration::MAX;
    let mut assert_end = |mut flood: Flood, status, case: &str| {
        let begun = Instant::now();
        assert_eq!(flood.end(), Some(status), "{case}");
        if flood._reader.is_some() {
            shortest = shortest.min(begun.elapsed());
        }
    };
    for (output, cpus) in OUTPUTS
        .iter()
        .flat_map(|output| [1, 2, 8].map(|cpus| (*output, cpus)))
    {
        let case = format!("{mode}, {output:?}, {cpus} vCPUs");
        let mut flood = Flood::start(mode, cpus, output);
        flood.await_flood();
        for request in ["pause", "statistics", "resume", "button", "statistics"] {
            let answer = flood.ask(request);
            assert!(
                answer.starts_with("{\"ok\":true"),
                "{case}: {request}: {answer}"
            );
        }
        assert_eq!(flood.ask("stop"), "", "{case}");
        assert_end(flood, 39, &case);
        for number in [libc::SIGTERM, libc::SIGINT] {
            let mut flood = Flood::start(mode, cpus, output);
            flood.await_flood();
            signal(&flood.child, number);
            assert_end(flood, 128 + number, &case);
        }
    }
    // A stop waits for no reader: one of nine at least ends before that on a busy machine, too.
    assert!(shortest < READER_PATIENCE, "{mode}: {shortest:?}");
}

#[test]
fn vm_with_serial_lines_answers_and_ends() {
    requests_are_answered("lines");
}

#[test]
fn vm_with_direct_serial_output_answers_and_ends() {
    requests_are_answered("direct");
}

#[test]
fn vm_with_buffered_serial_output_answers_and_ends() {
    requests_are_answered("buffered");
}

#[test]
fn vm_with_virtio_console_answers_and_ends() {
    requests_are_answered("hvc0");
}

#[test]
fn full_disk_is_counted() {
    if no_kvm() {
        return;
    }
    for mode in ["lines", "direct", "buffered", "hvc0"] {
        let mut flood = Flood::start(mode, 1, Output::FullDisk);
        let begun = Instant::now();
        while flood.statistics()["console_dropped"] == 0 {
            assert!(begun.elapsed() < SPIN_POLLS, "{mode}");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(flood.statistics()["state"], "running");
    }
}

/// The guest powers off long before its output is read.
#[test]
fn late_reader_receives_all_output() {
    if no_kvm() {
        return;
    }
    let kernel = kernel(&raw const burst, &raw const burst_end);
    for mode in ["lines", "direct"] {
        let (mut reader, writer) = small_pipe();
        let mut child = vmm(&kernel, mode, 1).stdout(writer).spawn().unwrap();
        thread::sleep(Duration::from_secs(1));
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == [b'b'; BURST], "{mode}: {} bytes", bytes.len());
        assert_eq!(await_end(&mut child).code(), Some(0), "{mode}");
    }
}

#[test]
fn closed_console_ends_the_vm_in_every_mode() {
    if no_kvm() {
        return;
    }
    for mode in ["lines", "direct", "buffered", "hvc0"] {
        for cpus in [1, 2] {
            let (reader, writer) = small_pipe();
            let (master, terminal) = terminal();
            let pipe = (File::from(OwnedFd::from(reader)), OwnedFd::from(writer));
            for (mut reader, writer) in [pipe, (master, terminal.into())] {
                let (mut errors, errors_of_vm) = std::io::pipe().unwrap();
                let mut flood = Flood::start_with(mode, cpus, [writer.into(), errors_of_vm.into()]);
                reader.read_exact(&mut [0]).unwrap();
                drop(reader);
                assert_eq!(flood.end(), Some(5), "{mode}, {cpus} vCPUs");
                let mut text = String::new();
                errors.read_to_string(&mut text).unwrap();
                assert_eq!(text, "trapline-vmm: guest console closed\n", "{mode}");
            }
        }
    }
}

/// Returns the master of a new terminal, and the terminal.
fn terminal() -> (File, File) {
    let (mut master, mut terminal) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: both numbers are written, and null pointers ask for no name and no settings.
    let opened =
        unsafe { libc::openpty(&mut master, &mut terminal, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: both descriptors are open, and owned by nobody else.
    let files = [master, terminal].map(|fd| unsafe { File::from_raw_fd(fd) });
    files.into()
}
