//! The script: a line a step, its words separated by tabs.
//!
//! - `module PATH OPTIONS` loads a kernel module.
//! - `write PATH TEXT` tunes the kernel.
//! - `wait PATH TEXT` waits until a file says so.
//! - `xen DIRECTORY FILE` makes this Linux the first domain of the Xen below it, with that
//!   directory's programs, and makes the domain that FILE describes, once; see `init::xen`.
//! - `load NAME UNIT TELLING PROGRAM ARGUMENT…` starts a program that disturbs those that
//!   are launched later; see `init::beside` and [`Telling`].
//! - `sched fifo PRIORITY` and `sched deadline RUNTIME PERIOD`, in nanoseconds: how the
//!   programs that are launched later get the processor.
//! - `launch NUMBER SECONDS KIND PROGRAM ARGUMENT…` runs a program to its end, at
//!   most so many seconds of the machine's time. For KIND see [`Kind`].

use trapline_spawn::sched::Rules;

/// One step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Load a kernel module.
    Module {
        /// Its file.
        path: &'a str,
        /// Its parameters, as on a kernel command line.
        options: &'a str,
    },
    /// Write a text to a file.
    Write {
        /// The file.
        path: &'a str,
        /// The text.
        text: &'a str,
    },
    /// Wait until a file says a text.
    Wait {
        /// The file.
        path: &'a str,
        /// The text, without a line's end.
        text: &'a str,
    },
    /// Make this Linux the first domain of a Xen.
    Xen {
        /// The directory of Xen's programs.
        programs: &'a str,
        /// What describes a domain.
        domain: &'a str,
    },
    /// Start what disturbs.
    Load(Load<'a>),
    /// Rules for what is launched.
    Sched(Rules),
    /// Run a program.
    Launch(Launch<'a>),
}

/// A program that disturbs.
#[derive(Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// The load's name.
    pub name: &'a str,
    /// What it counts.
    pub unit: &'a str,
    /// How it tells.
    pub telling: Telling,
    /// Its file.
    pub program: &'a str,
    /// Its arguments, without its own name.
    pub arguments: Vec<&'a str>,
}

/// How a program that disturbs tells how much it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// `count`: as a number in the file that is its standard output.
    Count,
    /// `exits`: it is a VMM, and KVM counts the exits of its guest.
    Exits,
}

/// A program to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// Its number in what is told about it.
    pub child: u16,
    /// How long it may take, in seconds of the machine's clock.
    pub seconds: u32,
    /// What is known about it.
    pub kind: Kind,
    /// Its file.
    pub program: &'a str,
    /// Its arguments, without its own name.
    pub arguments: Vec<&'a str>,
}

impl<'a> Launch<'a> {
    /// The arguments that are the program's.
    pub fn of_program(&self) -> &[&'a str] {
        let kept = usize::from(self.kind == Kind::XenAsked);
        &self.arguments[..self.arguments.len().saturating_sub(kept)]
    }

    /// What the guest reads from its console.
    pub fn asked(&self) -> Option<&'a str> {
        let last = self.arguments.last().copied();
        last.filter(|_| self.kind == Kind::XenAsked)
    }
}

/// What is known about a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `no`: it tells all that there is to tell.
    Ours,
    /// `yes`: a VMM that does not tell its guest's TSC offset, so that the kernel
    /// is asked.
    Asked,
    /// `foreign`: the same, and a VMM that knows nothing of Trapline; see
    /// `init::foreign`.
    Foreign,
    /// `xen`: the toolstack, which starts a domain and ends with it; see
    /// `init::xen`.
    Xen,
    /// `xen-asked`: the same, but the domain has no command line and reads a line from its
    /// console: the last argument, which the toolstack does not get.
    XenAsked,
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &str) -> Result<Step<'_>, String> {
    let words: Vec<&str> = line.split('\t').collect();
    match words[..] {
        ["module", path, options] => Ok(Step::Module { path, options }),
        ["write", path, text] => Ok(Step::Write { path, text }),
        ["wait", path, text] => Ok(Step::Wait { path, text }),
        ["xen", programs, domain] => Ok(Step::Xen { programs, domain }),
        ["load", name, unit, telling, program, ref arguments @ ..] => Ok(Step::Load(Load {
            name,
            unit,
            telling: telling_of(telling)?,
            program,
            arguments: arguments.to_vec(),
        })),
        ["sched", "fifo", priority] => Ok(Step::Sched(Rules::Fifo(number(priority)?))),
        ["sched", "deadline", runtime, period] => Ok(Step::Sched(Rules::Deadline {
            runtime: number(runtime)?,
            period: number(period)?,
        })),
        ["launch", child, seconds, kind, program, ref arguments @ ..] => Ok(Step::Launch(Launch {
            child: number(child)?,
            seconds: number(seconds)?,
            kind: kind_of(kind)?,
            program,
            arguments: arguments.to_vec(),
        })),
        _ => Err(format!("'{line}' is no step")),
    }
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a number in range"))
}

fn telling_of(word: &str) -> Result<Telling, String> {
    match word {
        "count" => Ok(Telling::Count),
        "exits" => Ok(Telling::Exits),
        _ => Err(format!("'{word}' is no way to tell")),
    }
}

fn kind_of(word: &str) -> Result<Kind, String> {
    match word {
        "no" => Ok(Kind::Ours),
        "yes" => Ok(Kind::Asked),
        "foreign" => Ok(Kind::Foreign),
        "xen" => Ok(Kind::Xen),
        "xen-asked" => Ok(Kind::XenAsked),
        _ => Err(format!("'{word}' is no kind of program")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_written() {
        let module = Step::Module {
            path: "/kvm.ko",
            options: "nx_huge_pages=never a=b",
        };
        assert_eq!(
            parse("module\t/kvm.ko\tnx_huge_pages=never a=b"),
            Ok(module)
        );
        let wait = Step::Wait {
            path: "/clock",
            text: "tsc",
        };
        assert_eq!(parse("wait\t/clock\ttsc"), Ok(wait));
        let xen = Step::Xen {
            programs: "/usr/lib/xen",
            domain: "/domain",
        };
        assert_eq!(parse("xen\t/usr/lib/xen\t/domain"), Ok(xen));
        let load = Step::Load(Load {
            name: "cpu",
            unit: "turns",
            telling: Telling::Count,
            program: "/init",
            arguments: vec!["trapline.burn=cpu"],
        });
        let line = "load\tcpu\tturns\tcount\t/init\ttrapline.burn=cpu";
        assert_eq!(parse(line), Ok(load));
        let fifo = Step::Sched(Rules::Fifo(7));
        assert_eq!(parse("sched\tfifo\t7"), Ok(fifo));
        let deadline = Step::Sched(Rules::Deadline {
            runtime: 3,
            period: 10,
        });
        assert_eq!(parse("sched\tdeadline\t3\t10"), Ok(deadline));
        let launch = Step::Launch(Launch {
            child: 3,
            seconds: 60,
            kind: Kind::Asked,
            program: "/usr/bin/qemu",
            arguments: vec!["-append", "two words", ""],
        });
        let line = "launch\t3\t60\tyes\t/usr/bin/qemu\t-append\ttwo words\t";
        assert_eq!(parse(line), Ok(launch));
    }

    #[test]
    fn what_is_no_step_is_named() {
        for (line, named) in [
            ("", "''"),
            ("modul\ta\tb", "modul"),
            ("module\ta", "module\ta"),
            ("sched\tfifo\thigh", "high"),
            ("load\ta\tb\tnow\tp", "now"),
            ("launch\t65536\t1\tno\tp", "65536"),
            ("launch\t0\t1\tmaybe\tp", "maybe"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
