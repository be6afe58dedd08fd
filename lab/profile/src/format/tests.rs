use super::*;
use crate::address_space::KERNEL;
use expect_test::expect;

fn path(depth: usize, kind: StepKind, counts: Vec<(u64, u64)>) -> CallPath {
    let step = (depth > 0).then_some(CallStep {
        kind,
        site: 0x10,
        target: u64::MAX,
    });
    CallPath {
        depth,
        step,
        counts,
    }
}

#[test]
fn hash_changes_with_every_byte() {
    assert_ne!(fnv1a(b"wire"), fnv1a(b"wise"));
    assert_eq!(ready().len(), "ready ".len() + 16);
}

#[test]
fn written_windows_parse_to_the_same_windows() {
    let insn = |in_guest: bool, address: u64, unretired, is_exit_target: bool| InsnCount {
        finds_length: false,
        level: in_guest.into(),
        address,
        page: (!in_guest && !is_exit_target).then_some(address ^ 1),
        count: 7,
        unretired,
        is_exit_target,
        event: (!is_exit_target).then_some(Event::MsrWrite),
    };
    let batch = Window {
        kind: WindowKind::Batch,
        insns: vec![
            insn(false, KERNEL, 0, true),
            insn(false, u64::MAX, 3, true),
            insn(true, 0x20_0110, 0, false),
        ],
        ..Window::default()
    };
    let stage = Window {
        kind: WindowKind::Stage(Stage::Exec, Stage::VmmMain),
        insns: vec![insn(false, KERNEL, 3, false)],
        ..Window::default()
    };
    let with_paths = Window {
        kind: WindowKind::Batch,
        insns: batch.insns.clone(),
        paths: vec![
            path(0, StepKind::Call, vec![(u64::MAX, 7)]),
            path(1, StepKind::Kernel, vec![]),
            path(2, StepKind::Guest, vec![(1, 2), (0xabc, 3)]),
            path(1, StepKind::Call, vec![]),
        ],
        ..Window::default()
    };
    let all = [batch, with_paths, stage, Window::default()];
    let text: String = all.iter().map(write).collect();
    assert_eq!(read(&text).unwrap(), all);
}

#[test]
fn markers_out_of_order_are_errors() {
    let errors = ["nested\n", "window\nh 1 1\nunbegun\nwindow\n"]
        .map(|text| read(text).unwrap_err().to_string());
    expect![[r#"
        marks are nested: a batch began before the last one had ended
        marks are missing: a batch ended that had not begun"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn invalid_lines_are_quoted() {
    for text in [
        "g 1 1",
        "window\nx 1 1",
        "window\ng 1",
        "window\ng 1 1 enters",
        "window\n- 1 1",
        "window\n1 call 2 3",
        "window\nroot\n2 call 2 3",
        "window\nroot\n1 leap 2 3",
        "window\nroot\n1 call 2",
        "window\ng 1 1 uncharged",
        "window\nh 1 1 page",
        "window\nh 1 1 page here",
        "stage exec lunch",
    ] {
        let line = text.lines().last().unwrap();
        let error = read(text).unwrap_err();
        assert_eq!(error, FormatError::Line(line.to_owned()));
    }
}
