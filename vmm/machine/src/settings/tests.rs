use super::*;
use crate::disk::Kind;
use expect_test::expect;

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
        "--entropy",
        "--halt-in-guest",
        "--seconds=90",
        "--user=7:8",
        "--chroot=/jail",
        "--no-sandbox",
    ]);
    let wanted = VmConfig {
        backend: Backend::Kvm,
        process: Crossing::Auto.into(),
        guest: Guest::Image,
        domain: None,
        image: "k".into(),
        initrd: None,
        disks: Vec::new(),
        cpus: 1,
        memory: 1 << 30,
        pages: MemoryKind::Private(Pages::Huge),
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
        entropy: true,
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
    let both = run(&["--image=k", "--net=tap=a", "--net=vhost-user=b"]);
    assert_eq!((both.net.len(), both.shares_memory()), (2, true));
    let connected = run(&["--kernel=k", "--vsock=cid=9,path=p"]);
    assert_eq!(connected.vsock.map(|spec| spec.cid), Some(9));
    let plain = run(&["--image", "k"]);
    assert!(!plain.halt_in_guest);
    assert!(!plain.has_devices() && run(&["--image=k", "--entropy"]).has_devices());
    assert!(plain.sandbox && !plain.ticker && plain.memory == 64 << 20 && plain.ring.is_none());
    assert!(
        plain.pages == MemoryKind::Auto && plain.prefault.is_none() && plain.populate.is_none()
    );
    assert_eq!(plain.role(), Role::Vcpu);
    let domain = run(&["--backend=xen", "--domain=5", "--memory=32M"]);
    assert_eq!((domain.backend, domain.domain), (Backend::Xen, Some(5)));
    assert_eq!(domain.role(), Role::Vcpu);
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
    let commands = [
        "--memory 64M",
        "--image",
        "--image k --memory lots",
        "--image k --memory 99999999999G",
        "--image k --memory ",
        "--image k --backend process --cpus 2",
        "--kernel k --cpus 65",
        "--kernel k --image i",
        "--image k --initrd i",
        "--image k --disk d --disk e",
        "--kernel k --disk d,rw",
        "--kernel k --disk ,ro",
        "--kernel k --disk d,engine=aio",
        "--kernel k --ring 0",
        "--kernel k --entry pvh",
        "--kernel k --ticker",
        "--kernel k --populate=whole",
        "--kernel k --halt-in-guest",
        "--image k --no-pv-eoi",
        "--kernel k --net bridge=b",
        "--image k --net tap=t --net tap=u --net tap=v",
        "--image k --net vhost-user=a --net vhost-user=b",
        "--image k --pages 4k --net vhost-user=a",
        "--backend xen --domain 1 --net vhost-user=a",
        "--kernel k --pin vcpu0",
        "--image k --pin same",
        "--image k --api a",
        "--kernel k --vsock cid=2,path=p",
        "--image k --vsock cid=3,path=p",
        "--kernel=k --vsock=cid=3,path=p --vsock=cid=3,path=p",
        "--kernel=k --chroot=d --vsock=cid=3,path=p",
        "--kernel=k --pin=disk9=0",
        "--kernel=k --disk=d --pin=disk1=0",
        "--kernel=k --pin=vcpu1=0",
        "--kernel=k --pin=vsock=0",
        "--image k --user root",
        "--image k --cpus -1",
        "--image k --memory=-1",
        "--image k --ring 1",
        "--image k --entry bios",
        "--image k --events -1",
        "--image k --serial fast",
        "--image k --seconds 0",
        "--image k --pages 1g",
        "--image k --prefault yes",
        "--image k --populate no",
        "--image k --memroy 1M",
        "--image k stray",
        "--image=k --crossing=direct",
        "--domain=5",
        "--image=k --domain=5",
        "--backend=xen --image=k",
        "--backend=xen --kernel=k",
        "--backend=xen --domain=0",
        "--backend=xen --domain=32752",
        "--backend=xen --domain=5 --cmdline=a",
        "--backend=xen --domain=5 --ring=0",
        "--backend=xen --domain=5 --pages=4k",
        "--backend=xen --domain=5 --disk=d",
        "--image=k --backend=process --crossing=fast",
        "--kernel=k --crossing=ptrace",
    ];
    let failures = commands.map(|words| {
        let failure = parsed(&words.split(' ').collect::<Vec<_>>()).unwrap_err();
        format!("{words} -> {failure}\n")
    });
    expect![[r#"
        --memory 64M -> --image, --kernel or --domain is required
        --image -> missing argument for option '--image'
        --image k --memory lots -> --memory lots: expected a size like 64M
        --image k --memory 99999999999G -> --memory 99999999999G: expected a size like 64M
        --image k --memory  -> --memory : expected a size like 64M
        --image k --backend process --cpus 2 -> --cpus requires --backend kvm
        --kernel k --cpus 65 -> --cpus 65: expected a number from 1 to 64
        --kernel k --image i -> --image, --kernel and --domain exclude each other, and may be given once
        --image k --initrd i -> --initrd requires --kernel
        --image k --disk d --disk e -> several --disk require --kernel
        --kernel k --disk d,rw -> --disk d,rw: expected FILE[,ro][,direct][,engine=uring|pool]
        --kernel k --disk ,ro -> --disk ,ro: expected FILE[,ro][,direct][,engine=uring|pool]
        --kernel k --disk d,engine=aio -> --disk d,engine=aio: expected FILE[,ro][,direct][,engine=uring|pool]
        --kernel k --ring 0 -> --ring requires --image
        --kernel k --entry pvh -> --entry requires --image
        --kernel k --ticker -> --ticker requires --image
        --kernel k --populate=whole -> --populate requires --image
        --kernel k --halt-in-guest -> --halt-in-guest requires --image
        --image k --no-pv-eoi -> --no-pv-eoi requires --kernel
        --kernel k --net bridge=b -> --net bridge=b: expected tap=NAME[,vhost=on], fd=N[,vhost=on] or vhost-user=SOCKET[,queues=N], optionally mac=02:…:…:…:…:…
        --image k --net tap=t --net tap=u --net tap=v -> more than two --net, or two with vhost-user or vhost=on, require --kernel
        --image k --net vhost-user=a --net vhost-user=b -> more than two --net, or two with vhost-user or vhost=on, require --kernel
        --image k --pages 4k --net vhost-user=a -> --net vhost-user requires --pages file, which can be shared
        --backend xen --domain 1 --net vhost-user=a -> --net with vhost-user or vhost=on requires --backend kvm
        --kernel k --pin vcpu0 -> --pin vcpu0: expected same, disjoint, or a list like vcpu0=1,disk0=0,others=0
        --image k --pin same -> --pin requires --kernel
        --image k --api a -> --api requires --kernel
        --kernel k --vsock cid=2,path=p -> --vsock cid=2,path=p: expected cid=N,path=SOCKET[,in] with N of 3 or more, given once
        --image k --vsock cid=3,path=p -> --vsock requires --kernel
        --kernel=k --vsock=cid=3,path=p --vsock=cid=3,path=p -> --vsock cid=3,path=p: expected cid=N,path=SOCKET[,in] with N of 3 or more, given once
        --kernel=k --chroot=d --vsock=cid=3,path=p -> --chroot: guest connections to host sockets are not supported there; add ',in' to --vsock
        --kernel=k --pin=disk9=0 -> --pin: this VM has no thread disk9
        --kernel=k --disk=d --pin=disk1=0 -> --pin: this VM has no thread disk1
        --kernel=k --pin=vcpu1=0 -> --pin: this VM has no thread vcpu1
        --kernel=k --pin=vsock=0 -> --pin: this VM has no thread vsock
        --image k --user root -> --user root: expected UID:GID, both above 0
        --image k --cpus -1 -> --cpus -1: expected a number from 1 to 64
        --image k --memory=-1 -> --memory -1: expected a size like 64M
        --image k --ring 1 -> --ring 1: expected auto, 0 or 3
        --image k --entry bios -> --entry bios: expected auto, direct or pvh
        --image k --events -1 -> --events -1: expected a file descriptor
        --image k --serial fast -> --serial fast: expected lines, direct or buffered
        --image k --seconds 0 -> --seconds 0: expected a number of seconds
        --image k --pages 1g -> --pages 1g: expected auto, file, 4k or 2m
        --image k --prefault yes -> --prefault yes: expected no, steps or whole
        --image k --populate no -> --populate no: expected steps or whole
        --image k --memroy 1M -> invalid option '--memroy'
        --image k stray -> unexpected argument "stray"
        --image=k --crossing=direct -> --crossing requires --backend process
        --domain=5 -> --domain requires --backend xen
        --image=k --domain=5 -> --image, --kernel and --domain exclude each other, and may be given once
        --backend=xen --image=k -> --image requires --backend kvm
        --backend=xen --kernel=k -> --kernel requires --backend kvm
        --backend=xen --domain=0 -> --domain 0: expected a number from 1 to 32751
        --backend=xen --domain=32752 -> --domain 32752: expected a number from 1 to 32751
        --backend=xen --domain=5 --cmdline=a -> --cmdline requires --backend kvm
        --backend=xen --domain=5 --ring=0 -> --ring requires --backend kvm
        --backend=xen --domain=5 --pages=4k -> --pages requires --backend kvm
        --backend=xen --domain=5 --disk=d -> --disk requires --backend kvm
        --image=k --backend=process --crossing=fast -> --crossing fast: expected auto, rewrite, direct, dispatch, trap, notify or ptrace
        --kernel=k --crossing=ptrace -> --crossing requires --image
    "#]].assert_eq(&failures.concat());
}

#[test]
fn help_names_every_option() {
    assert_eq!(parsed(&["--help"]), Ok(Request::Help));
    for (name, ..) in OPTIONS {
        assert!(HELP.contains(&format!("--{name} ")), "{name}");
    }
}
