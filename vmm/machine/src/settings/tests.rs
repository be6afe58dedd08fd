use super::*;
use crate::disk::Kind;

fn parsed(words: &[&str]) -> Result<Request, String> {
    parse(Parser::from_args(words)).map_err(|failure| failure.to_string())
}

fn run(words: &[&str]) -> VmConfig {
    match parsed(words) {
        Ok(Request::Run(settings)) => *settings,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[expect(clippy::too_many_lines, reason = "a table of command lines")]
#[test]
fn every_option_has_its_effect() {
    let settings = run(&[
        "--image=k",
        "--memory",
        "1G",
        "--pages",
        "2m",
        "--prefault=whole",
        "--populate=steps",
        "--cpus",
        "1",
        "--cmdline",
        "a b",
        "--ring",
        "3",
        "--entry",
        "pvh",
        "--events",
        "7",
        "--serial=buffered",
        "--ticker",
        "--halt-in-guest",
        "--seconds=90",
        "--user=7:8",
        "--chroot=/jail",
        "--no-sandbox",
    ]);
    let wanted = VmConfig {
        backend: Backend::Kvm,
        crossing: Crossing::Auto,
        guest: Guest::Image,
        image: "k".into(),
        initrd: None,
        disks: Vec::new(),
        cpus: 1,
        memory: 1 << 30,
        pages: Some(Pages::Huge),
        prefault: Some(Populate::Whole),
        command_line: "a b".into(),
        net: Vec::new(),
        placement: Placement::Free,
        api: None,
        vsock: None,
        ring: Some(3),
        entry: EntryMode::Pvh,
        events: Some(7),
        serial: SerialMode::Buffered,
        ticker: true,
        halt_in_guest: true,
        paravirtual_eoi: true,
        seconds: Some(90),
        populate: Some(Populate::Steps),
        user: User::parse("7:8"),
        chroot: Some("/jail".into()),
        sandbox: false,
    };
    assert_eq!(settings, wanted);
    let linux = run(&["--kernel", "k", "--initrd=i", "--cpus", "8"]);
    assert_eq!((linux.guest, linux.cpus), (Guest::Linux, 8));
    assert_eq!(linux.initrd, Some("i".into()));
    assert!(linux.paravirtual_eoi && !run(&["--kernel", "k", "--no-pv-eoi"]).paravirtual_eoi);
    let placed = run(&["--kernel", "k", "--pin=disjoint", "--api", "a"]);
    assert_eq!(placed.placement, Placement::Disjoint);
    assert_eq!(placed.api, Some("a".into()));
    let connected = run(&["--kernel=k", "--net=tap=a", "--net", "fd=3"]);
    assert_eq!(connected.net.len(), 2);
    let connected = run(&["--kernel=k", "--vsock=cid=9,path=p"]);
    assert_eq!(connected.vsock.map(|spec| spec.cid), Some(9));
    let plain = run(&["--image", "k"]);
    assert!(!plain.halt_in_guest);
    assert!(plain.sandbox && !plain.ticker && plain.memory == 64 << 20 && plain.ring.is_none());
    assert!(plain.pages.is_none() && plain.prefault.is_none() && plain.populate.is_none());
    assert_eq!(plain.role(), Role::Vcpu);
    assert_eq!(settings.role(), Role::VcpuWithBoth);
    assert_eq!(
        run(&["--image=k", "--populate=whole"]).role(),
        Role::VcpuWithMemory
    );
}

#[test]
fn disks_keep_command_line_order() {
    let words = [
        "--disk",
        "a",
        "--disk=b,ro,direct,engine=pool",
        "--disk=c,engine=uring",
    ];
    let disks = run(&[&["--kernel", "k"][..], &words].concat()).disks;
    let plain = |path: &str| DiskConfig {
        path: path.into(),
        ..DiskConfig::default()
    };
    let second = DiskConfig {
        read_only: true,
        direct: true,
        engine: Some(Kind::Pool),
        ..plain("b")
    };
    let third = DiskConfig {
        engine: Some(Kind::Uring),
        ..plain("c")
    };
    assert_eq!(disks, [plain("a"), second, third]);
}

#[expect(clippy::too_many_lines, reason = "a table of command lines")]
#[test]
fn usage_errors_name_the_option() {
    for (words, output) in [
        (&["--memory", "64M"][..], "--image or --kernel is required"),
        (&["--image"], "image"),
        (
            &["--image", "k", "--memory", "lots"],
            "--memory lots: expected a size",
        ),
        (
            &["--image", "k", "--memory", "99999999999G"],
            "expected a size",
        ),
        (&["--image", "k", "--memory", ""], "expected a size"),
        (&["--image", "k", "--cpus", "2"], "requires --kernel"),
        (&["--kernel", "k", "--cpus", "9"], "a number from 1 to 8"),
        (&["--kernel", "k", "--image", "i"], "may be given once"),
        (&["--image", "k", "--initrd", "i"], "requires --kernel"),
        (
            &["--image", "k", "--disk", "d", "--disk", "e"],
            "several --disk require --kernel",
        ),
        (
            &["--kernel", "k", "--disk", "d,rw"],
            "--disk d,rw: expected FILE[,ro]",
        ),
        (&["--kernel", "k", "--disk", ",ro"], "expected FILE"),
        (
            &["--kernel", "k", "--disk", "d,engine=aio"],
            "engine=uring|pool",
        ),
        (&["--kernel", "k", "--ring", "0"], "requires --image"),
        (&["--kernel", "k", "--entry", "pvh"], "requires --image"),
        (&["--kernel", "k", "--ticker"], "requires --image"),
        (&["--kernel", "k", "--populate=whole"], "requires --image"),
        (&["--kernel", "k", "--halt-in-guest"], "requires --image"),
        (&["--image", "k", "--no-pv-eoi"], "requires --kernel"),
        (&["--kernel", "k", "--net", "bridge=b"], "tap=NAME or fd=N"),
        (&["--image", "k", "--net", "tap=t"], "requires --kernel"),
        (
            &["--kernel", "k", "--pin", "vcpu0"],
            "same, disjoint, or a list",
        ),
        (&["--image", "k", "--pin", "same"], "requires --kernel"),
        (&["--image", "k", "--api", "a"], "requires --kernel"),
        (
            &["--kernel", "k", "--vsock", "cid=2,path=p"],
            "N of 3 or more",
        ),
        (
            &["--image", "k", "--vsock", "cid=3,path=p"],
            "requires --kernel",
        ),
        (
            &["--kernel=k", "--vsock=cid=3,path=p", "--vsock=cid=3,path=p"],
            "given once",
        ),
        (
            &["--kernel=k", "--chroot=d", "--vsock=cid=3,path=p"],
            "add ',in' to --vsock",
        ),
        (&["--kernel=k", "--pin=disk9=0"], "no thread disk9"),
        (
            &["--kernel=k", "--disk=d", "--pin=disk1=0"],
            "no thread disk1",
        ),
        (&["--kernel=k", "--pin=vcpu1=0"], "no thread vcpu1"),
        (&["--kernel=k", "--pin=vsock=0"], "no thread vsock"),
        (&["--image", "k", "--user", "root"], "UID:GID, both above 0"),
        (&["--image", "k", "--cpus", "-1"], "a number from 1 to 8"),
        (&["--image", "k", "--memory=-1"], "a size like 64M"),
        (&["--image", "k", "--ring", "1"], "auto, 0 or 3"),
        (&["--image", "k", "--entry", "bios"], "auto, direct or pvh"),
        (&["--image", "k", "--events", "-1"], "file descriptor"),
        (
            &["--image", "k", "--serial", "fast"],
            "lines, direct or buffered",
        ),
        (&["--image", "k", "--seconds", "0"], "a number of seconds"),
        (&["--image", "k", "--pages", "1g"], "file, 4k or 2m"),
        (&["--image", "k", "--prefault", "yes"], "no, steps or whole"),
        (&["--image", "k", "--populate", "no"], "steps or whole"),
        (&["--image", "k", "--memroy", "1M"], "--memroy"),
        (&["--image", "k", "stray"], "stray"),
        (
            &["--image=k", "--crossing=direct"],
            "requires --backend process",
        ),
        (
            &["--image=k", "--backend=process", "--crossing=fast"],
            "trap, notify or ptrace",
        ),
        (&["--kernel=k", "--crossing=ptrace"], "requires --image"),
    ] {
        let failure = parsed(words).unwrap_err();
        assert!(failure.contains(output), "{words:?}: {failure}");
    }
}

#[test]
fn help_names_every_option() {
    assert_eq!(parsed(&["--help"]), Ok(Request::Help));
    for (name, ..) in OPTIONS {
        assert!(HELP.contains(&format!("--{name} ")), "{name}");
    }
}
