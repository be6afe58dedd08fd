use super::*;
use crate::format::InsnCount;

const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn symbols() -> Symbols {
    let mut symbols = Symbols::default();
    symbols.add_kallsyms(
        AddressSpace::Kernel,
        "kernel",
        "ffffffff81000000 T svm_vcpu_run\t[kvm_amd]\nffffffff81000100 T asm_exc_page_fault\n\
         ffffffff81000200 T asm_sysvec_apic_timer_interrupt\nffffffff81000300 T end\n",
    );
    symbols.add_range(AddressSpace::User, 0x1000, 0x2000, "vmm");
    symbols.add_range(AddressSpace::Guest, 0x1000, 0x2000, "guest");
    symbols
}

fn insn(in_guest: bool, address: u64, count: u64) -> InsnCount {
    InsnCount {
        level: in_guest.into(),
        address,
        count,
        ..InsnCount::default()
    }
}

/// Returns a window of 10 operations: each has 3 instructions of the guest, one of them
/// intercepted, 20 of the kernel and 7 of the VMM; and one fault in all.
fn window() -> Window {
    let exit = InsnCount {
        unretired: 10,
        is_exit_target: true,
        ..insn(false, KERNEL + 8, 10)
    };
    let fault = InsnCount {
        unretired: 1,
        ..insn(false, KERNEL + 0x100, 1)
    };
    Window {
        insns: vec![
            insn(true, 0x1000, 30),
            exit,
            insn(false, KERNEL + 16, 190),
            fault,
            insn(false, 0x1000, 70),
        ],
        ..Window::default()
    }
}

const BATCH: Batch = Batch {
    ticks: 5 + 301 - 10 - 1,
    count: 10,
    clock_cost: 7,
    loop_cost: 2048,
};

const SLOWER: Batch = Batch {
    ticks: BATCH.ticks + 4,
    ..BATCH
};

fn profile(batch: &Batch, layout: AddressLayout) -> Profile {
    Profile::new(batch, &window(), &symbols(), layout, 5)
}

#[track_caller]
fn assert_adds_up(profile: &Profile) {
    let sum: f64 = profile.items.iter().map(|item| item.insn).sum();
    assert!((sum - profile.total).abs() < ROUNDING, "{profile:?}");
}

#[test]
fn items_add_up_to_the_figure() {
    let profile = profile(&BATCH, AddressLayout::Linux);
    let events = (profile.exits, profile.faults, profile.residual);
    assert_eq!(events, (10, 1, 0));
    assert_eq!(profile.total, 28.8 - 2.0);
    assert_adds_up(&profile);
    let first = &profile.items[0];
    assert_eq!(first.function.name, "svm_vcpu_run");
    assert_eq!(first.insn, 20.0);
    assert_eq!(profile.components()[..2], [("kvm_amd", 20.0), ("vmm", 7.0)]);
}

#[test]
fn unexplained_ticks_are_the_residual() {
    let profile = profile(&SLOWER, AddressLayout::Linux);
    assert_eq!(profile.residual, 4);
    let last = profile.items.last().unwrap();
    assert_eq!((last.function.name.as_str(), last.insn), ("residual", 0.4));
}

#[test]
fn batches_and_windows_are_merged() {
    let merged = Batch::merge(&[BATCH, SLOWER]).unwrap();
    let windows = Window::merge(&[window(), window()]);
    let profile = Profile::new(&merged, &windows, &symbols(), AddressLayout::Linux, 2 * 5);
    assert_eq!((profile.exits, profile.residual), (20, 4));
    assert_eq!(profile.total, (BATCH.figure() + SLOWER.figure()) / 2.0);
    assert_adds_up(&profile);
    assert_eq!(Batch::merge(&[]), None);
}

#[test]
fn bare_machine_executes_only_the_image() {
    let profile = profile(&BATCH, AddressLayout::Bare);
    let mut functions = profile.items[..2].iter().map(|item| &item.function);
    assert!(functions.all(|function| function.component == "guest"));
    assert_eq!(profile.faults, 0);
}

#[test]
fn largest_change_comes_first() {
    let before = profile(&BATCH, AddressLayout::Linux);
    let mut after = before.clone();
    after.items[1].insn += 1.0;
    after.items[0].insn -= 20.0;
    let changes = before.changes(&after);
    let differences: Vec<_> = changes.iter().map(Change::difference).collect();
    assert_eq!(differences, [-20.0, 1.0]);
}

#[test]
fn page_fault_of_an_image_process_does_not_retire() {
    let mut symbols = symbols();
    let entry = "0000000000001800 T trapline_page_fault_entry\n0000000000001900 T end\n";
    symbols.add_kallsyms(AddressSpace::Guest, "guest", entry);
    for (layout, level) in [(AddressLayout::Linux, 1), (AddressLayout::Bare, 0)] {
        let mut window = window();
        window.insns.push(InsnCount {
            level,
            address: 0x1800,
            count: 4,
            ..InsnCount::default()
        });
        let faulted = Profile::new(&BATCH, &window, &symbols, layout, 5);
        let before = profile(&BATCH, layout);
        assert_eq!(faulted.faults, before.faults + 4, "{layout:?}");
        assert_eq!(
            faulted.residual, before.residual,
            "4 counted, 4 not retired"
        );
        window.charges_faults = true;
        let charged = Profile::new(&BATCH, &window, &symbols, layout, 5);
        assert_eq!(
            charged.residual,
            before.residual - 4,
            "4 counted, none in the ticks"
        );
    }
}
