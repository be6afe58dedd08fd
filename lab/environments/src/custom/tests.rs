use super::*;

fn vmm(text: &str) -> CustomVmm {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn foreign(text: &str) -> Foreign {
    Foreign {
        vmm: vmm(text),
        program: "/bin/vmm".into(),
        image: "/an/image".into(),
        bzimage: "/a/bzimage".into(),
        machine: MachineSpec {
            memory_mib: 128,
            window_mib: 0,
            cpus: 1,
            scheduling: trapline_model::Scheduling::USUAL,
            serial: trapline_model::Serial::Lines,
            halt: trapline_model::Halt::Exits,
            pages: Default::default(),
        },
        ring: 0,
    }
}

fn arguments(text: &str) -> Vec<String> {
    let command = foreign(text).command(&Job::EMPTY);
    let arguments = command.arguments.iter();
    arguments
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn words_are_split_as_a_shell_does_and_places_filled() {
    let words = arguments(
        "vmm run 'two words' \"\" -m size={memory}M,b={memory_bytes} --cpus={cpus} {image} -c {cmdline}",
    );
    let job = Job {
        end: End::Reset,
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
fn an_image_may_be_asked_for_as_a_bzimage() {
    let text = "vmm --kernel={bzimage} {cmdline}";
    assert!(vmm(text).wants_bzimage());
    assert_eq!(arguments(text)[0], "--kernel=/a/bzimage");
    assert!(!vmm("vmm {image} {cmdline}").wants_bzimage());
}

#[test]
fn braces_around_anything_but_a_name_are_text() {
    let words = arguments(r#"vmm '{"a":{}}' '{' '}{image}{' {cmdline}"#);
    assert_eq!(words[..3], [r#"{"a":{}}"#, "{", "}/an/image{"]);
}

#[test]
fn a_command_that_cannot_work_is_refused_with_a_remedy() {
    for (text, words) in [
        ("vmm {image} 'open", "a quotation in it has no end"),
        ("", "begins with the program"),
        ("{image} {cmdline}", "begins with the program"),
        ("vmm {image}", "it has no {cmdline}"),
        ("vmm {cmdline}", "it has no {image} or {bzimage}; without"),
        (
            "vmm {kernel} {cmdline}",
            "'{kernel}' means nothing here; there are {image}, {bzimage}, {memory}",
        ),
    ] {
        let error = text.parse::<CustomVmm>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_program_is_found_or_its_absence_explained() {
    let program = |name: &str| vmm(&format!("{name} {{image}} {{cmdline}}")).program();
    assert!(program("sh").unwrap().ends_with("sh"));
    assert_eq!(program("/bin/sh").unwrap(), Path::new("/bin/sh"));
    for (name, words) in [
        ("no-such-vmm", "no program no-such-vmm in $PATH"),
        ("/no/such/vmm", "/no/such/vmm is no program"),
        ("/etc/passwd", "/etc/passwd is no program"),
    ] {
        let error = program(name).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
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
fn a_script_cannot_be_packed() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("vmm");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let error = check_packable(&script).unwrap_err().to_string();
    assert!(error.contains("is a script"), "{error}");
    assert!(check_packable(Path::new("/bin/sh")).is_ok());
}

#[test]
fn the_last_record_decides_and_silence_is_told_with_the_command() {
    let foreign = foreign("vmm {image} {cmdline}");
    let status = |raw| ExitStatus::from_raw(raw);
    let judge = |raw, heard: &Transcript| foreign.judge(&Job::EMPTY, status(raw), heard);
    let mut silent = Transcript::new(&Job::EMPTY);
    silent.errors(b"no such option: -c\n");
    let told = judge(2 << 8, &silent).unwrap_err().to_string();
    for words in [
        "never said a word on its serial port: vmm ended with status 2",
        "\nit was started with: /bin/vmm /an/image 'trapline.run=none ",
        "no such option: -c",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let told = judge(libc::SIGKILL, &silent).unwrap_err().to_string();
    assert!(told.contains("vmm was killed after 20 s"), "{told}");
    let told = judge(libc::SIGSEGV, &silent).unwrap_err().to_string();
    assert!(told.contains("vmm was ended by signal 11"), "{told}");

    let mut done = Transcript::new(&Job::EMPTY);
    let mut frame = [0; trapline_abi::frame::MAX_FRAME];
    let length = trapline_abi::frame::encode(&trapline_abi::Record::Done, 1, &mut frame).unwrap();
    done.console(&frame[..length], None, &mut crate::transcript::Blind);
    for raw in [0, 7 << 8, libc::SIGKILL] {
        assert!(judge(raw, &done).is_ok());
    }
}
