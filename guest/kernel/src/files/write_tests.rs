//! Writes to files of an archive, on a device in host memory, which may fail.

use super::cache::write_back::MAX_DIRTY;
use super::cache::{FRAMES, PAGE};
use super::mount::Mount;
use super::tests::{append, archive, file, mount, read_all, LARGE_MIB};
use crate::virtio::fake::{Config, Fake, Fetched, Lie};
use crate::virtio::{Kind, SECTOR};
use proptest::prelude::*;
use std::vec::Vec;
use trapline_abi::files::{Class, File};
use trapline_workloads::Files;

const PAGES: usize = LARGE_MIB as usize * 256;

/// Returns what a write puts into a page, which depends on `version`.
fn content(page: usize, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    large(version).fill((page * PAGE) as u64, &mut bytes);
    bytes
}

fn large(version: u32) -> File {
    file(Class::Large).version(version)
}

fn open(mount: &mut Mount<'_, Fake>, class: Class) -> u32 {
    mount.open(file(class).path().as_c_str()).unwrap()
}

fn write(mount: &mut Mount<'_, Fake>, opened: u32, pages: impl IntoIterator<Item = usize>) {
    for page in pages {
        let offset = (page * PAGE) as u64;
        mount.write(opened, offset, &content(page, 1)).unwrap();
    }
}

/// Returns the writes that the device has fetched since the last call.
fn writes(fake: &Fake) -> Vec<Fetched> {
    let mut fetched = fake.take_fetched();
    fetched.retain(|request| request.kind == Kind::Write as u32);
    fetched
}

fn written(mount: &mut Mount<'_, Fake>) -> u64 {
    mount.cache_counts().unwrap().written.unwrap()
}

/// Returns the first sector of the large file.
fn first_sector(disk: &[u8]) -> u64 {
    let start = content_of(file(Class::Large), 0, PAGE);
    let sectors = disk.chunks_exact(SECTOR as usize);
    let mut found = sectors
        .zip(0..)
        .filter(|(sector, _)| start.starts_with(sector));
    found.next().expect("the file is on the disk").1
}

fn content_of(file: File, offset: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    file.fill(offset as u64, &mut content);
    content
}

/// Returns pages of the large file in an order of which no two are adjacent.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(|index| index * 997 % PAGES)
}

#[test]
fn dirty_pages_are_written_at_the_bound_in_the_order_of_their_sectors() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    write(&mut mount, opened, scattered(MAX_DIRTY - 1));
    assert_eq!(writes(&fake), [], "the bound is not reached");
    write(&mut mount, opened, scattered(MAX_DIRTY).skip(MAX_DIRTY - 1));
    let requests = writes(&fake);
    assert_eq!(written(&mut mount), MAX_DIRTY as u64);
    assert!(requests.is_sorted_by_key(|request| request.sector));
    let sectors: u32 = requests.iter().map(|request| request.bytes).sum();
    assert_eq!(sectors as usize, MAX_DIRTY * PAGE);
    assert!(fake.counts().depth == 32, "several are in flight");
    let wait = mount.sync(opened);
    wait.unwrap();
    assert_eq!(writes(&fake), [], "all are written already");
    let (disk, start) = (fake.disk(), first_sector(&archive()));
    for page in scattered(MAX_DIRTY) {
        let at = start as usize * 512 + page * PAGE;
        assert!(disk[at..at + PAGE] == content(page, 1), "page {page}");
    }
}

#[test]
fn adjacent_pages_are_one_request_of_at_most_128_kib() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    write(&mut mount, opened, (0..70).rev());
    write(&mut mount, opened, 0..70);
    mount.sync(opened).unwrap();
    // Frames are taken in the order of the first writes, so pages are adjacent in the wrong direction.
    assert_eq!(writes(&fake).len(), 70);
    write(&mut mount, opened, 100..170);
    mount.sync(opened).unwrap();
    let lengths: Vec<_> = writes(&fake)
        .iter()
        .map(|request| request.bytes as usize / PAGE)
        .collect();
    assert_eq!(lengths, [32, 32, 6]);
}

#[test]
fn a_flush_follows_the_completion_of_all_writes() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    write(&mut mount, opened, scattered(MAX_DIRTY + 50));
    fake.take_fetched();
    mount.sync(opened).unwrap();
    let fetched = fake.take_fetched();
    let (flush, before) = fetched.split_last().unwrap();
    assert_eq!((flush.kind, flush.others), (Kind::Flush as u32, 0));
    assert_eq!(before.len(), 50);
    assert!(before
        .iter()
        .all(|request| request.kind == Kind::Write as u32));
    assert_eq!(fake.counts().flushes, 1);
}

#[test]
fn a_sync_writes_only_pages_of_its_file() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let [one, other] = [Class::Medium, Class::Large].map(|class| open(&mut mount, class));
    write(&mut mount, one, [2]);
    write(&mut mount, other, [5, 9]);
    for (opened, expected) in [(one, 1), (one, 0), (other, 2)] {
        mount.sync(opened).unwrap();
        assert_eq!(writes(&fake).len(), expected);
    }
}

#[test]
fn a_dirty_page_is_written_before_it_is_replaced() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let [medium, other] = [Class::Medium, Class::Large].map(|class| open(&mut mount, class));
    write(&mut mount, medium, 0..16);
    assert_eq!(writes(&fake), []);
    let mut read = vec![0; PAGE];
    for page in 0..2 * FRAMES {
        mount.read(other, (page * PAGE) as u64, &mut read).unwrap();
    }
    assert_eq!(written(&mut mount), 16);
    let before = mount.cache_counts().unwrap().fetched;
    for page in 0..16 {
        mount.read(medium, (page * PAGE) as u64, &mut read).unwrap();
        assert!(read == content(page, 1), "page {page}");
    }
    assert!(
        mount.cache_counts().unwrap().fetched > before,
        "they were replaced"
    );
}

#[test]
fn a_page_that_is_being_written_changes_afterwards() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    // The device completes nothing until the driver waits.
    write(&mut mount, opened, 0..MAX_DIRTY);
    let start = first_sector(&archive());
    let offset = start as usize * 512;
    let other = content(0, 2);
    mount.write(opened, 0, &other).unwrap();
    assert!(
        fake.disk()[offset..offset + PAGE] == content(0, 1),
        "the first write is complete"
    );
    let mut read = vec![0; PAGE];
    mount.read(opened, 0, &mut read).unwrap();
    assert!(read == other);
    mount.sync(opened).unwrap();
    let requests = writes(&fake);
    let of_page: Vec<_> = requests
        .iter()
        .filter(|request| request.sector == start)
        .collect();
    assert_eq!(of_page.len(), 2);
    assert!(fake.disk()[offset..offset + PAGE] == other);
}

/// Returns the number of requests until files can be opened.
fn requests_before_writes() -> u32 {
    let (_mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    fake.counts().requests as u32
}

#[test]
fn an_error_of_the_device_is_reported_and_pages_stay_dirty() {
    let bytes = archive();
    for (truths, pages) in [(0, 3), (2, 3), (40, 200)] {
        let config = Config {
            lie: Lie::Status(1),
            truths: requests_before_writes() + truths,
            ..Config::default()
        };
        let (mut mount, _fake, _memory) = mount(config, &bytes).unwrap();
        let opened = open(&mut mount, Class::Large);
        write(&mut mount, opened, scattered(pages));
        for _ in 0..2 {
            assert_eq!(mount.sync(opened), Err("the disk refused a request"));
        }
        assert!(mount.empty_cache(opened).is_err(), "they cannot be removed");
        let mut read = vec![0; PAGE];
        for page in scattered(pages) {
            mount.read(opened, (page * PAGE) as u64, &mut read).unwrap();
            assert!(
                read == content(page, 1),
                "page {page} of {pages}, {truths} succeed"
            );
        }
    }
}

#[test]
fn no_sync_succeeds_after_a_flush_has_failed() {
    let config = Config {
        lie: Lie::Status(1),
        truths: requests_before_writes() + 3,
        ..Config::default()
    };
    let (mut mount, fake, _memory) = mount(config, &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    write(&mut mount, opened, scattered(3));
    for _ in 0..2 {
        assert_eq!(mount.sync(opened), Err("the disk refused a request"));
    }
    assert_eq!(fake.counts().flushes, 1);
}

#[test]
fn a_writer_at_the_bound_gets_the_error_of_an_earlier_write_back() {
    let config = Config {
        lie: Lie::Status(1),
        truths: requests_before_writes() + 1,
        ..Config::default()
    };
    let (mut mount, _fake, _memory) = mount(config, &archive()).unwrap();
    let opened = open(&mut mount, Class::Large);
    // Few requests, for which no write waits.
    let last = 2 * MAX_DIRTY - 1;
    write(&mut mount, opened, 0..last);
    let last = mount.write(opened, (last * PAGE) as u64, &content(last, 1));
    assert_eq!(last, Err("the disk refused a request"));
}

#[test]
fn writes_beyond_the_end_of_a_file_and_to_closed_files_are_rejected() {
    let (mut mount, fake, _memory) = mount(Config::default(), &archive()).unwrap();
    let opened = open(&mut mount, Class::Medium);
    let bytes = file(Class::Medium).class.bytes(0);
    for (offset, length) in [
        (bytes, 1),
        (bytes - 1, 2),
        (u64::MAX, 1),
        (0, bytes as usize + 1),
    ] {
        let error = mount.write(opened, offset, &vec![1; length]).unwrap_err();
        assert!(error.contains("exceeds the file"), "{error}");
    }
    mount.close(opened);
    for result in [mount.write(opened, 0, &[1]), mount.sync(opened)] {
        assert_eq!(result, Err("the file is not open"));
    }
    assert_eq!(fake.disk()[..archive().len()], archive());
}

#[test]
fn random_lies_never_panic_a_writer() {
    let bytes = archive();
    let before = requests_before_writes();
    for seed in 1..100 {
        let config = Config {
            lie: Lie::Random,
            truths: before + seed % 40,
            seed: seed.into(),
            ..Config::default()
        };
        let (mut mount, _fake, _memory) = mount(config, &bytes).unwrap();
        let opened = open(&mut mount, Class::Large);
        for page in scattered(2 * MAX_DIRTY) {
            let _ = mount.write(opened, (page * PAGE) as u64, &content(page, 1));
        }
        let _ = mount.sync(opened);
        let _ = read_all(&mut mount, file(Class::Large), 65_536);
    }
}

/// A call.
#[derive(Clone, Debug)]
enum Call {
    Write(prop::sample::Index, usize, u8),
    Read(prop::sample::Index, usize),
    Sync,
    Empty,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let place = any::<prop::sample::Index>;
    let call = prop_oneof![
        6 => (place(), 1..400_000_usize, any::<u8>()).prop_map(|(at, length, byte)| Call::Write(at, length, byte)),
        3 => (place(), 1..400_000_usize).prop_map(|(at, length)| Call::Read(at, length)),
        1 => Just(Call::Sync),
        1 => Just(Call::Empty),
    ];
    prop::collection::vec(call, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reads return what was written last, and after a sync the whole disk has it and nothing else has changed.
    #[test]
    fn the_disk_has_what_was_written_after_a_sync(calls in calls(), polls in any::<bool>()) {
        // Larger than the cache, and no multiple of a page or a sector.
        let mut expected: Vec<u8> = (0..5_000_123_u32).map(|at| (at % 251) as u8).collect();
        let mut builder = tar::Builder::new(Vec::new());
        append(&mut builder, "before", &[1; 700]);
        append(&mut builder, "odd", &expected);
        append(&mut builder, "after", &[2; 700]);
        let mut disk = builder.into_inner().unwrap();
        let start = disk.windows(64).position(|part| part == &expected[..64]).unwrap();
        let (mut mount, fake, _memory) =
            mount(Config { polls, ..Config::default() }, &disk).unwrap();
        let opened = mount.open(c"odd").unwrap();
        for call in calls {
            match call {
                Call::Write(place, length, byte) => {
                    let at = place.index(expected.len());
                    let end = expected.len().min(at + length);
                    let bytes: Vec<_> = (at..end).map(|at| byte ^ (at % 253) as u8).collect();
                    mount.write(opened, at as u64, &bytes).unwrap();
                    expected[at..end].copy_from_slice(&bytes);
                }
                Call::Read(place, length) => {
                    let at = place.index(expected.len());
                    let mut read = vec![0; length];
                    let count = mount.read(opened, at as u64, &mut read).unwrap();
                    prop_assert!(read[..count] == expected[at..at + count]);
                }
                Call::Sync => mount.sync(opened).unwrap(),
                Call::Empty => mount.empty_cache(opened).unwrap(),
            }
        }
        mount.sync(opened).unwrap();
        disk[start..start + expected.len()].copy_from_slice(&expected);
        prop_assert!(fake.disk()[..disk.len()] == disk);
    }
}
