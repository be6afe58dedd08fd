//! Checks of the processor: model, time stamp counter, and nesting.

use super::Finding;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The first CPU in `/proc/cpuinfo`, and the number of CPUs.
#[derive(Debug, Default, PartialEq)]
pub struct Processor {
    /// `model name`.
    pub model: String,
    /// `microcode`.
    pub microcode: String,
    /// Number of online CPUs.
    pub count: usize,
    /// `flags`.
    pub flags: BTreeSet<String>,
}

impl Processor {
    /// Returns whether the kernel lists this feature.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
}

/// Parses `/proc/cpuinfo`.
pub fn parse(cpuinfo: &str) -> Processor {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let first = |key: &str| {
        let field = fields().find(|(name, _)| name.trim() == key);
        field.map_or("", |(_, value)| value.trim())
    };
    Processor {
        model: first("model name").to_owned(),
        microcode: first("microcode").to_owned(),
        count: fields()
            .filter(|(name, _)| name.trim() == "processor")
            .count(),
        flags: first("flags")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

/// Checks model and number of CPUs.
pub fn judge(processor: &Processor) -> Finding {
    let found = format!("{}, {} online", processor.model, processor.count);
    if processor.count < 2 {
        return Finding::note(
            "cpu",
            found + ": the lab and the guest share it, so times include both",
        );
    }
    Finding::ok("cpu", found)
}

/// Returns the frequency of the time stamp counter in hertz, measured against the kernel's clock for
/// `span`.
pub fn measure_tsc(span: Duration) -> f64 {
    let (ticks, start) = (read_tsc(), Instant::now());
    std::thread::sleep(span);
    let (ticks, elapsed) = (read_tsc().wrapping_sub(ticks), start.elapsed());
    ticks as f64 / elapsed.as_secs_f64()
}

fn read_tsc() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc, and Linux leaves it open to
    // processes unless one has asked for PR_TSC_SIGSEGV, which we never do.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Checks that the counter can relate guest and host clocks.
pub fn judge_tsc(processor: &Processor, clock_source: &str, hertz: f64) -> Finding {
    let rate = format!("{:.0} MHz measured", hertz / 1e6);
    let missing: Vec<_> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !processor.has(flag))
        .collect();
    if !missing.is_empty() {
        let found = format!(
            "{rate}, but not {}: guest ticks do not measure time",
            missing.join(" and ")
        );
        return Finding::problem("tsc", found)
            .remedy("measure on a processor, or in a virtual machine, with an invariant TSC");
    }
    if clock_source != "tsc" {
        let found = format!("constant, nonstop, {rate}, but the kernel's clock is {clock_source}: reading it costs more");
        return Finding::note("tsc", found)
            .remedy(format!("echo tsc | sudo tee {}", super::CLOCK_SOURCE));
    }
    Finding::ok("tsc", format!("constant, nonstop, {rate}"))
}

/// Returns the name of the hypervisor in CPUID leaf 0x40000000.
pub fn hypervisor_signature() -> Option<String> {
    let cpuid = raw_cpuid::CpuId::new();
    Some(match cpuid.get_hypervisor_info()?.identify() {
        raw_cpuid::Hypervisor::Unknown(b, c, d) => unknown_signature([b, c, d]),
        known => format!("{known:?}"),
    })
}

fn unknown_signature(words: [u32; 3]) -> String {
    let bytes = words.into_iter().flat_map(u32::to_le_bytes);
    bytes.filter(u8::is_ascii_graphic).map(char::from).collect()
}

/// Checks whether this host is a virtual machine.
pub fn judge_nesting(processor: &Processor, signature: Option<String>) -> Finding {
    if !processor.has("hypervisor") {
        return Finding::ok(
            "nesting",
            "none: this is bare metal according to the processor",
        );
    }
    let name = signature.filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "an unknown hypervisor".to_owned());
    let found = format!(
        "this machine is virtual, under {name}: wall-clock figures are those of nested guests, with noise of co-tenants"
    );
    Finding::note("nesting", found).remedy("measure on bare metal for figures of hardware")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use expect_test::expect;

    const CPUINFO: &str = "\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9654 96-Core Processor
flags\t\t: fpu vme tsc msr constant_tsc nonstop_tsc svm hypervisor

processor\t: 1
model name\t: AMD EPYC 9654 96-Core Processor
flags\t\t: fpu vme
";

    #[test]
    fn cpuinfo_is_read() {
        let processor = parse(CPUINFO);
        assert_eq!(processor.model, "AMD EPYC 9654 96-Core Processor");
        assert_eq!(processor.count, 2);
        assert!(processor.has("svm") && !processor.has("vmx"));
        assert_eq!(parse(""), Processor::default());
    }

    #[test]
    fn a_variable_counter_is_a_problem_and_another_clock_source_a_note() {
        let steady = parse(CPUINFO);
        assert_eq!(
            judge_tsc(&steady, "tsc", 2.6e9).found,
            "constant, nonstop, 2600 MHz measured"
        );
        assert_eq!(judge_tsc(&steady, "hpet", 2.6e9).verdict, Verdict::Note);
        let unsteady = judge_tsc(&Processor::default(), "tsc", 2.6e9);
        assert_eq!(unsteady.verdict, Verdict::Problem);
        expect!["2600 MHz measured, but not constant_tsc and nonstop_tsc: guest ticks do not measure time"].assert_eq(&unsteady.found);
    }

    #[test]
    fn nesting_names_the_hypervisor() {
        let nested = judge_nesting(&parse(CPUINFO), Some("KVM".to_owned()));
        expect!["this machine is virtual, under KVM: wall-clock figures are those of nested guests, with noise of co-tenants"].assert_eq(&nested.found);
        assert_eq!(
            judge_nesting(&Processor::default(), None).verdict,
            Verdict::Ok
        );
        let words = [b"Lgue", b"st\0\0", b"\0\0\0\0"].map(|w| u32::from_le_bytes(*w));
        assert_eq!(unknown_signature(words), "Lguest");
    }

    #[test]
    fn the_counter_has_a_plausible_frequency() {
        let hertz = measure_tsc(Duration::from_millis(20));
        assert!((1e8..1e11).contains(&hertz), "{hertz}");
    }
}
