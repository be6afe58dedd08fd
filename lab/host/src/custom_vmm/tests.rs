use super::*;
use expect_test::expect;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use trapline_abi::job::Shutdown;
use trapline_abi::Job;
use trapline_model::GuestConfig;
use trapline_protocol::GuestDecoder;

fn vmm(text: &str) -> CustomVmm {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn guest(text: &str) -> CustomGuest {
    CustomGuest {
        vmm: vmm(text),
        program: "/bin/vmm".into(),
        image: "/an/image".into(),
        converted: "/a/converted-image".into(),
        initramfs: "/an/initramfs".into(),
        options: String::new(),
        config: "/a/config".into(),
        home: "/home".into(),
        is_wrapped: false,
        machine: GuestConfig {
            memory_mib: 128,
            ..GuestConfig::DEFAULT
        },
        ring: 0,
    }
}

fn arguments(text: &str) -> Vec<String> {
    let command = guest(text).command(&Job::EMPTY);
    let arguments = command.arguments.iter();
    arguments
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn words_are_split_like_a_shell_and_placeholders_filled() {
    let words = arguments(
        "vmm run 'two words' \"\" -m size={memory}M,b={memory_bytes} --cpus={cpus} {image} -c {cmdline}",
    );
    let job = Job {
        shutdown: Shutdown::PowerOff,
        ..Job::EMPTY
    };
    let expected = [
        "run",
        "two words",
        "",
        "-m",
        "size=128M,b=134217728",
        "--cpus=1",
        "/an/image",
        "-c",
        &job.to_string(),
    ];
    assert_eq!(words, expected);
}

#[test]
fn relative_paths_are_resolved_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("build")).unwrap();
    std::fs::write(directory.path().join("build/firmware"), "").unwrap();
    let text = "./vmm build/firmware build/none /bin/sh -b=./build/firmware,ro x{image} {cmdline}";
    let resolved = vmm(text).in_directory(directory.path());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let words = |vmm: &CustomVmm| -> Vec<String> {
        let texts = vmm.words.iter().filter_map(|word| match word.as_slice() {
            [Piece::Text(text)] => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    };
    let expected = [
        path("vmm"),
        path("build/firmware"),
        "build/none".to_owned(),
        "/bin/sh".to_owned(),
        format!("-b={},ro", path("build/firmware")),
    ];
    assert_eq!(words(&resolved), expected);
    assert_eq!(resolved.text(), text);
    let in_path = vmm("vmm {image} {cmdline}");
    assert_eq!(in_path.in_directory(directory.path()), in_path);
}

#[test]
fn relative_paths_stay_in_their_directory() {
    let paths = |text: &str| vmm(text).relative_paths();
    let text = "./vmm --bios=build/fw,ro /bin/sh ../secret fw.bin {image} {cmdline}";
    assert_eq!(paths(text), [Path::new("vmm"), Path::new("build/fw")]);
}

#[test]
fn bzimage_placeholder_is_supported() {
    let text = "vmm --kernel={bzimage} {cmdline}";
    assert_eq!(vmm(text).format(), ImageFormat::Bzimage);
    assert_eq!(arguments(text)[0], "--kernel=/a/converted-image");
    assert_eq!(vmm("vmm {image} {cmdline}").format(), ImageFormat::Pvh);
}

#[test]
fn flat_binary_contains_its_command_line() {
    let definition = |command: &str, format| Definition {
        command: command.to_owned(),
        format,
        ..Definition::default()
    };
    let raw = definition("vmm {image}", ImageFormat::Raw);
    let guest = CustomGuest {
        vmm: CustomVmm::try_from(raw).unwrap(),
        ..guest("vmm {image} {cmdline}")
    };
    assert_eq!(guest.command(&Job::EMPTY).arguments, ["/a/converted-image"]);
    let line = guest.contained_command_line(&Job::EMPTY).unwrap();
    assert!(line.starts_with("trapline.run=none "), "{line}");
    let linux = Definition {
        linux: Some("vmm {kernel} {initramfs} {cmdline}".to_owned()),
        ..definition("vmm {image}", ImageFormat::Raw)
    };
    let command = linux.linux.clone().unwrap();
    let linux = CustomVmm::with_linux(linux, command).unwrap();
    assert_eq!(linux.format(), ImageFormat::Pvh, "that of the image");
    for format in [ImageFormat::Raw, ImageFormat::Multiboot] {
        let both = definition("vmm {bzimage} {cmdline}", format);
        assert_eq!(CustomVmm::try_from(both), Err(InvalidCommand::Formats));
    }
}

#[test]
fn linux_guest_has_a_command_of_its_own() {
    let definition = |linux: &str, config: Option<&str>| Definition {
        command: "vmm {image} {cmdline}".to_owned(),
        linux: Some(linux.to_owned()),
        linux_config: config.map(str::to_owned),
        ..Definition::default()
    };
    let of = |definition: Definition| {
        let command = definition.linux.clone().unwrap();
        CustomVmm::with_linux(definition, command)
    };
    let vmm = of(definition(
        "vmm {kernel} --initrd={initramfs} {cmdline}",
        None,
    ))
    .unwrap();
    let guest = CustomGuest {
        vmm,
        options: "quiet ".to_owned(),
        ..guest("vmm {image} {cmdline}")
    };
    let arguments = guest.command(&Job::EMPTY).arguments;
    assert_eq!(arguments[..2], ["/an/image", "--initrd=/an/initramfs"]);
    let line = arguments[2].to_string_lossy();
    assert!(line.starts_with("quiet trapline.run=none "), "{line}");
    let config = Some("{kernel} {initramfs} {cmdline}");
    assert!(of(definition("vmm {config}", config)).unwrap().has_config());
    let error = |linux: &str| of(definition(linux, None)).unwrap_err().to_string();
    let commands = [
        "vmm {image} {initramfs} {cmdline}",
        "vmm {kernel} {cmdline}",
        "vmm {kernel} {initramfs}",
    ];
    expect![[r#"
        placeholder {image} is one of another guest: {image} and {bzimage} are those of the image, {kernel} and {initramfs} of Linux guests, key linux
        placeholder {initramfs} is missing; the guest needs it
        placeholder {cmdline} is missing; the guest needs it"#]]
    .assert_eq(&commands.map(error).join("\n"));
}

#[test]
fn configuration_file_is_a_template() {
    let definition = |command: &str, config: Option<&str>| Definition {
        command: command.to_owned(),
        config: config.map(str::to_owned),
        format: ImageFormat::Bzimage,
        console: Console::Debugcon,
        transport: Transport::Pci,
        env: [("A".to_owned(), "b".to_owned())].into(),
        ..Definition::default()
    };
    let text = r#"{"memory": {memory}, "kernel": {"path": "{image}", "args": "{cmdline}"}}"#;
    let vmm = CustomVmm::try_from(definition("vmm --file {config}", Some(text))).unwrap();
    let guest = CustomGuest {
        vmm,
        ..guest("vmm {image} {cmdline}")
    };
    assert_eq!(
        guest.command(&Job::EMPTY).arguments,
        ["--file", "/a/config"]
    );
    let written = guest.config_text(&Job::EMPTY).unwrap();
    let start =
        r#"{"memory": 128, "kernel": {"path": "/a/converted-image", "args": "trapline.run="#;
    assert!(written.starts_with(start), "{written}");
    assert!(written.contains("trapline.console=port"), "{written}");
    assert!(written.contains(" trapline.transport=pci"), "{written}");
    let names = guest.command(&Job::EMPTY).environment;
    assert!(
        names.iter().map(|(name, _)| name).eq(["HOME", "A"]),
        "{names:?}"
    );
    for unpaired in [
        definition("vmm {image} {cmdline}", Some("x")),
        definition("vmm {image} {cmdline} {config}", None),
    ] {
        assert_eq!(CustomVmm::try_from(unpaired), Err(InvalidCommand::Config));
    }
}

#[test]
fn braces_around_other_text_are_kept() {
    let words = arguments(r#"vmm '{"a":{}}' '{' '}{image}{' {cmdline}"#);
    assert_eq!(words[..3], [r#"{"a":{}}"#, "{", "}/an/image{"]);
}

#[test]
fn invalid_command_is_rejected_with_a_remedy() {
    let texts = [
        "vmm {image} 'open",
        "",
        "{image} {cmdline}",
        "vmm {image}",
        "vmm {cmdline}",
        "vmm {kernel} {cmdline}",
    ];
    let errors = texts.map(|text| text.parse::<CustomVmm>().unwrap_err().to_string());
    expect![[r#"
        unterminated quotation (the command is split into words as by a shell)
        the first word is not a program, in $PATH or by its path
        the first word is not a program, in $PATH or by its path
        placeholder {cmdline} is missing; the guest needs it
        placeholder {image} or {bzimage} is missing; the guest needs it
        placeholder {kernel} is one of another guest: {image} and {bzimage} are those of the image, {kernel} and {initramfs} of Linux guests, key linux"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn missing_program_is_named() {
    let program = |name: &str| vmm(&format!("{name} {{image}} {{cmdline}}")).program();
    assert!(program("sh").unwrap().ends_with("sh"));
    assert_eq!(program("/bin/sh").unwrap(), Path::new("/bin/sh"));
    let errors = ["no-such-vmm", "/no/such/vmm", "/etc/passwd"]
        .map(|name| program(name).unwrap_err().to_string());
    expect![[r#"
        --vmm: there is no program no-such-vmm in $PATH
        --vmm: /no/such/vmm is not an executable file
        --vmm: /etc/passwd is not an executable file"#]]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn files_that_a_command_names_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let bios = directory.path().join("bios");
    std::fs::write(&bios, "abc").unwrap();
    let bios = bios.to_str().unwrap();
    let text = format!(
        "/bin/sh --bios {bios} --disk=path={bios},ro /dev/null /nonexistent /tmp {{image}} {{cmdline}}"
    );
    assert_eq!(vmm(&text).files(), [Path::new(bios), Path::new(bios)]);
}

#[test]
fn missing_records_are_reported_with_the_command() {
    let guest = guest("vmm {image} {cmdline}");
    let status = |raw| ExitStatus::from_raw(raw);
    let judge = |raw, records: &GuestDecoder| guest.check_exit(&Job::EMPTY, status(raw), records);
    let mut silent = GuestDecoder::new(&Job::EMPTY);
    silent.errors(b"no such option: -c\n");
    let errors = [2 << 8, libc::SIGKILL, libc::SIGSEGV].map(|raw| {
        let error = judge(raw, &silent).unwrap_err().to_string();
        let (text, _) = error.split_once(" 'trapline.run=none ").unwrap();
        text.to_owned()
    });
    expect![[r#"
        no record arrived from the guest's serial port: vmm ended with status 2; last output:
          no such option: -c
        command: /bin/vmm /an/image
        no record arrived from the guest's serial port: vmm was killed after 20 s; last output:
          no such option: -c
        command: /bin/vmm /an/image
        no record arrived from the guest's serial port: vmm ended by signal 11; last output:
          no such option: -c
        command: /bin/vmm /an/image"#]]
    .assert_eq(&errors.join("\n"));

    let mut done = GuestDecoder::new(&Job::EMPTY);
    let mut frame = [0; trapline_abi::frame::MAX_FRAME];
    let length = trapline_abi::frame::encode(&trapline_abi::Record::Done, 1, &mut frame).unwrap();
    done.console(&frame[..length], None, &mut trapline_protocol::NoProbe);
    for raw in [0, 7 << 8, libc::SIGKILL] {
        assert!(judge(raw, &done).is_ok());
    }
}
