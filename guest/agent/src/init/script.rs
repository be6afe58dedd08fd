//! Scripts: one step per line, words separated by tabs.
//!
//! - `module PATH OPTIONS` loads a kernel module.
//! - `lengths module NAME SECTION OFFSET,...` and `lengths xen FUNCTION` announce before the job which calls find the length
//!   of an instruction; see `init::lengths`.
//! - `write PATH TEXT` writes to a file, mostly to configure the kernel.
//! - `file PATH TEXT` writes to a file a text in percent encoding (RFC 3986, section 2.1).
//! - `variable NAME VALUE` sets an environment variable of custom VMMs that are launched later.
//! - `wait PATH TEXT` waits until a file has this content.
//! - `disk PATH MIB` creates a file of zeros of this size, or empties it.
//! - `xen DIRECTORY FILE` sets up this Linux as the first domain of Xen, with the programs in
//!   DIRECTORY, and creates the domain of the configuration FILE once; see `init::xen`.
//! - `load NAME UNIT REPORT PROGRAM ARGUMENT...` starts a load; see `init::background` and
//!   [`WorkReport`].
//! - `sched fifo PRIORITY` and `sched deadline RUNTIME PERIOD`, in nanoseconds: scheduling policy of
//!   the programs launched later.
//! - `together COUNT` starts the programs of the following COUNT launches at the same moment.
//! - `launch NUMBER SECONDS KIND PROGRAM ARGUMENT...` runs a program until it exits, for at most
//!   SECONDS of the machine's clock. For KIND see [`VmmKind`].

use trapline_abi::job::SCRIPT;
use trapline_spawn::sched::SchedPolicy;

/// Step of a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Loads a kernel module.
    Module {
        /// File.
        path: &'a str,
        /// Parameters, as on a kernel command line.
        options: &'a str,
    },
    /// Announces before the job where the length of an instruction is found.
    Lengths(LengthCalls<'a>),
    /// Writes a text of any characters to a file.
    File {
        /// File.
        path: &'a str,
        /// Text, decoded.
        text: String,
    },
    /// Writes a text with a terminating zero over bytes of a file.
    Overwrite {
        /// File.
        path: &'a str,
        /// Offset of the first byte.
        offset: u64,
        /// Text, decoded.
        text: String,
    },
    /// Sets an environment variable of custom VMMs.
    Variable {
        /// Name.
        name: &'a str,
        /// Value.
        value: &'a str,
    },
    /// Moves this process, and with it all that it starts, to a control group of their own.
    ControlGroup,
    /// Waits until a file has this content.
    Wait {
        /// File.
        path: &'a str,
        /// Content, without a newline.
        text: &'a str,
    },
    /// Creates or empties a file.
    Disk {
        /// File.
        path: &'a str,
        /// Size.
        mib: u32,
    },
    /// Sets up this Linux as the first domain of Xen.
    Xen {
        /// Directory of the programs of Xen.
        programs: &'a str,
        /// Configuration file of a domain.
        domain: &'a str,
    },
    /// Starts a load.
    Load(Load<'a>),
    /// Sets the scheduling policy of launched programs.
    Sched(SchedPolicy),
    /// Starts the programs of this number of launches at the same moment.
    Together(usize),
    /// Runs a program.
    Launch(Launch<'a>),
}

/// Calls that find the length of an instruction.
#[derive(Debug, PartialEq, Eq)]
pub enum LengthCalls<'a> {
    /// In a kernel module.
    Module {
        /// Its name.
        name: &'a str,
        /// The section of its code.
        section: &'a str,
        /// Offsets in the section.
        offsets: Vec<u64>,
    },
    /// Of a function of Xen.
    Xen {
        /// Its name.
        function: &'a str,
    },
}

/// Load to start.
#[derive(Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// Name.
    pub name: &'a str,
    /// Unit of its count.
    pub unit: &'a str,
    /// Source of its count.
    pub report: WorkReport,
    /// File.
    pub program: &'a str,
    /// Arguments, without the program name.
    pub arguments: Vec<&'a str>,
}

/// Source of the amount of work of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkReport {
    /// `count`: a number in its standard output, which is a file.
    Count,
    /// `exits`: KVM counts the exits of its guest.
    Exits,
}

/// Program to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// Index in records.
    pub child: u16,
    /// Time limit, in seconds of the machine's clock.
    pub seconds: u32,
    /// Kind of the VMM.
    pub kind: VmmKind,
    /// Its memory beyond the guest's is reported when the guest has started: `+memory` behind the kind.
    pub reports_memory: bool,
    /// File.
    pub program: &'a str,
    /// Arguments, without the program name.
    pub arguments: Vec<&'a str>,
}

impl<'a> Launch<'a> {
    /// Returns the arguments of the program.
    pub fn program_arguments(&self) -> &[&'a str] {
        let console_lines = usize::from(self.kind == VmmKind::XenConsole);
        &self.arguments[..self.arguments.len().saturating_sub(console_lines)]
    }

    /// Returns the line for the console of the guest.
    pub fn console_line(&self) -> Option<&'a str> {
        let last = self.arguments.last().copied();
        last.filter(|_| self.kind == VmmKind::XenConsole)
    }

    /// Returns the arguments of the toolstack, and the VMM as a launch of its own.
    pub fn split_vmm(&self) -> Option<(&[&'a str], Launch<'a>)> {
        let at = self.arguments.iter().position(|word| *word == SEPARATOR)?;
        let vmm = Launch {
            program: self.arguments.get(at + 1)?,
            arguments: self.arguments[at + 2..].to_vec(),
            kind: VmmKind::Trapline,
            reports_memory: false,
            ..*self
        };
        Some((&self.arguments[..at], vmm))
    }
}

/// Kind of a launched VMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmmKind {
    /// `no`: it reports everything itself.
    Trapline,
    /// `yes`: the TSC offset of its guest is read from the kernel.
    OffsetFromKernel,
    /// `foreign`: a custom VMM, see `init::custom_vmm`. The TSC offset is read from the kernel.
    Custom,
    /// `wrapped`: the same behind a wrapper, whose own instructions are no part of the boot.
    CustomBehindWrapper,
    /// `xen`: the toolstack of Xen, which starts a domain and exits with it; see `init::xen`.
    Xen,
    /// `xen-asked`: as `xen`, but the domain reads its command line from its console: the last
    /// argument, which is not passed to the toolstack.
    XenConsole,
    /// `xen-vmm`: the toolstack of Xen, which creates a paused domain, and behind [`SEPARATOR`] the command of the
    /// VMM that serves it, which ends with an option for the ID of the domain; see `init::xen`.
    XenVmm,
}

/// Suffix of a kind: [`Launch::reports_memory`].
const WITH_MEMORY: &str = "+memory";

/// Argument between the commands of a toolstack and a VMM.
const SEPARATOR: &str = "--";

/// Parses a line.
///
/// # Errors
/// Returns a message that names the invalid word.
pub fn parse(line: &str) -> Result<Step<'_>, String> {
    let words: Vec<&str> = line.split('\t').collect();
    match words[..] {
        ["module", path, options] => Ok(Step::Module { path, options }),
        ["lengths", "module", name, section, offsets] => Ok(Step::Lengths(LengthCalls::Module {
            name,
            section,
            offsets: offsets.split(',').map(number).collect::<Result<_, _>>()?,
        })),
        ["lengths", "xen", function] => Ok(Step::Lengths(LengthCalls::Xen { function })),
        ["file", path, text] => Ok(Step::File {
            path,
            text: decode(text)?,
        }),
        ["overwrite", path, offset, text] => Ok(Step::Overwrite {
            path,
            offset: number(offset)?,
            text: decode(text)?,
        }),
        ["variable", name, value] => Ok(Step::Variable { name, value }),
        ["cgroup"] => Ok(Step::ControlGroup),
        ["wait", path, text] => Ok(Step::Wait { path, text }),
        ["disk", path, mib] => Ok(Step::Disk {
            path,
            mib: number(mib)?,
        }),
        ["xen", programs, domain] => Ok(Step::Xen { programs, domain }),
        ["load", name, unit, report, program, ref arguments @ ..] => Ok(Step::Load(Load {
            name,
            unit,
            report: parse_report(report)?,
            program,
            arguments: arguments.to_vec(),
        })),
        ["sched", "fifo", priority] => Ok(Step::Sched(SchedPolicy::Fifo(number(priority)?))),
        ["sched", "deadline", runtime, period] => Ok(Step::Sched(SchedPolicy::Deadline {
            runtime: number(runtime)?,
            period: number(period)?,
        })),
        ["together", count] => Ok(Step::Together(number(count)?)),
        ["launch", child, seconds, kind, program, ref arguments @ ..] => {
            let plain = kind.strip_suffix(WITH_MEMORY);
            Ok(Step::Launch(Launch {
                child: number(child)?,
                seconds: number(seconds)?,
                kind: parse_kind(plain.unwrap_or(kind))?,
                reports_memory: plain.is_some(),
                program,
                arguments: arguments.to_vec(),
            }))
        }
        _ => Err(format!("'{line}' is not a step")),
    }
}

/// Returns the script that the kernel's command line contains, if any.
///
/// # Errors
/// It is not in percent encoding.
pub fn from_command_line(words: &str) -> Result<Option<String>, String> {
    let mut words = words.split_ascii_whitespace();
    words
        .find_map(|word| word.strip_prefix(SCRIPT))
        .map(|encoded| decode(encoded).map_err(|error| format!("{SCRIPT}: {error}")))
        .transpose()
}

/// Decodes percent encoding, of which each escape is a character below U+0100.
fn decode(encoded: &str) -> Result<String, String> {
    let mut pieces = encoded.split('%');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let escape = piece
            .split_at_checked(2)
            .and_then(|(digits, rest)| Some((u8::from_str_radix(digits, 16).ok()?, rest)));
        let (byte, rest) = escape.ok_or_else(|| format!("invalid escape '%{piece}'"))?;
        text.push(char::from(byte));
        text.push_str(rest);
    }
    Ok(text)
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse()
        .map_err(|_| format!("'{word}' is not a number in range"))
}

fn parse_report(word: &str) -> Result<WorkReport, String> {
    match word {
        "count" => Ok(WorkReport::Count),
        "exits" => Ok(WorkReport::Exits),
        _ => Err(format!("'{word}' is not a source of counts")),
    }
}

fn parse_kind(word: &str) -> Result<VmmKind, String> {
    match word {
        "no" => Ok(VmmKind::Trapline),
        "yes" => Ok(VmmKind::OffsetFromKernel),
        "foreign" => Ok(VmmKind::Custom),
        "wrapped" => Ok(VmmKind::CustomBehindWrapper),
        "xen" => Ok(VmmKind::Xen),
        "xen-asked" => Ok(VmmKind::XenConsole),
        "xen-vmm" => Ok(VmmKind::XenVmm),
        _ => Err(format!("'{word}' is not a kind of VMM")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn calls_that_find_lengths_are_parsed() {
        let lengths = Step::Lengths(LengthCalls::Module {
            name: "kvm_amd",
            section: ".text",
            offsets: vec![6778, 6870],
        });
        assert_eq!(
            parse("lengths\tmodule\tkvm_amd\t.text\t6778,6870"),
            Ok(lengths)
        );
        let xen = LengthCalls::Xen { function: "f" };
        assert_eq!(parse("lengths\txen\tf"), Ok(Step::Lengths(xen)));
        assert!(parse("lengths\tmodule\tkvm_amd\t.text\tx").is_err());
    }

    #[test]
    fn steps_are_parsed() {
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
        let disk = Step::Disk {
            path: "/dev/disk",
            mib: 16,
        };
        assert_eq!(parse("disk\t/dev/disk\t16"), Ok(disk));
        let words = "launch\t0\t9\txen-vmm\t/xl\tcreate\t-p\t--\t/vmm\t--domain";
        let Ok(Step::Launch(launch)) = parse(words) else {
            panic!("{words}");
        };
        let (toolstack, vmm) = launch.split_vmm().unwrap();
        assert_eq!((launch.program, toolstack), ("/xl", &["create", "-p"][..]));
        assert_eq!(
            (vmm.program, &vmm.arguments[..]),
            ("/vmm", &["--domain"][..])
        );
        let xen = Step::Xen {
            programs: "/usr/lib/xen",
            domain: "/domain",
        };
        assert_eq!(parse("xen\t/usr/lib/xen\t/domain"), Ok(xen));
        let load = Step::Load(Load {
            name: "cpu",
            unit: "turns",
            report: WorkReport::Count,
            program: "/init",
            arguments: vec!["trapline.burn=cpu"],
        });
        let line = "load\tcpu\tturns\tcount\t/init\ttrapline.burn=cpu";
        assert_eq!(parse(line), Ok(load));
        assert_eq!(parse("together\t64"), Ok(Step::Together(64)));
        let fifo = Step::Sched(SchedPolicy::Fifo(7));
        assert_eq!(parse("sched\tfifo\t7"), Ok(fifo));
        let deadline = Step::Sched(SchedPolicy::Deadline {
            runtime: 3,
            period: 10,
        });
        assert_eq!(parse("sched\tdeadline\t3\t10"), Ok(deadline));
        let launch = Step::Launch(Launch {
            child: 3,
            seconds: 60,
            kind: VmmKind::OffsetFromKernel,
            reports_memory: true,
            program: "/usr/bin/qemu",
            arguments: vec!["-append", "two words", ""],
        });
        let line = "launch\t3\t60\tyes+memory\t/usr/bin/qemu\t-append\ttwo words\t";
        assert_eq!(parse(line), Ok(launch));
    }

    #[test]
    fn files_and_variables_of_custom_vmms_are_parsed() {
        let file = Step::File {
            path: "/config",
            text: "{\n\t\"a\": \"100%\"}".to_owned(),
        };
        assert_eq!(parse("file\t/config\t{%0A%09\"a\": \"100%25\"}"), Ok(file));
        let overwrite = Step::Overwrite {
            path: "/image",
            offset: 64,
            text: "a\t".to_owned(),
        };
        assert_eq!(parse("overwrite\t/image\t64\ta%09"), Ok(overwrite));
        let (name, value) = ("HOME", "/tmp");
        assert_eq!(
            parse("variable\tHOME\t/tmp"),
            Ok(Step::Variable { name, value })
        );
    }

    #[test]
    fn scripts_of_command_lines_are_decoded() {
        let words = "panic=-1 trapline-script=wait%09/a%09x%20%2520%0A trapline.run=basic";
        let script = from_command_line(words).unwrap();
        assert_eq!(script.as_deref(), Some("wait\t/a\tx %20\n"));
        assert_eq!(from_command_line("panic=-1"), Ok(None));
        let errors = ["a%", "a%2", "%zz", "%é"]
            .map(|bad| from_command_line(&format!("trapline-script={bad}")).unwrap_err());
        expect![[r#"
            trapline-script=: invalid escape '%'
            trapline-script=: invalid escape '%2'
            trapline-script=: invalid escape '%zz'
            trapline-script=: invalid escape '%é'"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn invalid_steps_are_rejected() {
        let lines = [
            "",
            "modul\ta\tb",
            "module\ta",
            "sched\tfifo\thigh",
            "disk\t/dev/disk\tmuch",
            "load\ta\tb\tnow\tp",
            "launch\t65536\t1\tno\tp",
            "launch\t0\t1\tmaybe\tp",
        ];
        let errors = lines.map(|line| parse(line).unwrap_err().replace('\t', " "));
        expect![[r#"
            '' is not a step
            'modul a b' is not a step
            'module a' is not a step
            'high' is not a number in range
            'much' is not a number in range
            'now' is not a source of counts
            '65536' is not a number in range
            'maybe' is not a kind of VMM"#]]
        .assert_eq(&errors.join("\n"));
    }
}
