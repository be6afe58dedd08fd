use super::serve::turn;
use super::start::{start, Started};
use super::*;
use crate::threads::Worker;
use crate::virtio::Slot;
use expect_test::expect;
use proptest::prelude::*;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use trapline_interface::fake::{Fake, FakeVm};
use trapline_interface::{Controllers, Hypervisor, Region, VmSpec};
use trapline_monitor::virtio::driver::{self, Chunk, Driver};
use trapline_monitor::virtio::{slot_resources, Registers};
use trapline_monitor::virtio::{Block, Device};

const SECTORS: u64 = 256;
const HEADER: u64 = 0x100;
const STATUS: u64 = 0x200;
const DATA: u64 = 0x1000;
const DATA_LENGTH: u32 = 0x8000;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const DISCARD: u32 = 11;
const CLEAR: u32 = 13;

/// A disk, who works on it, and its driver.
struct Rig {
    vm: FakeVm,
    slot: Arc<Slot<Block>>,
    engine: Box<dyn Engine>,
    has_direct: bool,
}

/// A new file of numbered sectors.
fn blank(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    let bytes: Vec<u8> = (0..SECTORS * 512).map(|at| (at / 512) as u8).collect();
    fs::write(&path, bytes).unwrap();
    path
}

impl Rig {
    fn new(wanted: &DiskConfig) -> Self {
        let (rig, workers) = Self::idle(wanted);
        workers.into_iter().for_each(|worker| {
            worker.start(false).unwrap();
        });
        rig
    }

    /// Without the threads that do its work.
    fn idle(wanted: &DiskConfig) -> (Self, Vec<Worker>) {
        let spec = VmSpec::with(Controllers::Full);
        let vm = Fake::replaying([vec![]]).create_vm(&spec).unwrap();
        let region = Region::new(driver::rings(1) as usize).unwrap();
        let file = DiskFile::open(wanted).unwrap();
        let has_direct = file.direct.is_some();
        let disk = Block::new(file.geometry);
        let features = disk.features();
        let place = slot_resources(0).unwrap();
        let slot = Slot::new(&vm, place, &(Arc::new(region)), disk).unwrap();
        let (kind, engine, workers) = start(wanted, "disk", file, slot.bell()).unwrap();
        assert!(wanted.engine.is_none_or(|asked| asked == kind));
        slot.started(features);
        let rig = Self {
            slot: Arc::new(slot),
            engine,
            has_direct,
            vm,
        };
        (rig, workers)
    }

    fn turn_until(&mut self, mut done: impl FnMut() -> bool) {
        let mut more = true;
        for _ in 0..10_000 {
            more = turn(&self.slot, self.engine.as_mut(), more);
            if done() {
                return;
            }
        }
        panic!("nothing comes back");
    }

    /// One request, from asking to its status.
    fn ask(&mut self, kind: u32, sector: u64, data: &[Chunk]) -> u8 {
        let slot = Arc::clone(&self.slot);
        let mut driver = Driver::new(slot.memory(), 0);
        driver.put(driver::rings(0), &[0; 0x3000]);
        // The device counts on from where it is: a reset makes both begin anew.
        slot.write(0x70, 4, 0);
        slot.started(slot.with(|disk| disk.features()));
        push(&mut driver, kind, sector, data, 0);
        slot.ring();
        self.turn_until(|| driver.used().is_some());
        driver.bytes(STATUS, 1)[0]
    }

    fn range(&mut self, kind: u32, sector: u64, sectors: u32, flags: u32) -> u8 {
        let mut range = sector.to_le_bytes().to_vec();
        range.extend(sectors.to_le_bytes());
        range.extend(flags.to_le_bytes());
        self.driver().put(DATA, &range);
        self.ask(kind, 0, &[(DATA, 16, false)])
    }

    fn driver(&self) -> Driver<'_> {
        Driver::new(self.slot.memory(), 0)
    }
}

/// The request `number` of those that are in memory at once.
fn push(driver: &mut Driver<'_>, kind: u32, sector: u64, data: &[Chunk], number: u64) {
    let mut header = kind.to_le_bytes().to_vec();
    header.extend([0; 4]);
    header.extend(sector.to_le_bytes());
    let (at, status) = (HEADER + 16 * number, STATUS + number);
    driver.put(at, &header);
    driver.put(status, &[0xee]);
    let mut pieces = vec![(at, 16, false)];
    pieces.extend(data);
    pieces.push((status, 1, true));
    driver.push(&pieces);
}

/// All ways to work on a disk, each on a file of its own: threads keep theirs.
fn ways(directory: &Path) -> impl Iterator<Item = DiskConfig> + '_ {
    let kinds = [Kind::Uring, Kind::Pool].into_iter();
    let ways = kinds.flat_map(|kind| [(kind, false), (kind, true)]);
    ways.map(|(kind, direct)| DiskConfig {
        path: blank(directory, &format!("{kind:?}, direct: {direct}")),
        read_only: false,
        direct,
        engine: Some(kind),
    })
}

#[derive(Clone, Debug)]
struct ApiRequest {
    kind: u32,
    sector: u64,
    sectors: u32,
    fill: u8,
    /// By how much its memory is out of line.
    shift: u32,
}

fn asked() -> impl Strategy<Value = ApiRequest> {
    let kind = prop::sample::select(vec![READ, WRITE, WRITE, FLUSH, DISCARD, CLEAR]);
    let shift = prop::sample::select(vec![0_u32, 0, 512, 3]);
    (kind, 0..SECTORS + 2, 1_u32..60, any::<u8>(), shift).prop_map(
        |(kind, sector, sectors, fill, shift)| ApiRequest {
            kind,
            sector,
            sectors,
            fill,
            shift,
        },
    )
}

/// Does it on the disk and on the model.
fn check(rig: &mut Rig, model: &mut [u8], asked: &ApiRequest) {
    let length = asked.sectors * 512;
    let from = asked.sector as usize * 512;
    let place = from..from + length as usize;
    let fits = place.end <= model.len();
    let half = u64::from(length / 1024 * 512);
    let at = DATA + u64::from(asked.shift);
    let cut = |write| {
        let whole = (at, length, write);
        let rest = (at + half, length - half as u32, write);
        match half {
            0 => vec![whole],
            _ => vec![(at, half as u32, write), rest],
        }
    };
    let output = match asked.kind {
        READ => rig.ask(READ, asked.sector, &cut(true)),
        WRITE => {
            rig.driver().put(at, &vec![asked.fill; length as usize]);
            rig.ask(WRITE, asked.sector, &cut(false))
        }
        FLUSH => return assert_eq!(rig.ask(FLUSH, 0, &[]), 0),
        kind => rig.range(kind, asked.sector, asked.sectors, 0),
    };
    assert_eq!(output, u8::from(!fits), "{asked:?}");
    match (asked.kind, fits) {
        (_, false) => {}
        (READ, _) => {
            let read = rig.driver().bytes(at, length as usize);
            assert!(read == model[place], "{asked:?}");
        }
        (WRITE, _) => model[place].fill(asked.fill),
        _ => model[place].fill(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_way_does_what_a_disk_does(all in prop::collection::vec(asked(), 1..24)) {
        let directory = tempfile::tempdir().unwrap();
        for wanted in ways(directory.path()) {
            let mut model = fs::read(&wanted.path).unwrap();
            let mut rig = Rig::new(&wanted);
            for one in &all {
                check(&mut rig, &mut model, one);
            }
            prop_assert!(fs::read(&wanted.path).unwrap() == model);
            prop_assert_eq!(rig.slot.counters.counts().requests, all.len() as u64);
        }
    }
}

#[test]
fn batch_completes_with_few_interrupts() {
    let directory = tempfile::tempdir().unwrap();
    for wanted in ways(directory.path()) {
        let mut rig = Rig::new(&wanted);
        let slot = Arc::clone(&rig.slot);
        let mut driver = Driver::new(slot.memory(), 0);
        for number in 0..5 {
            let into = (DATA + 512 * number, 512, true);
            push(&mut driver, READ, 10 * number, &[into], number);
        }
        slot.ring();
        let mut back = 0;
        rig.turn_until(|| {
            while driver.used().is_some() {
                back += 1;
            }
            back == 5
        });
        for number in 0..5 {
            let at = DATA + 512 * number;
            assert_eq!(driver.bytes(at, 512), [10 * number as u8; 512]);
            assert_eq!(driver.bytes(STATUS + number, 1), [0]);
        }
        let counts = slot.counters.counts();
        assert_eq!(
            (counts.requests, counts.read, counts.failures),
            (5, 2560, 0)
        );
        assert!((1..=5).contains(&rig.vm.interrupts()));
        assert!(counts.wakes >= 1);
    }
}

#[test]
fn read_only_disk_is_never_written() {
    let directory = tempfile::tempdir().unwrap();
    for wanted in ways(directory.path()) {
        let before = fs::read(&wanted.path).unwrap();
        let read_only = DiskConfig {
            read_only: true,
            ..wanted
        };
        let (mut rig, mut other) = (Rig::new(&read_only), Rig::new(&read_only));
        assert_eq!(rig.ask(WRITE, 0, &[(DATA, 512, false)]), 1);
        assert_eq!(rig.range(DISCARD, 0, 1, 0), 2);
        assert_eq!(
            (
                rig.ask(FLUSH, 0, &[]),
                other.ask(READ, 0, &[(DATA, 512, true)])
            ),
            (0, 0)
        );
        let file = DiskFile::open(&read_only).unwrap();
        assert!(write_to(&file.cached).is_err());
        assert!(fs::read(&read_only.path).unwrap() == before);
    }
}

fn write_to(mut file: &File) -> std::io::Result<usize> {
    std::io::Write::write(&mut file, b"x")
}

#[test]
fn truncated_file_gives_read_errors() {
    let directory = tempfile::tempdir().unwrap();
    for wanted in ways(directory.path()) {
        let mut rig = Rig::new(&wanted);
        let file = File::options().write(true).open(&wanted.path).unwrap();
        file.set_len(10 * 512).unwrap();
        assert_eq!(rig.ask(READ, 10, &[(DATA, 512, true)]), 1);
        assert_eq!(rig.ask(READ, 0, &[(DATA, DATA_LENGTH, true)]), 1);
        assert_eq!(rig.ask(READ, 9, &[(DATA, 512, true)]), 0);
        assert_eq!(rig.slot.counters.counts().failures, 2);
    }
}

#[test]
fn a_disk_has_one_writer_or_several_readers() {
    let directory = tempfile::tempdir().unwrap();
    let path = blank(directory.path(), "a disk");
    let writer = DiskConfig {
        path,
        ..DiskConfig::default()
    };
    let reader = DiskConfig {
        read_only: true,
        ..writer.clone()
    };
    let error = |wanted: &DiskConfig| DiskFile::open(wanted).unwrap_err().to_string();
    let held = DiskFile::open(&writer).unwrap();
    let mut errors = vec![error(&writer), error(&reader)];
    drop(held);
    let _held = DiskFile::open(&reader).unwrap();
    DiskFile::open(&reader).unwrap();
    errors.push(error(&writer));
    let directory = directory.path().display().to_string();
    expect![[r#"
        locked by another process, or given twice; stop it, or open it with ',ro' in both
        locked by another process, or given twice; stop it, or open it with ',ro' in both
        locked by another process, or given twice; stop it, or open it with ',ro' in both"#]]
    .assert_eq(&errors.join("\n").replace(&directory, "DIR"));
}

/// The kernel may hold a file for a while after its process has ended.
#[test]
fn lock_is_retried_for_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    fs::write(&path, [0; 4096]).unwrap();
    let wanted = DiskConfig {
        path,
        ..DiskConfig::default()
    };
    let held = DiskFile::open(&wanted).unwrap();
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    let _held = DiskFile::open(&wanted).unwrap();
    release.join().unwrap();
    let begun = Instant::now();
    DiskFile::open(&wanted).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

fn fifo(path: &Path) -> PathBuf {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a zero-terminated path and a mode.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path.to_owned()
}

#[test]
fn disk_errors_name_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("odd"), [0; 513]).unwrap();
    fs::write(at("empty"), []).unwrap();
    let paths = [
        at("odd"),
        at("empty"),
        at("none"),
        directory.path().to_owned(),
        "/dev/null".into(),
        "/dev/zero".into(),
        fifo(&at("fifo")),
    ];
    let errors = paths.map(|path| {
        let wanted = DiskConfig {
            path,
            ..DiskConfig::default()
        };
        DiskFile::open(&wanted).unwrap_err().to_string()
    });
    let directory = directory.path().display().to_string();
    expect![[r#"
        length of 513 bytes is not a positive multiple of 512; run truncate -s %512 FILE
        length of 0 bytes is not a positive multiple of 512; run truncate -s %512 FILE
        No such file or directory (os error 2)
        neither a regular file nor a block device
        neither a regular file nor a block device
        neither a regular file nor a block device
        neither a regular file nor a block device"#]]
    .assert_eq(&errors.join("\n").replace(&directory, "DIR"));
}

#[test]
fn disks_in_other_formats_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d");
    let warning = |start: &[u8]| {
        fs::write(&path, start).unwrap();
        let warning = file::format_warning(&path, &File::open(&path).unwrap());
        warning.map(|text| text.replace(&directory.path().display().to_string(), "DIR"))
    };
    let warnings = [
        &b"QFI\xfb\0\0"[..],
        b"KDMV\x01",
        b"# Disk DescriptorFile\nversion=1",
        b"vhdxfile",
        b"COWD",
        b"conectix",
        b"<<< Oracle VM VirtualBox Disk Image >>>\n",
        b"QED\0",
        b"WithouFreSpacExt",
    ]
    .map(|start| warning(start).unwrap())
    .join("\n");
    expect![[r#"
        disk DIR/d: qcow2 image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vmdk image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vmdk image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vhdx image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vmdk image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vpc image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: vdi image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: qed image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw
        disk DIR/d: parallels image is served as raw
        help: qemu-img convert -O raw DIR/d DIR/d.raw"#]]
    .assert_eq(&warnings);
    for start in [&b""[..], b"QFI", b"\xeb\x63\x90", b"# Disk"] {
        assert_eq!(warning(start), None);
    }
}

#[test]
fn direct_writes_are_visible_through_the_cache() {
    let directory = tempfile::tempdir().unwrap();
    for wanted in ways(directory.path()).filter(|wanted| wanted.direct) {
        let mut rig = Rig::new(&wanted);
        if !rig.has_direct {
            return trapline_skip::skip(
                "writes past the cache",
                "temporary files cannot be opened with O_DIRECT",
            );
        }
        rig.driver().put(DATA, &[7; 8192]);
        assert_eq!(rig.ask(WRITE, 8, &[(DATA, 4096, false)]), 0);
        // A piece that cannot go past the cache does not have to.
        assert_eq!(
            rig.ask(
                WRITE,
                17,
                &[(DATA + 1, 1000, false), (DATA + 2000, 24, false)]
            ),
            0
        );
        let bytes = fs::read(&wanted.path).unwrap();
        assert!(bytes[8 * 512..][..4096] == [7; 4096] && bytes[17 * 512..][..1024] == [7; 1024]);
    }
}

#[test]
fn reset_drains_and_drops_old_requests() {
    let directory = tempfile::tempdir().unwrap();
    let (mut rig, workers) = Rig::idle(&DiskConfig {
        path: blank(directory.path(), "a disk"),
        engine: Some(Kind::Pool),
        ..DiskConfig::default()
    });
    let slot = Arc::clone(&rig.slot);
    let mut driver = Driver::new(slot.memory(), 0);
    for number in 0..5 {
        push(&mut driver, READ, number, &[(DATA, 512, true)], number);
    }
    turn(&slot, rig.engine.as_mut(), true);
    assert_eq!(slot.with(|disk| disk.in_flight()), 5);
    let resetting = std::thread::spawn({
        let slot = Arc::clone(&slot);
        move || slot.write(0x70, 4, 0)
    });
    // It rings for the disk's thread, and waits.
    turn(&slot, rig.engine.as_mut(), false);
    turn(&slot, rig.engine.as_mut(), true);
    assert!(!resetting.is_finished() && slot.with(|disk| disk.in_flight()) == 5);
    workers.into_iter().for_each(|worker| {
        worker.start(false).unwrap();
    });
    while slot.with(|disk| disk.in_flight()) > 0 {
        turn(&slot, rig.engine.as_mut(), false);
    }
    resetting.join().unwrap();
    assert_eq!(
        (driver.used(), driver.bytes(STATUS, 5)),
        (None, vec![0xee; 5])
    );
    assert_eq!(
        (rig.vm.interrupts(), slot.counters.counts().requests),
        (0, 0)
    );
    // What was under way has been: the next driver finds the disk as it is.
    assert_eq!(rig.ask(READ, 3, &[(DATA, 512, true)]), 0);
    assert_eq!(rig.driver().bytes(DATA, 1), [3]);
}

/// In a thread of its own, whose kernel has no rings.
#[test]
fn pool_is_the_fallback_for_io_uring() {
    let directory = tempfile::tempdir().unwrap();
    let path = blank(directory.path(), "a disk");
    let without = std::thread::spawn(move || {
        forbid_rings();
        let try_out = |engine| -> Result<Started, DiskError> {
            let wanted = DiskConfig {
                path: path.clone(),
                engine,
                ..DiskConfig::default()
            };
            let bell = trapline_interface::Doorbell::unregistered().unwrap();
            let file = DiskFile::open(&wanted)?;
            start(&wanted, "disk", file, std::os::fd::AsFd::as_fd(&bell.0))
        };
        let (kind, _, workers) = try_out(None).unwrap();
        assert_eq!((kind, workers.is_empty()), (Kind::Pool, false));
        drop(workers);
        let output = try_out(Some(Kind::Uring)).err().unwrap().to_string();
        assert!(
            output.contains("engine=uring") && output.contains("sysctl"),
            "{output}"
        );
    });
    without.join().unwrap();
}

fn forbid_rings() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let steps = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, libc::SYS_io_uring_setup as u32),
        step(0x06, 0, 0, refused),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: numbers, and a program of as many steps as it says, which the kernel copies.
    let status = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    assert_eq!(status, 0);
}
