//! Rate of this host's time stamp counter (TSC).

use std::sync::OnceLock;
use std::time::Duration;
use trapline_spawn::ticks;

/// Time between the two readings.
const SPAN: Duration = Duration::from_millis(25);

/// Number of readings of both clocks; the closest pair is used.
const TRIES: u32 = 16;

/// The rate of the TSC.
#[derive(Clone, Debug)]
pub struct TscRate {
    /// Ticks per second, measured against CLOCK_MONOTONIC_RAW.
    pub hertz: f64,
    /// Relative uncertainty of the measurement.
    pub uncertainty: f64,
    /// Ticks per second reported by processor or hypervisor, if any.
    pub announced: Option<f64>,
}

impl TscRate {
    /// Returns the rate of this host, measured once per process.
    pub fn host() -> &'static Self {
        static RATE: OnceLock<TscRate> = OnceLock::new();
        RATE.get_or_init(measure)
    }

    /// Returns nanoseconds per tick.
    pub fn ns_per_tick(&self) -> f64 {
        1e9 / self.hertz
    }

    /// Formats the rate for the facts.
    pub fn describe(&self) -> String {
        let announced = match self.announced {
            Some(hertz) => format!("{:.3} MHz announced", hertz / 1e6),
            None => "none announced".to_owned(),
        };
        format!(
            "{:.3} MHz measured (+-{:.1} ppm), {announced}",
            self.hertz / 1e6,
            self.uncertainty * 1e6
        )
    }

    /// Returns how the measured rate contradicts the reported one, if it does.
    pub fn contradiction(&self) -> Option<String> {
        let announced = self.announced?;
        let off = (self.hertz / announced - 1.0).abs();
        (off > 0.001).then(|| {
            format!(
                "TSC runs at {:.3} MHz, but is announced as {:.3} MHz",
                self.hertz / 1e6,
                announced / 1e6
            )
        })
    }
}

fn measure() -> TscRate {
    let first = reading();
    std::thread::sleep(SPAN);
    let second = reading();
    let ns = (second.ns - first.ns) as f64;
    let ticks = second.ticks.wrapping_sub(first.ticks) as f64;
    let hertz = ticks * 1e9 / ns;
    TscRate {
        hertz,
        uncertainty: (first.width + second.width) as f64 / ticks,
        announced: announced(),
    }
}

/// Both clocks at nearly the same instant.
struct Reading {
    ticks: u64,
    ns: i128,
    /// Ticks between the TSC readings before and after the other clock's.
    width: u64,
}

fn reading() -> Reading {
    let once = |_| {
        let before = ticks();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
        let width = ticks().wrapping_sub(before);
        Reading {
            ticks: before.wrapping_add(width / 2),
            ns: i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec),
            width,
        }
    };
    let first = once(0);
    (1..TRIES).map(once).fold(
        first,
        |best, next| {
            if next.width < best.width {
                next
            } else {
                best
            }
        },
    )
}

/// Leaf 0x15 (Intel SDM volume 2, CPUID) or KVM's and VMware's timing leaf.
fn announced() -> Option<f64> {
    let [most, ..] = cpuid(0);
    if most >= 0x15 {
        let [denominator, numerator, crystal, _] = cpuid(0x15);
        if denominator != 0 && numerator != 0 && crystal != 0 {
            let crystal = f64::from(crystal);
            return Some(crystal * f64::from(numerator) / f64::from(denominator));
        }
    }
    let [.., features, _] = cpuid(1);
    let is_guest = features >> 31 & 1 == 1;
    if is_guest && cpuid(0x4000_0000)[0] >= 0x4000_0010 {
        let [kilohertz, ..] = cpuid(0x4000_0010);
        return (kilohertz != 0).then(|| f64::from(kilohertz) * 1e3);
    }
    None
}

/// Returns eax, ebx, ecx and edx of a leaf.
fn cpuid(leaf: u32) -> [u32; 4] {
    let result = core::arch::x86_64::__cpuid(leaf);
    [result.eax, result.ebx, result.ecx, result.edx]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn rate_agrees_with_another_clock() {
        let rate = TscRate::host();
        assert!((1e8..1e10).contains(&rate.hertz), "{rate:?}");
        let start = (ticks(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(60));
        let took = (ticks() - start.0) as f64 * rate.ns_per_tick();
        let expected = start.1.elapsed().as_nanos() as f64;
        assert!((took / expected - 1.0).abs() < 0.02, "{took} {expected}");
    }

    #[test]
    fn wrong_announced_rate_is_a_contradiction() {
        let rate = |announced| TscRate {
            hertz: 1e9,
            uncertainty: 0.0,
            announced,
        };
        assert_eq!(rate(None).contradiction(), None);
        assert_eq!(rate(Some(1.0001e9)).contradiction(), None);
        expect!["TSC runs at 1000.000 MHz, but is announced as 2000.000 MHz"]
            .assert_eq(&rate(Some(2e9)).contradiction().unwrap());
    }
}
