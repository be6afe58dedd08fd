use super::*;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

fn shell(script: &str) -> (Program, File) {
    let (reader, writer) = pipe().unwrap();
    let mut program = Program::new(Path::new("/bin/sh")).unwrap();
    program.argument("-c").unwrap().argument(script).unwrap();
    let null = File::open("/dev/null").unwrap();
    program.descriptor(null.as_fd()).unwrap();
    program.descriptor(writer.as_fd()).unwrap();
    program.descriptor(writer.as_fd()).unwrap();
    (program, reader)
}

fn output(script: &str) -> (String, ExitStatus) {
    let (program, mut reader) = shell(script);
    let started = start(&program).unwrap();
    drop(program);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let status = ExitStatus::from_raw(started.reap().unwrap().status);
    (text, status)
}

#[test]
fn a_program_has_only_its_arguments_and_descriptors() {
    let secret = File::open("/proc/self/status").unwrap();
    let (text, status) = output("echo $0 $$; ls /proc/$$/fd; exit 7");
    drop(secret);
    // The shell may have a copy of a descriptor, above 9.
    assert!(
        text.ends_with("\n0\n1\n2\n") || text.contains("\n0\n1\n10\n2\n"),
        "{text:?}"
    );
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_child_leads_its_own_group_and_does_not_ignore_sigpipe() {
    let (text, _) = output("read -r a b c d pgid rest < /proc/$$/stat; echo $(($$ - pgid)); grep SigIgn /proc/$$/status");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("0"));
    let ignored = lines.next().unwrap().trim_start_matches("SigIgn:").trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0);
}

#[test]
fn a_failed_exec_is_an_error_without_a_child() {
    let program = Program::new(Path::new("/nonexistent/vmm")).unwrap();
    let error = start(&program).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn the_timestamp_is_between_call_and_return() {
    let before = ticks();
    let (program, _reader) = shell("exit 0");
    let started = start(&program).unwrap();
    let after = ticks();
    assert!((before..after).contains(&started.exec));
    started.reap().unwrap();
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (program, mut reader) = shell("echo up; exec sleep 1000");
    std::thread::spawn(move || {
        let started = start(&program).unwrap();
        let mut line = [0; 3];
        reader.read_exact(&mut line).unwrap();
        sender.send(started).unwrap();
    })
    .join()
    .unwrap();
    let started = receiver.recv().unwrap();
    let status = ExitStatus::from_raw(started.reap().unwrap().status);
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}
