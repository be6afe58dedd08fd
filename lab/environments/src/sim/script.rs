//! The scripts that tell the agent on a simulated machine what to do: one makes
//! the machine ready, one is its job. The agent's own module `init::script` says
//! what the lines mean.

use crate::process::Command;
use std::time::Duration;

/// A script in the making.
#[derive(Default)]
pub struct Script {
    text: String,
    launches: u16,
}

/// How long a guest may take on the simulated machine's own clock, on which an
/// instruction is a nanosecond. Then its init ends the guest.
pub const PATIENCE: Duration = Duration::from_secs(600);

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

    fn launch_as(&mut self, command: &Command, kind: &str) {
        let (number, patience) = (self.launches.to_string(), PATIENCE.as_secs().to_string());
        let program = command.program.to_string_lossy();
        let mut words = vec!["launch", &number, &patience, kind, &program];
        let arguments: Vec<_> = command
            .arguments
            .iter()
            .map(|argument| argument.to_string_lossy())
            .collect();
        words.extend(arguments.iter().map(AsRef::as_ref));
        self.line(&words);
        self.launches += 1;
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
        script.become_first_domain("/xen", "/domain");
        script.launch_domain(&Command::new("/xen/xl"), false);
        let expected = "wait\t/clock\ttsc\n\
                        module\t/kvm.ko\ta=b c=d\n\
                        launch\t0\t600\tno\t/vmm\ttwo words\ta?b?\n\
                        launch\t1\t600\tyes\t/qemu\n\
                        launch\t2\t600\tforeign\t/theirs\n\
                        xen\t/xen\t/domain\n\
                        launch\t3\t600\txen\t/xen/xl\n";
        assert_eq!(script.text(), expected);
    }
}
