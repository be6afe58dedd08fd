//! Scripts for the agent as init of a simulated machine: one makes the machine ready, one is its job. The
//! agent's module `init::script` defines the commands.

use crate::lengths;
use std::ffi::OsStr;
use std::time::Duration;
use trapline_abi::job::SCRIPT;
use trapline_abi::Job;
use trapline_host::process::Command;
use trapline_model::{irq, Sched};

/// A script, line by line.
#[derive(Default)]
pub struct Script {
    text: String,
    launches: u16,
    timeout: Option<Duration>,
    /// Init reports the memory of the VMM that is launched next.
    reports_memory: bool,
}

/// More bytes than the launches of almost every job.
const PADDED: usize = 16 << 10;

/// Time limit of a guest on the simulated clock, on which an instruction is a nanosecond. Init kills it then.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the time limit of a job: for timers, twice their duration in addition.
pub fn timeout(job: &Job) -> Duration {
    let timers = (job.run & irq::operations()).len() as u64;
    let expiries = timers * u64::from(job.expiries);
    TIMEOUT + Duration::from_nanos(expiries.saturating_mul(job.period).saturating_mul(2))
}

impl Script {
    /// Loads a module.
    pub fn module(&mut self, path: &str, options: &str) {
        self.line(&["module", path, options]);
    }

    /// Announces the calls at these offsets of a module, which find the length of an instruction, before the job.
    pub fn lengths_of_module(&mut self, name: &str, offsets: &[u64]) {
        if !offsets.is_empty() {
            let offsets: Vec<_> = offsets.iter().map(u64::to_string).collect();
            self.line(&[
                "lengths",
                "module",
                name,
                lengths::SECTION,
                &offsets.join(","),
            ]);
        }
    }

    /// Announces the function of Xen that finds the length of an instruction before the job.
    pub fn lengths_of_xen(&mut self) {
        self.line(&["lengths", "xen", lengths::XEN_FUNCTION]);
    }

    /// Moves init, and with it all programs that it starts from now on, to a control group of their own.
    pub fn enter_control_group(&mut self) {
        self.line(&["cgroup"]);
    }

    /// Waits until a file contains `text`.
    pub fn wait(&mut self, path: &str, text: &str) {
        self.line(&["wait", path, text]);
    }

    /// Creates a disk in a file of `mib` MiB, or empties it.
    pub fn disk(&mut self, path: &str, mib: u32) {
        self.line(&["disk", path, &mib.to_string()]);
    }

    /// Starts the toolstack of Xen, whose programs are in a directory, and creates the domain of a
    /// configuration file once.
    pub fn start_xen(&mut self, programs: &str, domain: &str) {
        self.line(&["xen", programs, domain]);
    }

    /// Sets the time limit of the following programs to that of `job`.
    pub fn allow(&mut self, job: &Job) {
        self.timeout = Some(timeout(job));
    }

    /// Runs a program. With `ask_offset`, init reads its guest's TSC offset from the kernel.
    pub fn launch(&mut self, command: &Command, ask_offset: bool) {
        self.launch_as(command, if ask_offset { "yes" } else { "no" });
    }

    /// Runs a custom VMM, maybe behind a wrapper.
    pub fn launch_foreign(&mut self, command: &Command, has_wrapper: bool) {
        for (name, value) in &command.environment {
            self.line(&["variable", name, &value.to_string_lossy()]);
        }
        self.launch_as(command, if has_wrapper { "wrapped" } else { "foreign" });
    }

    /// Starts the programs of the following `count` launches at the same moment.
    pub fn together(&mut self, count: u32) {
        self.line(&["together", &count.to_string()]);
    }

    /// Writes a text to a file.
    pub fn file(&mut self, path: &str, text: &str) {
        self.line(&["file", path, &encoded(text)]);
    }

    /// Writes a text with a terminating zero over bytes of a file.
    pub fn overwrite(&mut self, path: &str, offset: u64, text: &str) {
        self.line(&["overwrite", path, &offset.to_string(), &encoded(text)]);
    }

    /// Runs `xl` to start a domain. With `asked`, the domain reads the last argument from its console.
    pub fn launch_domain(&mut self, command: &Command, asked: bool) {
        self.launch_as(command, if asked { "xen-asked" } else { "xen" });
    }

    /// Runs `xl` to create a paused domain, and behind `--` a VMM that serves it.
    pub fn launch_domain_with_vmm(&mut self, command: &Command) {
        self.launch_as(command, "xen-vmm");
    }

    /// Starts a load program: name of the load, unit of its count, and how it reports the count.
    pub fn load(&mut self, name: &str, unit: &str, telling: &str, command: &Command) {
        self.line_with(&["load", name, unit, telling], command);
    }

    /// Sets the scheduling policy of the following programs.
    pub fn sched(&mut self, how: Sched) {
        match how {
            Sched::Other | Sched::Xen(_) => {}
            Sched::Fifo(priority) => self.line(&["sched", "fifo", &priority.to_string()]),
            Sched::Deadline { runtime, period } => {
                let (runtime, period) = (runtime.0.to_string(), period.0.to_string());
                self.line(&["sched", "deadline", &runtime, &period]);
            }
        }
    }

    /// Makes init report the memory of the VMM that is launched next, beyond its guest's, which it reads from the kernel.
    pub fn report_memory(&mut self) {
        self.reports_memory = true;
    }

    fn launch_as(&mut self, command: &Command, kind: &str) {
        let with_memory = std::mem::take(&mut self.reports_memory);
        let kind = format!("{kind}{}", if with_memory { "+memory" } else { "" });
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        let (number, timeout) = (self.launches.to_string(), timeout.as_secs().to_string());
        self.line_with(&["launch", &number, &timeout, &kind], command);
        self.launches += 1;
    }

    /// Appends a line of these words and those of a command.
    fn line_with(&mut self, words: &[&str], command: &Command) {
        let program = [command.program.as_os_str()].into_iter();
        let theirs = program.chain(command.arguments.iter().map(AsRef::as_ref));
        let theirs: Vec<_> = theirs.map(OsStr::to_string_lossy).collect();
        let words = words
            .iter()
            .copied()
            .chain(theirs.iter().map(AsRef::as_ref));
        self.line(&words.collect::<Vec<_>>());
    }

    /// Appends a line. Separators in words are replaced: only paths of users can contain them.
    fn line(&mut self, words: &[&str]) {
        let words: Vec<_> = words
            .iter()
            .map(|word| word.replace(['\t', '\n'], "?"))
            .collect();
        self.text += &words.join("\t");
        self.text.push('\n');
    }

    /// Returns the word that gives the script to the init of a Linux guest, see
    /// [`SCRIPT`](trapline_abi::job::SCRIPT).
    pub fn command_line_word(&self) -> String {
        let mut word = SCRIPT.to_owned();
        for byte in self.text.bytes() {
            match byte {
                b'%' | b'"' | 0..=b' ' | 0x7f.. => word += &format!("%{byte:02X}"),
                _ => word.push(char::from(byte)),
            }
        }
        word
    }

    /// Returns the script's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the script's text with zeros up to a multiple of [`PADDED`] bytes. A guest's start is then the same work whatever
    /// is launched after it: init reads as much, and parses each line when the one before is done.
    pub fn padded(&self) -> Vec<u8> {
        let mut bytes = self.text.as_bytes().to_vec();
        bytes.resize(bytes.len().max(1).next_multiple_of(PADDED), 0);
        bytes
    }
}

/// Returns a text without separators of words and lines.
fn encoded(text: &str) -> String {
    let encode = |character: char| match character {
        '%' | '\t' | '\n' | '\r' => format!("%{:02X}", u32::from(character)),
        other => other.to_string(),
    };
    text.chars().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use trapline_abi::Op;

    #[test]
    fn script_has_tab_separated_words_and_numbered_launches() {
        let mut script = Script::default();
        script.wait("/clock", "tsc");
        script.enter_control_group();
        script.module("/kvm.ko", "a=b c=d");
        script.lengths_of_module("kvm", &[]);
        script.lengths_of_module("kvm_amd", &[6778, 6870]);
        script.lengths_of_xen();
        script.launch(&Command::new("/vmm").arg("two words").arg("a\tb\n"), false);
        script.report_memory();
        script.launch(&Command::new("/qemu"), true);
        script.disk("/dev/disk", 16);
        script.file("/config", "a = \"100%\"\n");
        script.overwrite("/image", 64, "a\t");
        script.launch_foreign(&Command::new("/theirs").env("HOME", "/root"), false);
        script.load("cpu", "turns", "count", &Command::new("/init").arg("burn"));
        script.sched("fifo:7".parse().unwrap());
        script.sched("deadline:3ms/10ms".parse().unwrap());
        script.start_xen("/xen", "/domain");
        script.launch_domain(&Command::new("/xen/xl"), false);
        script.launch_domain_with_vmm(&Command::new("/xen/xl").words("-- /vmm"));
        let expected = "wait\t/clock\ttsc\n\
                        cgroup\n\
                        module\t/kvm.ko\ta=b c=d\n\
                        lengths\tmodule\tkvm_amd\t.text\t6778,6870\n\
                        lengths\txen\tsvm_get_insn_len\n\
                        launch\t0\t600\tno\t/vmm\ttwo words\ta?b?\n\
                        launch\t1\t600\tyes+memory\t/qemu\n\
                        disk\t/dev/disk\t16\n\
                        file\t/config\ta = \"100%25\"%0A\n\
                        overwrite\t/image\t64\ta%09\n\
                        variable\tHOME\t/root\n\
                        launch\t2\t600\tforeign\t/theirs\n\
                        load\tcpu\tturns\tcount\t/init\tburn\n\
                        sched\tfifo\t7\n\
                        sched\tdeadline\t3000000\t10000000\n\
                        xen\t/xen\t/domain\n\
                        launch\t3\t600\txen\t/xen/xl\n\
                        launch\t4\t600\txen-vmm\t/xen/xl\t--\t/vmm\n";
        assert_eq!(script.text(), expected);
    }

    #[test]
    fn further_launches_change_neither_length_nor_beginning() {
        let mut script = Script::default();
        script.launch(&Command::new("/vmm"), false);
        let first = script.text().len();
        let one = script.padded();
        (0..20).for_each(|_| script.launch(&Command::new("/vmm"), false));
        let more = script.padded();
        assert_eq!((one.len(), more.len()), (PADDED, PADDED));
        assert_eq!(one[..first], more[..first]);
        assert!(one[first..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn script_is_one_word_of_a_command_line() {
        let mut inner = Script::default();
        inner.wait("/a b", "\"%\"");
        let word = inner.command_line_word();
        assert_eq!(word, "trapline-script=wait%09/a%20b%09%22%25%22%0A");
        let mut outer = Script::default();
        outer.wait("/", &word);
        expect!["trapline-script=wait%09/%09trapline-script=wait%2509/a%2520b%2509%2522%2525%2522%250A%0A"].assert_eq(&outer.command_line_word());
    }

    #[test]
    fn time_limit_grows_with_timers() {
        let job = Job {
            run: Op::OwnTimer | Op::HostTimer,
            expiries: 100_000,
            period: 10_000_000,
            ..Job::EMPTY
        };
        assert_eq!(timeout(&Job::EMPTY), TIMEOUT);
        // Two timers of 1,000 s, twice.
        assert_eq!(timeout(&job), TIMEOUT + Duration::from_secs(4_000));
        let mut script = Script::default();
        script.allow(&job);
        script.launch(&Command::new("/vmm"), false);
        assert_eq!(script.text(), "launch\t0\t4600\tno\t/vmm\n");
    }
}
