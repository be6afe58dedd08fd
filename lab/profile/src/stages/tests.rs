use super::*;
use crate::address_space::AddressSpace;
use crate::format::InsnCount;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const LAYOUT: AddressLayout = AddressLayout::Linux;

fn symbols() -> Symbols {
    let mut symbols = Symbols::default();
    symbols.add_kallsyms(
        AddressSpace::Kernel,
        "kernel",
        "ffffffff81000000 T do_execveat_common\nffffffff81000100 T asm_exc_page_fault\n\
         ffffffff81000200 T asm_sysvec_apic_timer_interrupt\nffffffff81000300 T end\n",
    );
    symbols.add_range(AddressSpace::User, 0x1000, 0x2000, "vmm");
    symbols
}

fn insn(address: u64, count: u64, unretired: u64) -> InsnCount {
    InsnCount {
        address,
        count,
        unretired,
        ..InsnCount::default()
    }
}

fn window(from: Stage, to: Stage, insns: &[InsnCount]) -> Window {
    Window {
        kind: WindowKind::Stage(from, to),
        insns: insns.to_vec(),
        ..Window::default()
    }
}

/// Returns 100 kernel instructions and 3 faults, one of them of a fetch; then an interrupt after
/// an unknown instruction, and 40 instructions of the VMM.
fn windows() -> Vec<Window> {
    let exec = [insn(KERNEL, 100, 0), insn(KERNEL + 0x100, 3, 2)];
    let main = [insn(0x1000, 40, 0), insn(KERNEL + 0x200, 1, 1)];
    vec![
        Window::default(),
        window(Stage::Exec, Stage::VmmMain, &exec),
        window(Stage::VmmMain, Stage::Reaped, &main),
    ]
}

fn profile_until(end: Stage, timestamps: &[(Stage, u64)]) -> Result<Profile, StageError> {
    let launches = group_by_launch(&windows());
    let launch = StagedLaunch {
        windows: &launches[0],
        reached: &timestamps.iter().copied().collect(),
    };
    profile(&[launch], end, &symbols(), LAYOUT)
}

const TIMESTAMPS: [(Stage, u64); 3] = [
    (Stage::Exec, 0),
    (Stage::VmmMain, 101),
    (Stage::Reaped, 101 + 41 + 5),
];

#[test]
fn only_data_faults_are_subtracted() {
    let all = profile_until(Stage::Reaped, &TIMESTAMPS).unwrap();
    let stage = |stage: &StageProfile| {
        let Profile {
            total, residual, ..
        } = stage.profile;
        (stage.from, stage.to, total, residual)
    };
    let stages: Vec<_> = all.stages.iter().map(stage).collect();
    let expected = [
        (Stage::Exec, Stage::VmmMain, 101.0, 0),
        (Stage::VmmMain, Stage::Reaped, 46.0, 5),
    ];
    assert_eq!(stages, expected);
    assert_eq!((all.total, all.residual, all.faults), (147.0, 5, 3));
    let sum: f64 = all.items.iter().map(|item| item.insn).sum();
    assert_eq!(sum, all.total);
}

#[test]
fn figure_is_the_mean_over_launches() {
    let launches = group_by_launch(&windows());
    let slower = TIMESTAMPS.map(|(stage, at)| (stage, if at == 147 { 149 } else { at }));
    let reached = [TIMESTAMPS.into(), slower.into()];
    let both = reached.each_ref().map(|reached| StagedLaunch {
        windows: &launches[0],
        reached,
    });
    let all = profile(&both, Stage::Reaped, &symbols(), LAYOUT).unwrap();
    assert_eq!((all.total, all.residual, all.operations), (148.0, 12, 2));
    let stages: Vec<_> = all.stages.iter().map(|stage| stage.profile.total).collect();
    assert_eq!(stages, [101.0, 47.0]);
    assert_eq!(all.counted, 2 * 144);
}

#[test]
fn estimated_timestamps_include_the_last_halt() {
    let estimate = |windows: &[Window], took| {
        let reached = estimate_timestamps(windows, took, &symbols(), LAYOUT);
        reached.values().copied().collect::<Vec<_>>()
    };
    let mut windows = windows().split_off(1);
    assert_eq!(estimate(&windows, 101 + 41), [0, 101, 142]);
    assert_eq!(estimate(&windows, 101 + 41 + 5), [0, 101, 147]);
    windows[0].insns[0].event = Some(Event::Halt);
    assert_eq!(estimate(&windows, 101 + 41 + 5), [0, 106, 147]);
}

#[test]
fn profile_ends_at_the_requested_stage() {
    let all = profile_until(Stage::VmmMain, &TIMESTAMPS).unwrap();
    assert_eq!((all.total, all.stages.len()), (101.0, 1));
    let error = profile_until(Stage::GuestMain, &TIMESTAMPS).unwrap_err();
    assert_eq!(error, StageError::NoMarker("guest-main"));
    let error = profile_until(Stage::Reaped, &TIMESTAMPS[..2]).unwrap_err();
    assert_eq!(error, StageError::NoTimestamp("reaped"));
}
