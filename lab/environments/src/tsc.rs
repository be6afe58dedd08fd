//! How long a tick of this host's time stamp counter is.

use std::sync::OnceLock;
use std::time::Duration;
use trapline_spawn::ticks;

/// Time between the two readings that give the rate.
const SPAN: Duration = Duration::from_millis(25);

/// Readings of both clocks, of which the closest pair is used.
const TRIES: u32 = 16;

/// The rate of the counter.
#[derive(Clone, Debug)]
pub struct Rate {
    /// Ticks a second, measured against CLOCK_MONOTONIC_RAW.
    pub hertz: f64,
    /// How wrong that may be, as a fraction.
    pub uncertainty: f64,
    /// Ticks a second as the processor or the hypervisor says, if one does.
    pub announced: Option<f64>,
}

impl Rate {
    /// The rate of this host's counter, measured once for the life of the process.
    pub fn of_this_host() -> &'static Rate {
        static RATE: OnceLock<Rate> = OnceLock::new();
        RATE.get_or_init(measure)
    }

    /// Nanoseconds a tick.
    pub fn ns_per_tick(&self) -> f64 {
        1e9 / self.hertz
    }

    /// The rate in words, for the facts.
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

    /// What is wrong with the counter as a clock, if anything is.
    pub fn doubt(&self) -> Option<String> {
        let announced = self.announced?;
        let off = (self.hertz / announced - 1.0).abs();
        (off > 0.001).then(|| {
            format!(
                "the TSC runs at {:.3} MHz but is announced with {:.3} MHz",
                self.hertz / 1e6,
                announced / 1e6
            )
        })
    }
}

fn measure() -> Rate {
    let first = reading();
    std::thread::sleep(SPAN);
    let second = reading();
    let ns = (second.ns - first.ns) as f64;
    let ticks = second.ticks.wrapping_sub(first.ticks) as f64;
    let hertz = ticks * 1e9 / ns;
    Rate {
        hertz,
        uncertainty: (first.width + second.width) as f64 / ticks,
        announced: announced(),
    }
}

/// Both clocks at nearly one moment.
struct Reading {
    ticks: u64,
    ns: i128,
    /// Ticks between the counter's readings before and after the other clock's.
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

/// eax, ebx, ecx, edx of a leaf.
fn cpuid(leaf: u32) -> [u32; 4] {
    // Newer compilers call it safe.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing.
    let result = unsafe { core::arch::x86_64::__cpuid(leaf) };
    [result.eax, result.ebx, result.ecx, result.edx]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_agrees_with_another_clock() {
        let rate = Rate::of_this_host();
        assert!((1e8..1e10).contains(&rate.hertz), "{rate:?}");
        let start = (ticks(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(60));
        let took = (ticks() - start.0) as f64 * rate.ns_per_tick();
        let expected = start.1.elapsed().as_nanos() as f64;
        assert!((took / expected - 1.0).abs() < 0.02, "{took} {expected}");
    }

    #[test]
    fn a_counter_that_is_not_what_it_says_is_doubted() {
        let rate = |announced| Rate {
            hertz: 1e9,
            uncertainty: 0.0,
            announced,
        };
        assert_eq!(rate(None).doubt(), None);
        assert_eq!(rate(Some(1.0001e9)).doubt(), None);
        assert!(rate(Some(2e9)).doubt().unwrap().contains("2000.000 MHz"));
    }
}
