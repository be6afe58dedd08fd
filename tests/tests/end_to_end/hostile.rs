//! A guest of machine code that accesses ports, device registers, addresses without memory, CPU leaves and hypercalls at
//! random, in trapline-vmm on KVM and on NOVA. The VMM serves all of it, and reports the end that the guest asks for.

use std::time::Duration;
use trapline_abi::platform::{
    COM1, EXIT, EXITS_LOW, EXIT_DONE, FRAME, HYPERCALL, POPULATE, TICKER, VIRTIO_MMIO,
};
use trapline_abi::Op;
use trapline_environments::{boot, GuestImage, Limits};
use trapline_model::EnvironmentId;
use trapline_monitor::boot::test_image::{TestImage, BASE};
use trapline_tests::boots::{planned, ready};
use trapline_tests::settings;

/// Rounds of accesses.
const ROUNDS: u32 = 2_000;
const ROUNDS_ON_XEN: u32 = 20;

/// Addresses without memory.
const HOLE: u32 = 0x9000_0000;

/// Type of the note with the PVH entry, its owner, and the entry itself.
const PVH: (&str, u32, [u8; 8]) = ("Xen", 18, BASE.to_le_bytes());

// Machine code that is the same in 32-bit and in 64-bit mode. `esi` is the random number, `ebp` counts rounds.
const VALUE: &[u8] = &[0x89, 0xf0]; // mov eax, esi
const NEXT: &[u8] = &[
    0x89, 0xf0, 0xc1, 0xe0, 0x0d, 0x31, 0xc6, // xor esi, esi << 13
    0x89, 0xf0, 0xc1, 0xe8, 0x11, 0x31, 0xc6, // xor esi, esi >> 17
    0x89, 0xf0, 0xc1, 0xe0, 0x05, 0x31, 0xc6, // xor esi, esi << 5
];
/// `out` and `in` of 1, 2 and 4 bytes.
const PORT_ACCESSES: &[u8] = &[0xee, 0x66, 0xef, 0xef, 0xec, 0x66, 0xed, 0xed];
/// `mov` of 4, 1 and 2 bytes, `add`, `xchg` and `or` on memory at `edi`.
const MEMORY_ACCESSES: &[u8] = &[
    0x89, 0x07, 0x8b, 0x07, 0x88, 0x07, 0x8a, 0x07, 0x66, 0x89, 0x07, 0x66, 0x8b, 0x07, 0x01, 0x07,
    0x87, 0x07, 0x80, 0x0f, 0x01,
];
const CPUID: &[u8] = &[0x0f, 0xa2];
const VMMCALL: &[u8] = &[0x0f, 0x01, 0xd9];

/// Sets `edx` to a random port from `first` on.
fn random_port(first: u32, mask: u32) -> Vec<u8> {
    let (first, mask) = (first.to_le_bytes(), mask.to_le_bytes());
    // mov edx, esi; and edx, mask; add edx, first
    [&[0x89, 0xf2, 0x81, 0xe2], &mask[..], &[0x81, 0xc2], &first].concat()
}

/// Sets `edi` to a random address from `first` on.
fn random_address(first: u32, mask: u32) -> Vec<u8> {
    let (first, mask) = (first.to_le_bytes(), mask.to_le_bytes());
    // mov edi, esi; and edi, mask; add edi, first
    [&[0x89, 0xf7, 0x81, 0xe7], &mask[..], &[0x81, 0xc7], &first].concat()
}

/// Writes a random value to a port of the VMM, and reads it.
fn own_port(port: u16) -> Vec<u8> {
    // mov edx, port; mov eax, esi; out dx, eax; in eax, dx
    let port = u32::from(port).to_le_bytes();
    [&[0xba], &port[..], VALUE, &[0xef, 0xed]].concat()
}

fn round() -> Vec<u8> {
    let own = [FRAME, TICKER, POPULATE, HYPERCALL, EXITS_LOW].map(own_port);
    let pieces: [&[u8]; 12] = [
        NEXT,
        &random_port(0x800, 0x7ff),
        VALUE,
        PORT_ACCESSES,
        &random_port(COM1.into(), 7),
        &[0xee, 0xec],
        &own.concat(),
        &[&random_address(VIRTIO_MMIO as u32, 0x3fff), MEMORY_ACCESSES].concat(),
        &[&random_address(HOLE, 0xf_ffff), MEMORY_ACCESSES].concat(),
        &[VALUE, CPUID].concat(),
        &[VALUE, VMMCALL].concat(),
        &[0x83, 0xed, 0x01], // sub ebp, 1
    ];
    pieces.concat()
}

fn code(rounds: u32) -> Vec<u8> {
    let round = round();
    let back = -(round.len() as i32 + 6);
    // mov esi, 1; mov ebp, rounds
    let start = [&[0xbe, 1, 0, 0, 0, 0xbd][..], &rounds.to_le_bytes()].concat();
    let repeat = [&[0x0f, 0x85][..], &back.to_le_bytes()].concat();
    // mov edx, EXIT; mov eax, EXIT_DONE; out dx, eax
    let port = u32::from(EXIT).to_le_bytes();
    let end = [
        &[0xba],
        &port[..],
        &[0xb8],
        &EXIT_DONE.to_le_bytes(),
        &[0xef],
    ]
    .concat();
    [start, round, repeat, end].concat()
}

/// Checks that the VMM of `id` serves the guest until its end.
#[track_caller]
fn assert_served(id: EnvironmentId, rounds: u32) {
    let settings = settings();
    let Some(environment) = ready(id, &settings) else {
        return;
    };
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("hostile");
    let mut image = TestImage::direct(&code(rounds));
    let (owner, kind, entry) = PVH;
    image.notes.push((owner, kind, entry.to_vec()));
    std::fs::write(&path, image.bytes()).expect("directory is writable");
    let image = GuestImage {
        path,
        sha256: String::new(),
    };
    let plan = planned(id, Op::Getpid);
    let limits = Limits::timeout(Duration::from_secs(600));
    let booted = boot(environment.as_ref(), &image, &plan, &limits, &mut |_| ());
    let booted = booted.unwrap_or_else(|error| panic!("{id}: {error}"));
    let end = booted.error.map(|error| error.to_string());
    let expected = "guest ended without a Done record";
    assert!(
        end.as_ref()
            .is_some_and(|end| end.starts_with(expected) && !end.contains("trapline-nova:")),
        "{id}: {end:?}"
    );
}

#[test]
fn random_accesses_are_served_on_kvm_and_on_nova() {
    for id in [
        EnvironmentId::SIM_KVM,
        EnvironmentId::SIM_KVM_USER_APIC,
        EnvironmentId::SIM_NOVA,
        EnvironmentId::SIM_VMX_NOVA,
    ] {
        assert_served(id, ROUNDS);
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn random_accesses_of_a_xen_domain_are_served() {
    assert_served(EnvironmentId::SIM_XEN_TRAPLINE, ROUNDS_ON_XEN);
}
