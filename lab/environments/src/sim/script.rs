//! The scripts that tell the agent on a simulated machine what to do: one makes
//! the machine ready, one is its job. The agent's own module `init::script` says
//! what the lines mean.

use crate::process::Command;
use std::ffi::OsStr;
use std::time::Duration;
use trapline_abi::Job;
use trapline_model::{irq, Sched};

/// A script in the making.
#[derive(Default)]
pub struct Script {
    text: String,
    launches: u16,
    patience: Option<Duration>,
}

/// How long a guest may take on the simulated machine's own clock, on which an
/// instruction is a nanosecond. Then its init ends the guest.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The same for one with this job: of interrupts, twice the time that its timers take.
pub fn patience(job: &Job) -> Duration {
    let timers = u64::from((job.run & irq::operations()).count_ones());
    let expiries = timers * u64::from(job.expiries);
    PATIENCE + Duration::from_nanos(expiries.saturating_mul(job.period).saturating_mul(2))
}

impl Script {
    /// Loads a module.
    pub fn module(&mut self, path: &str, options: &str) {
        self.line(&["module", path, options]);
    }

    /// Waits until a file says `text`.
    pub fn wait(&mut self, path: &str, text: &str) {
        self.line(&["wait", path, text]);
    }

    /// Makes the machine's Linux the first domain of a Xen, whose programs are in a
    /// directory, and lets it make the domain that a file describes, once.
    pub fn become_first_domain(&mut self, programs: &str, domain: &str) {
        self.line(&["xen", programs, domain]);
    }

    /// Gives the programs that are launched from here on the time that `job` takes.
    pub fn allow(&mut self, job: &Job) {
        self.patience = Some(patience(job));
    }

    /// Runs a program; `ask_offset` if its guest's TSC offset is to be asked of
    /// the kernel.
    pub fn launch(&mut self, command: &Command, ask_offset: bool) {
        self.launch_as(command, if ask_offset { "yes" } else { "no" });
    }

    /// Runs a VMM that knows nothing of Trapline.
    pub fn launch_foreign(&mut self, command: &Command) {
        self.launch_as(command, "foreign");
    }

    /// Runs Xen's toolstack, which starts a domain; `asked` if the last argument is for
    /// the domain, which asks for it on its console.
    pub fn launch_domain(&mut self, command: &Command, asked: bool) {
        self.launch_as(command, if asked { "xen-asked" } else { "xen" });
    }

    /// Starts a program that disturbs what is launched from here on: the load's name,
    /// what it counts, and how it tells.
    pub fn load(&mut self, name: &str, unit: &str, telling: &str, command: &Command) {
        self.line_with(&["load", name, unit, telling], command);
    }

    /// Lets what is launched from here on have the processor by these rules.
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

    fn launch_as(&mut self, command: &Command, kind: &str) {
        let patience = self.patience.unwrap_or(PATIENCE);
        let (number, patience) = (self.launches.to_string(), patience.as_secs().to_string());
        self.line_with(&["launch", &number, &patience, kind], command);
        self.launches += 1;
    }

    /// A line of these words and those of a command behind them.
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

    /// Words cannot hold what separates them: nothing that we write does, and a
    /// path of the user's becomes a path that is not there.
    fn line(&mut self, words: &[&str]) {
        let words: Vec<_> = words
            .iter()
            .map(|word| word.replace(['\t', '\n'], "?"))
            .collect();
        self.text += &words.join("\t");
        self.text.push('\n');
    }

    /// The script's text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_tabs_and_launches_numbered() {
        let mut script = Script::default();
        script.wait("/clock", "tsc");
        script.module("/kvm.ko", "a=b c=d");
        script.launch(&Command::new("/vmm").arg("two words").arg("a\tb\n"), false);
        script.launch(&Command::new("/qemu"), true);
        script.launch_foreign(&Command::new("/theirs"));
        script.load("cpu", "turns", "count", &Command::new("/init").arg("burn"));
        script.sched("fifo:7".parse().unwrap());
        script.sched("deadline:3ms/10ms".parse().unwrap());
        script.become_first_domain("/xen", "/domain");
        script.launch_domain(&Command::new("/xen/xl"), false);
        let expected = "wait\t/clock\ttsc\n\
                        module\t/kvm.ko\ta=b c=d\n\
                        launch\t0\t600\tno\t/vmm\ttwo words\ta?b?\n\
                        launch\t1\t600\tyes\t/qemu\n\
                        launch\t2\t600\tforeign\t/theirs\n\
                        load\tcpu\tturns\tcount\t/init\tburn\n\
                        sched\tfifo\t7\n\
                        sched\tdeadline\t3000000\t10000000\n\
                        xen\t/xen\t/domain\n\
                        launch\t3\t600\txen\t/xen/xl\n";
        assert_eq!(script.text(), expected);
    }

    #[test]
    fn interrupts_are_given_the_time_that_they_take() {
        let job = Job {
            run: irq::operations(),
            expiries: 100_000,
            period: 10_000_000,
            ..Job::EMPTY
        };
        assert_eq!(patience(&Job::EMPTY), PATIENCE);
        // Two timers of 1,000 s, twice.
        assert_eq!(patience(&job), PATIENCE + Duration::from_secs(4_000));
        let mut script = Script::default();
        script.allow(&job);
        script.launch(&Command::new("/vmm"), false);
        assert_eq!(script.text(), "launch\t0\t4600\tno\t/vmm\n");
    }
}
