use super::*;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

fn shell(script: &str) -> (Program, File) {
    let (reader, writer) = pipe().unwrap();
    let mut program = Program::new(Path::new("/bin/sh")).unwrap();
    program.argument("-c").unwrap().argument(script).unwrap();
    let nothing = File::open("/dev/null").unwrap();
    program.descriptor(nothing.as_fd()).unwrap();
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
fn a_program_gets_its_arguments_and_descriptors_and_nothing_else() {
    let secret = File::open("/proc/self/status").unwrap();
    let (text, status) = output("echo $0 $$; ls /proc/$$/fd | tr '\\n' ' '; exit 7");
    drop(secret);
    // The shell's own copy of a descriptor may be there, above 9.
    assert!(
        text.ends_with("0 1 2 ") || text.contains("0 1 10 2"),
        "{text:?}"
    );
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_child_leads_its_own_group_and_takes_sigpipe_again() {
    let (text, _) = output("read -r a b c d pgid rest < /proc/$$/stat; echo $(($$ - pgid)); grep SigIgn /proc/$$/status");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("0"));
    let ignored = lines.next().unwrap().trim_start_matches("SigIgn:").trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0);
}

#[test]
fn what_cannot_be_executed_is_an_error_and_no_child() {
    let program = Program::new(Path::new("/nonexistent/vmm")).unwrap();
    let error = start(&program).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn the_stamp_lies_between_the_call_and_its_return() {
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
