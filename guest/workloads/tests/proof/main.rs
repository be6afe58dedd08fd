//! Wrong work is a failure, never a figure.
//!
//! A fake kernel, which is correct except for one configured defect, runs the workloads. Each
//! defect must be detected.

mod fake;

use fake::{Defect, Fake, EXPIRIES, SLOW};
use trapline_abi::arch::NATIVE;
use trapline_abi::Op;

#[test]
fn every_operation_is_run_and_succeeds() {
    for op in Op::ALL
        .into_iter()
        .filter(|op| op.exists_on(NATIVE) && op.workload().name() != "boot")
        // Each takes a gibibyte.
        .filter(|op| !op.name().contains("-18"))
    {
        let name = format!("{}/{}", op.workload().name(), op.name());
        Fake::assert_result(Defect::None, &name, "End");
    }
}

/// Defects with an operation that detects each.
const DETECTED: &[(Defect, &str)] = &[
    (Defect::ForgetScratch, "exits/port-out"),
    (Defect::ForgetScratch, "exits/port-in"),
    (Defect::WrongMagic, "exits/mmio-read"),
    (Defect::IgnoreMmio, "exits/mmio-write"),
    (Defect::ChangePci, "exits/mmio-read"),
    (Defect::IgnorePci, "exits/mmio-write"),
    (Defect::StopDevice, "exits/doorbell"),
    (Defect::AcceptHypercall, "exits/hypercall"),
    (Defect::LoseInterrupt, "exits/self-ipi"),
    (Defect::ForgetScratch, "exits/port-emulated"),
    (Defect::ChangeAnswer, "exits/port-emulated"),
    (Defect::ChangeVersion, "exits/xen-hypercall"),
    (Defect::LoseEvent, "exits/event-channel"),
    (Defect::ChangeAnswer, "exits/msr-read"),
    (Defect::WrongMagic, "exits/msr-read"),
    (Defect::UsedRegion, "populate/attach-0"),
    (Defect::UsedRegion, "populate/touch-9-2m"),
    (Defect::ChangePid, "basic/getpid"),
    (Defect::NeverSwitch, "basic/yield"),
    (Defect::WakeEarly, "exits/timer-wake"),
    (Defect::NoMemory, "basic/malloc-1m"),
    (Defect::NoMemory, "basic/first-touch-4k"),
    (Defect::NoMemory, "basic/first-touch-2m"),
    (Defect::NoMemory, "basic/calloc-64k"),
    (Defect::UsedPages, "basic/calloc-64k"),
    (Defect::UsedMemory, "basic/calloc-1m"),
    (Defect::NoMemory, "irq/own-timer"),
    (Defect::WrongStatus, "system/fork"),
    (Defect::WrongStatus, "system/exec"),
    (Defect::UsedPages, "system/page-fault"),
    (Defect::NoMemory, "system/page-fault"),
    (Defect::ShareForEver, "system/page-fault-cow"),
    (Defect::WrongAnswer, "system/context-switch"),
    (Defect::NoSwitch, "system/context-switch"),
    (Defect::LosePipe, "system/pipe"),
    (Defect::WrongPages, "system/mmap"),
    (Defect::KeepMapping, "system/mmap"),
    (Defect::ChangePid, "system/syscall"),
    (Defect::ShortWrite, "basic/null-io"),
    (Defect::FullNullDevice, "basic/null-io"),
    (Defect::ShortWrite, "system/null-io"),
    (Defect::FullNullDevice, "system/null-io"),
    (Defect::IgnoreProtection, "system/page-table-update"),
    (Defect::WrongStatus, "system/make"),
    (Defect::WrongAnswer, "system/make"),
    (Defect::WrongUnit, "block/read-4k-1"),
    (Defect::NoRequest, "block/write-1m-32"),
    (Defect::NoMemory, "block/read-4k-32"),
    (Defect::NoMemory, "files/open"),
    (Defect::WrongContent, "files/read-1k"),
    (Defect::WrongContent, "files/read-64k"),
    (Defect::WrongContent, "files/read-4k-cold"),
    (Defect::WrongContent, "files/read-large"),
    (Defect::ShortRead, "files/read-1m-warm"),
    (Defect::KeepCache, "files/read-4k-cold"),
    (Defect::KeepCache, "files/read-1m-cold"),
    (Defect::KeepCache, "files/read-large"),
    (Defect::ForgetCache, "files/read-1k"),
    (Defect::ForgetCache, "files/read-4k-warm"),
    (Defect::LoseWrite, "files/write-4k-warm"),
    (Defect::LoseWrite, "files/write-4k-fsync"),
    (Defect::LoseWrite, "files/write-large"),
    (Defect::WriteThrough, "files/write-4k-warm"),
    (Defect::IgnoreSync, "files/write-4k-fsync"),
    (Defect::IgnoreSync, "files/write-large"),
    (Defect::ForgetCache, "files/write-4k-warm"),
    (Defect::ForgetCache, "files/write-4k-fsync"),
    (Defect::KeepCache, "files/write-4k-fsync"),
    (Defect::KeepCache, "files/write-large"),
    (Defect::WrongAnswer, "net/tcp-ping"),
    (Defect::WrongAnswer, "net/sendfile"),
    (Defect::WrongAnswer, "net/udp-64"),
    (Defect::WrongAnswer, "net/packet-64"),
    (Defect::WrongAnswer, "net/packet-ping"),
    (Defect::KeepTranslation, "smp/shootdown"),
    (Defect::KeepMapping, "smp/shootdown"),
    (Defect::LoseInterrupt, "smp/ipi"),
    (Defect::NeverStart, "smp/start"),
    (Defect::NeverTick, "irq/own-timer"),
    (Defect::NeverTick, "irq/count-timer"),
    (Defect::NeverTick, "irq/periodic-timer"),
    (Defect::NoMemory, "irq/periodic-timer"),
    (Defect::NeverTick, "irq/host-timer"),
];

#[test]
fn every_defect_is_detected() {
    for &(defect, name) in DETECTED {
        Fake::assert_result(defect, name, "Fail");
    }
}

#[test]
fn registers_on_pci_are_measured() {
    Fake::assert_result(Defect::OnPci, "exits/mmio-read", "End");
    Fake::assert_result(Defect::OnPci, "exits/mmio-write", "End");
}

/// By 32 bits on virtio-mmio, by 16 on PCI.
#[test]
fn notifications_ring_the_doorbell() {
    for defect in [Defect::None, Defect::OnPci] {
        let mut fake = Fake::new(defect);
        fake.measure("exits/doorbell");
        let samples = fake.records.iter().filter_map(|record| {
            let count = record
                .split("op: Doorbell")
                .nth(1)?
                .split("count: ")
                .nth(1)?;
            count.trim_end_matches([' ', '}']).parse::<u64>().ok()
        });
        let measured: u64 = samples.sum();
        assert!(
            measured > 0 && fake.rings >= measured,
            "{:#?}",
            fake.records
        );
    }
}

#[test]
fn a_port_without_a_device_is_measured() {
    Fake::assert_result(Defect::NoDevice, "exits/port-emulated", "End");
    Fake::assert_result(Defect::NoDevice, "exits/port-in", "Fail");
}

#[test]
fn unsupported_operations_are_skipped_with_the_reason_of_the_system() {
    Fake::assert_result(Defect::NoSleep, "exits/timer-wake", "Skip");
    Fake::assert_result(Defect::NoSleep, "exits/hypercall", "Skip");
    Fake::assert_result(Defect::NoSleep, "irq/host-timer", "Skip");
    Fake::assert_result(Defect::NoMemory, "stream/copy", "Skip");
    Fake::assert_result(Defect::NoProcesses, "system/fork", "Skip");
    Fake::assert_result(Defect::NoNullDevice, "basic/null-io", "Skip");
    Fake::assert_result(Defect::NoNullDevice, "system/null-io", "Skip");
    Fake::assert_result(Defect::NoDisk, "block/read-4k-1", "Skip");
    Fake::assert_result(Defect::NoFiles, "files/open", "Skip");
    Fake::assert_result(Defect::NeverCold, "files/read-1m-cold", "Skip");
    Fake::assert_result(Defect::NeverCold, "files/read-1m-warm", "End");
    Fake::assert_result(Defect::NoNetwork, "net/tcp-send", "Skip");
    Fake::assert_result(Defect::NoNetwork, "net/udp-1472", "Skip");
    Fake::assert_result(Defect::NoNetwork, "net/packet-1500", "Skip");
    Fake::assert_result(Defect::NoProcesses, "system/page-fault", "Skip");
    Fake::assert_result(Defect::NoSecondCpu, "ipc/item", "Skip");
    Fake::assert_result(Defect::NoThread, "ipc/wake", "Skip");
    Fake::assert_result(Defect::NoMemory, "smp/shootdown", "Skip");
    for op in [
        "smp/pairs",
        "smp/threads",
        "smp/shared",
        "smp/triad",
        "smp/shootdown",
        "smp/ipi",
        "smp/start",
    ] {
        Fake::assert_result(Defect::NoSecondCpu, op, "Skip");
        Fake::assert_result(Defect::NoThread, op, "Skip");
    }
    for defect in [Defect::NoRegion, Defect::ShortRegion, Defect::KeepRegion] {
        Fake::assert_result(defect, "populate/attach-3", "Skip");
        Fake::assert_result(defect, "populate/touch-9-2m-prefault", "Skip");
    }
    let records = Fake::run(Defect::NoSleep, "exits/timer-wake");
    assert!(
        records
            .iter()
            .any(|record| record.contains("this machine cannot sleep")),
        "{records:#?}"
    );
}

#[test]
fn the_checksum_depends_on_the_work_of_a_batch() {
    let check = |names: &str| {
        let records = Fake::run(Defect::None, names);
        let end = records
            .iter()
            .find(|record| record.starts_with("End"))
            .expect("an end")
            .clone();
        end.split("check: ")
            .nth(1)
            .expect("a checksum")
            .split(',')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(check("stream/triad"), check("stream/triad"));
    assert_ne!(check("stream/triad"), check("stream/add"));
    // Pages; a budget decides the number of batches.
    assert_eq!(check("basic/first-touch-4k"), "256");
    assert_eq!(check("basic/first-touch-2m"), "1");
}

#[test]
fn the_counts_of_the_page_cache_are_printed() {
    let records = Fake::run(Defect::None, "files/read-1m-cold,files/read-1m-warm");
    for expected in [
        "trapline-files-read-1m-warm 768 pages needed, 768 hits, 0 misses, 0 read from the disk, 0 written to it",
        "trapline-files-read-1m-cold 768 pages needed, 0 hits, 768 misses, 768 read from the disk, 0 written to it",
    ] {
        assert!(
            records.iter().any(|record| record == expected),
            "{records:#?}"
        );
    }
}

#[test]
fn stages_are_sent_after_the_first_sample() {
    let records = Fake::run(Defect::None, "boot");
    let place = |what: &str| records.iter().position(|record| record.contains(what));
    assert_eq!(place("Hello"), Some(0));
    assert!(place("Sample") < place("FirstSample"), "{records:#?}");
    assert!(place("FirstSample") < place("GuestEntry"), "{records:#?}");
    assert!(place("GuestExit").is_some(), "{records:#?}");
    assert_eq!(records.last().map(String::as_str), Some("Done"));
}

fn recorded_expiries(defect: Defect, op: &str) -> Vec<u64> {
    let mut fake = Fake::new(defect);
    fake.measure(op);
    fake.expiries
}

#[test]
fn an_expiry_during_the_handling_of_another_is_missing() {
    assert_missing("irq/own-timer", 3);
    assert_missing("irq/count-timer", 3);
    // Its last expiry is pending meanwhile.
    assert_missing("irq/periodic-timer", 2);
}

#[track_caller]
fn assert_missing(op: &str, apart: u64) {
    let recorded = recorded_expiries(Defect::SlowHandler, op);
    let is_apart =
        |pair: &[u64]| pair[1] >= pair[0] + apart || (pair[0] < 1024) == (pair[1] >= 1024);
    assert!(recorded.windows(2).all(is_apart), "{recorded:?}");
    // On a busy machine the first expiries of a window may pass before it begins.
    assert!(recorded.iter().any(|expiry| *expiry >= 1024));
    assert!(recorded.iter().all(|expiry| *expiry < EXPIRIES));
    let recorded = recorded_expiries(Defect::None, op);
    assert!(
        recorded.windows(2).all(|pair| pair[0] < pair[1]),
        "{recorded:?}"
    );
}

/// Returns the values of `field` in all samples.
fn in_samples(records: &[String], field: &str) -> Vec<u64> {
    let samples = records.iter().filter(|record| record.starts_with("Sample"));
    let number = |sample: &String| {
        let behind = sample.split(&format!("{field}: ")).nth(1)?;
        behind.split([',', ' ']).next()?.parse().ok()
    };
    samples.filter_map(number).collect()
}

#[test]
fn one_slow_batch_does_not_end_the_growth_of_repetitions() {
    let records = Fake::run(Defect::SlowFirst, "basic/yield");
    let counts = in_samples(&records, "count");
    assert_eq!(counts.len(), 3, "{records:#?}");
    // Two switches a repetition.
    assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
}

#[test]
fn work_while_idle_is_reported_without_that_before_the_warm_up() {
    let records = Fake::run(Defect::None, "basic/calloc-1m");
    let idle = records.iter().filter(|record| record.starts_with("Idle"));
    let idle: Vec<_> = idle.collect();
    assert_eq!(in_samples(&records, "count"), [2], "{records:#?}");
    assert_eq!(idle.len(), 1, "{records:#?}");
    assert!(idle[0].ends_with("bytes: 2097152 }"), "{records:#?}");
}

#[test]
fn warm_up_sleeps_are_not_recorded() {
    let records = Fake::run(Defect::SlowFirst, "exits/timer-wake");
    let (start, end) = (in_samples(&records, "start"), in_samples(&records, "end"));
    assert_eq!(start.len(), 3, "{records:#?}");
    let late = start.iter().zip(&end).map(|(start, end)| end - start);
    assert!(late.max() < Some(SLOW), "{records:#?}");
}

#[test]
fn interrupts_are_disabled_before_the_first_operation_and_after_each_that_uses_them() {
    let quiesced = |names: &str| {
        let mut fake = Fake::new(Defect::None);
        fake.measure(names);
        fake.quiesced
    };
    assert_eq!(quiesced("boot"), 0, "a boot is measured as it is");
    assert_eq!(quiesced("basic/getpid"), 1);
    assert_eq!(quiesced("exits/self-ipi"), 2);
    assert_eq!(quiesced("exits/timer-wake"), 2);
    assert_eq!(quiesced("irq"), 5);
}
