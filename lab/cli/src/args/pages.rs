//! Notes, examples and exit statuses of commands, once for help and for manual pages; environment
//! variables and files for manual pages.

/// Text of the help and of the manual page of a command, beside its options.
pub struct Page {
    /// Name of the command; `trapline` for the program itself.
    pub command: &'static str,
    /// Paragraphs.
    pub notes: &'static str,
    /// Command lines, with an explanation that may be empty.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses with their meaning; those of the program if there are none.
    pub statuses: &'static [(u8, &'static str)],
}

const NO_PAGE: Page = Page {
    command: "",
    notes: "",
    examples: &[],
    statuses: &[],
};

/// Pages by command.
pub const PAGES: [Page; 19] = [
    Page {
        command: "trapline",
        examples: &[
            ("trapline doctor", "what this host can measure"),
            ("trapline run", "measure everything that it can"),
            ("trapline compare kvm qemu-kvm", "whether two VMMs differ"),
            (
                "trapline explain sim/kvm exits/port-out",
                "the instructions of an exit",
            ),
        ],
        statuses: &[
            (
                0,
                "something was measured; operations that cannot be are listed as skipped",
            ),
            (
                1,
                "an operation that should work failed, in any boot, or changed (--fail-on)",
            ),
            (
                2,
                "invalid command line, or a store that another host writes",
            ),
            (3, "two runs on the instruction clock differ"),
            (4, "nothing that was asked for can be measured on this host"),
            (5, "irq: the requirement of --require is not proven"),
            (
                130,
                "interrupted by SIGINT, at any time; finished boots are stored (143: SIGTERM)",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "fleet",
        notes: "An engine executes 'DIR/package/trapline fleet work DIR N' once for\n\
                each slice N, on any machine that sees DIR. What is done is a file\n\
                there, so that all commands can be repeated.",
        examples: &[
            ("trapline fleet create DIR plan.toml --slices 50", ""),
            ("trapline fleet submit DIR --on slurm", ""),
            ("trapline fleet collect DIR", ""),
        ],
        ..NO_PAGE
    },
    Page {
        command: "list",
        examples: &[
            ("trapline list exits", "the operations of a workload"),
            (
                "trapline list sim/kvm",
                "an environment, and why it is unavailable",
            ),
            ("trapline list --all", ""),
        ],
        ..NO_PAGE
    },
    Page {
        command: "run",
        examples: &[
            (
                "trapline run --env sim,sim/kvm --workload exits",
                "a selection",
            ),
            ("trapline run --preset full --format json > run.json", ""),
            (
                "trapline run --vmm 'vmm {image} {cmdline}' --env custom",
                "another VMM",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "irq",
        notes: "10,000 expiries with a period of 10 ms take 100 s per timer.",
        examples: &[
            ("trapline irq --env kvm --period 1ms --load cpu", ""),
            (
                "trapline irq --env sim/kvm --require 99.9% --threshold 30us",
                "",
            ),
        ],
        statuses: &[
            (
                0,
                "success; with --require: met by every timer in every environment",
            ),
            (1, "an operation failed; with --require: not met by a timer"),
            (2, "invalid command line"),
            (3, "two runs on the instruction clock differ"),
            (4, "with --require: nothing can be measured on this host"),
            (
                5,
                "with --require: not proven for a timer, and violated by none",
            ),
        ],
    },
    Page {
        command: "populate",
        notes: "\
A region of order N has 2^N pages of 4 KiB: 4 KiB, 32 KiB, 2 MiB and 1 GiB.
Regions are mapped on demand and prepopulated, with pages of 4 KiB and, if large
enough, of 2 MiB.

With --co-tenant each method is a run of its own; trapline show --list lists
them. Regions that are too large for the simulated machine are skipped.",
        examples: &[("trapline populate --env kvm --order 0,9", "")],
        ..NO_PAGE
    },
    Page {
        command: "block",
        notes: "\
Requests of 4 KiB have random, distinct offsets; those of 1 MiB are sequential.
The number at the end of a name is the queue depth; -sync flushes after each
request (fdatasync). I/O is direct where the file system supports it, and data
is verified.

Each boot writes the whole file first. An operation takes at most 10 s.",
        examples: &[("trapline block --env host,kvm/linux --op read-4k-1", "")],
        ..NO_PAGE
    },
    Page {
        command: "boot",
        notes: "\
On a terminal, Ctrl-A is a prefix: Ctrl-A x ends the machine, p presses its
power button, h prints help, and a sends Ctrl-A itself.",
        examples: &[
            ("trapline boot", "the distribution's kernel, and a shell"),
            ("trapline boot --initrd initrd.cpio", ""),
            (
                "trapline boot --kernel vmlinuz --disk root.img --append 'root=/dev/vda rw'",
                "",
            ),
            (
                "trapline boot --initrd initrd.cpio --json --api vm.sock 2> console.txt",
                "",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "kernel-build",
        examples: &[("trapline kernel-build --env host,kvm/linux --cpus 1,2", "")],
        ..NO_PAGE
    },
    Page {
        command: "net",
        notes: "\
A path is a forwarder between two ports. The ports are one thread without guests:
they send numbered frames and check each that arrives. Others are compared with
the first of the table, in rounds that measure each once.

--forwarder gives a program between two vhost-user sockets, {a} and {b}, which
it opens; {cpu} is the CPU that it is to use.",
        examples: &[
            (
                "trapline net",
                "the switch, and what this host has beside it",
            ),
            (
                "trapline net --path switch,testpmd --load search",
                "with the rates without loss",
            ),
            (
                "trapline net --path switch,mine --forwarder 'mine=./mine {a} {b}'",
                "",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "compare",
        notes: "\
Settings: cpus, memory, pin, idle; and replacements of files: image, agent, vmm,
qemu, kernel with modules. The same configuration twice is an A/A comparison,
which shows noise.",
        examples: &[
            ("trapline compare kvm qemu-kvm", ""),
            (
                "trapline compare kvm:vmm=old/trapline-vmm kvm --workload exits",
                "",
            ),
            (
                "trapline compare sim/kvm sim/qemu-kvm --workload exits,boot",
                "",
            ),
            (
                "trapline compare 12 15",
                "the environments that both runs have",
            ),
            ("trapline compare 12/kvm 12/qemu-kvm", ""),
        ],
        ..NO_PAGE
    },
    Page {
        command: "show",
        examples: &[
            ("trapline show --run 12 --all", "all tables of a run"),
            ("trapline show --list", "the stored runs"),
        ],
        ..NO_PAGE
    },
    Page {
        command: "report",
        examples: &[("trapline report --run 12 --output run.html --open", "")],
        ..NO_PAGE
    },
    Page {
        command: "history",
        examples: &[
            ("trapline history --env sim/kvm", ""),
            (
                "trapline history --format html > history.html",
                "a plot of each series",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "export",
        examples: &[("trapline export --help", "the formats and their columns")],
        ..NO_PAGE
    },
    Page {
        command: "explain",
        examples: &[
            ("trapline explain sim/kvm exits/port-out", ""),
            (
                "trapline explain sim/kvm sim/qemu-kvm exits/port-out",
                "the difference",
            ),
        ],
        ..NO_PAGE
    },
    Page {
        command: "baseline",
        notes: "\
The baseline is written to standard output. It has the figures and their profiles,
from which 'trapline check' names functions; if QEMU cannot load the plugin that
counts, a note says so and the baseline has figures only.",
        examples: &[("trapline baseline --env sim/kvm > sim-kvm.json", "")],
        statuses: &[
            (0, "success"),
            (1, "an operation failed"),
            (2, "invalid command line"),
            (3, "two runs gave different figures"),
            (4, "an environment cannot be measured on this host"),
        ],
    },
    Page {
        command: "check",
        notes: "\
If a figure changed and the baseline has profiles, the environment is run again to
name the functions that gained or lost instructions.",
        examples: &[("trapline check --baseline sim-kvm.json", "")],
        statuses: &[
            (0, "every figure is equal, or within its tolerance"),
            (1, "a figure changed, vanished or appeared"),
            (2, "invalid command line or baseline"),
            (3, "two runs gave different figures"),
            (
                4,
                "an environment of the baseline cannot be measured on this host",
            ),
        ],
    },
    Page {
        command: "bisect",
        notes: "\
Commits that cannot be built or measured are skipped. The search follows first
parents. The commit that is found and the one before it are built and measured
again, for the functions that changed. Relative paths in the command of a VMM,
by --vmm or by name, and that of --kernel, are those of each commit, and have a
slash.",
        examples: &[(
            "trapline bisect --good v1 --bad HEAD --build 'make build' --workload exits",
            "",
        )],
        statuses: &[
            (0, "the commit is found"),
            (1, "only a range is found, or no figure differs"),
            (
                2,
                "invalid command line, or the programs of both commits are identical",
            ),
            (
                3,
                "two runs of the good or the bad commit gave different figures",
            ),
            (
                4,
                "the good or the bad commit cannot be built or measured on this host",
            ),
        ],
    },
];

/// Environment variables with their meaning.
pub const VARIABLES: [(&str, &str); 7] = [
    (
        "XDG_DATA_HOME",
        "directory of the store, in place of ~/.local/share",
    ),
    (
        "XDG_CACHE_HOME",
        "directory of the cache, in place of ~/.cache",
    ),
    (
        "TRAPLINE_PARTS",
        "directory of the VMM, the agent, the image and the libraries",
    ),
    (
        "TRAPLINE_CACHE_LIMIT",
        "limit of all snapshots, as --cache-limit",
    ),
    ("NO_COLOR", "no colour if it is set"),
    ("COLUMNS", "width of the output without a terminal"),
    (
        "COMPLETE",
        "shell whose completions are printed; see 'trapline completions'",
    ),
];

/// Files with their content.
pub const FILES: [(&str, &str); 3] = [
    (
        "~/.local/share/trapline/trapline.db",
        "the store: raw samples of all runs, in SQLite",
    ),
    (
        "~/.cache/trapline",
        "kernels, Xen and snapshots of simulated machines",
    ),
    ("/dev/kvm", "hardware virtualization"),
];

/// Returns the page of a command; an empty one if it has none.
pub fn page(command: &str) -> &'static Page {
    let known = PAGES.iter().find(|page| page.command == command);
    known.unwrap_or(&NO_PAGE)
}

impl Page {
    /// Returns the exit statuses of the command.
    pub fn statuses(&self) -> &'static [(u8, &'static str)] {
        match self.statuses {
            [] => PAGES[0].statuses,
            own => own,
        }
    }
}

/// Returns the text below the options in the help of a command.
pub fn after_help(command: &str) -> String {
    let page = page(command);
    let statuses = page.statuses.iter();
    let statuses: Vec<String> = statuses
        .map(|(status, meaning)| format!("  {status:<3}  {meaning}"))
        .collect();
    paragraphs([
        page.notes.to_owned(),
        examples(page),
        titled("Exit status:", &statuses),
    ])
}

/// Returns the text below the basic options in the short help of a command.
pub fn after_short_help(command: &str) -> String {
    let whole = match command {
        "trapline" => "trapline --help".to_owned(),
        name => format!("trapline {name} --help"),
    };
    paragraphs([examples(page(command)), format!("All options: '{whole}'")])
}

fn examples(page: &Page) -> String {
    let lines = page.examples.iter().map(|(line, meaning)| {
        let line = format!("  {line:<36}  {meaning}");
        line.trim_end().to_owned()
    });
    titled("Examples:", &lines.collect::<Vec<_>>())
}

fn paragraphs<const COUNT: usize>(parts: [String; COUNT]) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

fn titled(title: &str, lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => format!("{title}\n{}", lines.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_page_is_of_a_command_and_fits_80_columns() {
        let cli = Cli::command();
        for page in &PAGES[1..] {
            assert!(
                cli.find_subcommand(page.command).is_some(),
                "{}",
                page.command
            );
        }
        for line in PAGES.iter().flat_map(|page| {
            let text = after_help(page.command);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        }) {
            assert!(line.chars().count() <= 84, "{line}");
        }
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        for (line, _) in PAGES.iter().flat_map(|page| page.examples) {
            let line = line
                .split(" > ")
                .next()
                .unwrap()
                .split(" 2> ")
                .next()
                .unwrap();
            let mut words = Vec::new();
            for (index, part) in line.split('\'').enumerate() {
                match index % 2 {
                    0 => words.extend(part.split_whitespace()),
                    _ => words.push(part),
                }
            }
            let parsed = Cli::try_parse_from(words);
            let is_help = |error: &clap::Error| error.exit_code() == 0;
            assert!(
                parsed.as_ref().err().is_none_or(is_help),
                "{line}: {parsed:?}"
            );
        }
    }
}
