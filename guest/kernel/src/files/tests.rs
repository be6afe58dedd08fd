//! Archives, also hostile ones, on a device in host memory, which may lie.

use super::archive::{self, Index, BLOCK, MAX_FILES};
use super::cache::{BYTES, FRAMES, PAGE};
use super::mount::{Mount, Tables};
use crate::virtio::fake::{Config, Fake, Lie};
use crate::virtio::fake_memory::Memory;
use crate::virtio::{Disk, RING_BYTES};
use proptest::prelude::*;
use std::alloc::{alloc_zeroed, Layout};
use std::ffi::CString;
use std::vec::Vec;
use trapline_abi::files::{Class, File};
use trapline_workloads::{Files, Needed, Reason};

/// MiB of the device.
pub const MIB: usize = 12;
/// MiB of the large file.
pub const LARGE_MIB: u32 = 8;

/// Returns all-zero tables, which are never freed.
fn zeroed<T>() -> &'static mut T {
    // SAFETY: only called for tables, for which zeros are valid; the layout is not empty.
    unsafe { &mut *alloc_zeroed(Layout::new::<T>()).cast() }
}

/// Appends a file or directory to an archive.
pub fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_path(path).unwrap();
    if path.ends_with('/') {
        header.set_entry_type(tar::EntryType::Directory);
    }
    header.set_size(content.len() as u64);
    header.set_cksum();
    archive.append(&header, content).unwrap();
}

/// Returns an archive with the files of the workload.
pub fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "64k/", &[]);
    for file in File::all() {
        let mut content = vec![0; file.class.bytes(LARGE_MIB) as usize];
        file.fill(0, &mut content);
        append(&mut archive, file.path().as_str(), &content);
    }
    archive.into_inner().unwrap()
}

/// Returns an archive with these files and one that is not a multiple of a page or sector.
fn small_archive(names: &[&str]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in names.iter().zip([5000_usize, 0, 512, 100].iter().cycle()) {
        append(&mut archive, name, &vec![name.len() as u8; *bytes]);
    }
    archive.into_inner().unwrap()
}

/// Reads the index of an archive in memory, and returns its files with their content.
fn index(bytes: &[u8], names: &[&str]) -> Result<Vec<Option<Vec<u8>>>, Reason> {
    let sectors = (bytes.len() / BLOCK) as u64;
    let index = Index::read(zeroed::<archive::Tables>(), sectors, |sector| {
        let at = sector as usize * BLOCK;
        bytes[at..at + BLOCK].try_into().map_err(|_| "out of range")
    })?;
    let content = |name: &&str| {
        let extent = index.extent(index.find(name.as_bytes())?)?;
        let start = extent.sector as usize * BLOCK;
        Some(bytes[start..start + extent.bytes as usize].to_vec())
    };
    Ok(names.iter().map(content).collect())
}

/// Recomputes the checksum of the first header.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

pub type Mounted = (Mount<'static, Fake>, Fake, [Memory; 2]);

pub fn mount(config: Config, bytes: &[u8]) -> Result<Mounted, Reason> {
    let fake = Fake::new(Config {
        mib: MIB as u32,
        ..config
    });
    fake.write_disk(bytes);
    let memory = [Memory::new(RING_BYTES), Memory::new(BYTES)];
    // SAFETY: the memory is exclusive and outlives the mount, which is dropped before it.
    let mount = unsafe {
        let disk = Disk::start(fake.clone(), memory[0].start)?;
        Mount::new(disk, memory[1].start, zeroed::<Tables>())?
    };
    Ok((mount, fake, memory))
}

pub fn file(class: Class) -> File {
    File { class, index: 0 }
}

/// Reads a file from its start to its end by calls of this length, and compares it.
pub fn read_all(files: &mut dyn Files, file: File, call: usize) -> Result<(), Reason> {
    let opened = files.open(file.path().as_c_str())?;
    let (mut offset, mut buffer) = (0, vec![0; call]);
    loop {
        let count = files.read(opened, offset, &mut buffer)?;
        if !file.holds(offset, &buffer[..count]) {
            return Err("wrong content");
        }
        offset += count as u64;
        if count < call {
            break;
        }
    }
    files.close(opened);
    assert_eq!(offset, file.class.bytes(LARGE_MIB));
    Ok(())
}

fn needed(files: &mut dyn Files) -> Needed {
    files.cache_counts().unwrap().needed.unwrap()
}

#[test]
fn every_file_is_read_by_calls_of_any_length() {
    let bytes = archive();
    for polls in [false, true] {
        let config = Config {
            polls,
            ..Config::default()
        };
        let (mut mount, fake, _memory) = mount(config, &bytes).unwrap();
        for call in [1000, 4096, 65_536] {
            for file in File::all() {
                // Eight bytes are a word of the content.
                read_all(&mut mount, file, call / 8 * 8).unwrap();
            }
        }
        assert!(fake.counts().depth > 1, "windows are requested ahead");
        assert_eq!(mount.open(c"64k").err(), Some("there is no such file"));
        assert_eq!(
            mount.read(3, 0, &mut [0]).err(),
            Some("the file is not open")
        );
    }
}

#[test]
fn hits_misses_and_fetched_pages_are_counted() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let one = file(Class::Mebibyte);
    let pages = one.class.bytes(0) / PAGE as u64;
    let before = fake.counts().requests;
    read_all(&mut mount, one, 65_536).unwrap();
    let first = needed(&mut mount);
    assert_eq!(first.hits + first.misses, pages);
    assert_eq!(mount.cache_counts().unwrap().fetched, pages);
    let requests = fake.counts().requests - before;
    assert!(
        requests <= pages / 16,
        "{requests} requests: adjacent pages are read together"
    );
    read_all(&mut mount, one, 65_536).unwrap();
    let second = needed(&mut mount);
    assert_eq!(
        (second.hits, second.misses),
        (first.hits + pages, first.misses)
    );
    let opened = mount.open(one.path().as_c_str()).unwrap();
    mount.empty_cache(opened).unwrap();
    let mut byte = [0];
    mount.read(opened, 7 * PAGE as u64, &mut byte).unwrap();
    assert_eq!(needed(&mut mount).misses, second.misses + 1);
    assert_eq!(
        mount.cache_counts().unwrap().fetched,
        pages + 1,
        "no page ahead"
    );
}

#[test]
fn a_file_larger_than_the_cache_evicts_and_pages_used_again_stay() {
    let (mut mount, _fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let (small, large) = (file(Class::Medium), file(Class::Large));
    assert!(large.class.bytes(LARGE_MIB) as usize > BYTES);
    for _ in 0..2 {
        read_all(&mut mount, small, PAGE).unwrap();
    }
    read_all(&mut mount, large, 65_536).unwrap();
    let before = mount.cache_counts().unwrap().fetched;
    read_all(&mut mount, large, 65_536).unwrap();
    let fetched = mount.cache_counts().unwrap().fetched - before;
    assert!(
        fetched > FRAMES as u64,
        "{fetched}: its first pages were evicted"
    );
    let (mut mount, _fake, _memory) = self::mount(Config::default(), &archive()).unwrap();
    for _ in 0..2 {
        read_all(&mut mount, small, PAGE).unwrap();
    }
    // Less than two rounds of the clock.
    let opened = mount.open(large.path().as_c_str()).unwrap();
    for page in 0..FRAMES as u64 {
        mount.read(opened, page * PAGE as u64, &mut [0]).unwrap();
    }
    let before = needed(&mut mount).misses;
    read_all(&mut mount, small, PAGE).unwrap();
    assert_eq!(
        needed(&mut mount).misses,
        before,
        "the file used twice stays"
    );
}

#[test]
fn a_page_is_read_although_those_ahead_of_it_replace_it() {
    let (mut mount, _fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let large = file(Class::Large);
    let path = large.path();
    let [first, second] = [(); 2].map(|()| mount.open(path.as_c_str()).unwrap());
    let mut buffer = [0; PAGE];
    let mut read = |opened, page: usize| {
        let offset = (page * PAGE) as u64;
        assert_eq!(mount.read(opened, offset, &mut buffer), Ok(PAGE));
        assert!(large.holds(offset, &buffer), "page {page}");
        mount.cache_counts().unwrap().fetched
    };
    read(first, 0);
    // Pages 0 to 3 are in the first frames, which the clock considers next when all others are used.
    let pages = LARGE_MIB as usize * 256;
    for index in 0..FRAMES - 4 {
        read(second, pages - 1 - 2 * index);
    }
    let before = read(first, 1);
    // Pages 4 to 7, 8 and 10, and page 2 again.
    assert_eq!(read(first, 2) - before, 7);
}

#[test]
fn a_lie_of_the_device_is_an_error() {
    let bytes = archive();
    for lie in [
        Lie::Id(1),
        Lie::Id(u32::MAX),
        Lie::Jump(43),
        Lie::Length(1),
        Lie::NoStatus,
        Lie::Status(1),
        Lie::Data,
        Lie::Silence,
        Lie::NeedsReset,
        Lie::Broken,
    ] {
        let config = Config {
            lie,
            truths: 100,
            ..Config::default()
        };
        let read = mount(config, &bytes)
            .and_then(|(mut mount, ..)| read_all(&mut mount, file(Class::Large), 65_536));
        assert!(read.is_err(), "{lie:?}");
    }
}

#[test]
fn random_lies_never_panic() {
    let bytes = archive();
    for seed in 1..100 {
        let config = Config {
            lie: Lie::Random,
            truths: 90 + (seed % 40) as u32,
            seed,
            ..Config::default()
        };
        let _ = mount(config, &bytes)
            .and_then(|(mut mount, ..)| read_all(&mut mount, file(Class::Large), 65_536));
    }
}

#[test]
fn archives_of_another_writer_are_read_and_long_paths_joined() {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(90));
    let names = ["a", "a/b/c", "b", &long];
    let contents = index(&small_archive(&names), &names).unwrap();
    for (name, content) in names.iter().zip(contents) {
        let content = content.expect("the file is found");
        assert!(content
            .iter()
            .all(|byte| usize::from(*byte) == name.len() % 256));
    }
    assert_eq!(
        index(&small_archive(&names), &["c", "a/b"]),
        Ok(vec![None, None])
    );
}

#[test]
fn unsupported_and_damaged_archives_are_rejected() {
    let good = || small_archive(&["file"]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut archive = good();
        archive[at..at + bytes.len()].copy_from_slice(bytes);
        with_checksum(archive)
    };
    let mut wrong_sum = good();
    wrong_sum[0] = b'x';
    let many: Vec<_> = (0..=MAX_FILES).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let blocks = good().len() / BLOCK;
    for (archive, expected) in [
        (vec![1; 4 * BLOCK], "no ustar archive"),
        (changed(257, b"ustar  \0"), "no ustar archive"),
        (wrong_sum, "checksum"),
        (changed(124, b"00000000008\0"), "not octal"),
        (
            changed(124, &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            "not octal",
        ),
        (changed(124, b"777777777777"), "not octal"),
        (changed(124, b"77777777777\0"), "exceeds the disk"),
        (changed(156, b"2"), "neither a file nor"),
        (changed(156, b"x"), "neither a file nor"),
        (changed(156, b"5"), "directory of the archive has data"),
        (changed(0, b"/ile"), "not normalised"),
        (changed(0, b"../x"), "not normalised"),
        (changed(0, b"a//b"), "not normalised"),
        (changed(0, b"a/./"), "not normalised"),
        (changed(0, &[0; 4]), "not normalised"),
        (good()[..(blocks - 2) * BLOCK].to_vec(), "no end"),
        (good()[..(blocks - 1) * BLOCK].to_vec(), "no end"),
        (Vec::new(), "no end"),
        (small_archive(&["x", "x"]), "same path"),
        (small_archive(&many), "too many files"),
    ] {
        let reason = index(&archive, &[]).expect_err(expected);
        assert!(reason.contains(expected), "{reason}, not {expected}");
    }
    let mut one_zero = good();
    let last = one_zero.len() - 1;
    one_zero[last] = 1;
    let reason = index(&one_zero, &[]).unwrap_err();
    assert!(reason.contains("one block of zeros"), "{reason}");
}

proptest! {
    /// The files of any index are within the disk, or `index` panics.
    #[test]
    fn damaged_archives_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        with_sum in any::<bool>(),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let names = ["one/two/three", "b", "c", "d"];
        let mut bytes = small_archive(&names);
        let headers = [0, 11 * BLOCK, 12 * BLOCK];
        for (place, value) in changes {
            // Most changes are in headers.
            let header = headers[usize::from(value) % headers.len()];
            let at = header + place.index(BLOCK);
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len() / BLOCK + 1) * BLOCK);
        }
        if with_sum && bytes.len() >= BLOCK {
            bytes = with_checksum(bytes);
        }
        let _ = index(&bytes, &names);
    }

    /// Reads at any place return what the file has there.
    #[test]
    fn reads_at_any_place_return_the_content(
        calls in prop::collection::vec((any::<prop::sample::Index>(), 1..20_000_usize), 1..20),
    ) {
        let name = "odd";
        let content: Vec<u8> = (0..50_001_u32).map(|at| (at % 251) as u8).collect();
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, name, &content);
        let (mut mount, _fake, _memory) =
            mount(Config::default(), &archive.into_inner().unwrap()).unwrap();
        let opened = mount.open(&CString::new(name).unwrap()).unwrap();
        for (place, length) in calls {
            let at = place.index(content.len() + 10);
            let mut buffer = vec![0xee; length];
            let count = mount.read(opened, at as u64, &mut buffer).unwrap();
            let end = content.len().min(at + length);
            prop_assert_eq!(count, end.saturating_sub(at));
            prop_assert_eq!(&buffer[..count], &content[at.min(end)..end]);
            prop_assert!(buffer[count..].iter().all(|byte| *byte == 0xee));
        }
    }
}
