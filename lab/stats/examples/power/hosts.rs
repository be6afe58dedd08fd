//! Simulated hosts: the noise of a boot's figure, as a logarithm.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::rng::normal;
use trapline_stats::verdict::{BootValues, Design, TestInput};

/// A kind of noise.
#[derive(Clone, Copy, PartialEq)]
pub enum Host {
    Normal,
    Tail,
    Modes,
    Drift,
}

impl Host {
    pub const ALL: [Self; 4] = [Self::Normal, Self::Tail, Self::Modes, Self::Drift];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Tail => "tail",
            Self::Modes => "modes",
            Self::Drift => "drift",
        }
    }

    pub fn noise(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Normal | Self::Drift => 0.01 * normal(rng),
            Self::Tail => {
                let late = rng.random::<f64>() < 0.1;
                0.007 * normal(rng) + if late { 0.05 * exponential(rng) } else { 0.0 }
            }
            Self::Modes => {
                let slow = rng.random::<f64>() < 0.3;
                0.003 * normal(rng) + if slow { 0.04 } else { 0.0 }
            }
        }
    }

    /// Draws the change from one block to the next that all its boots share.
    fn step(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Drift => 0.05 * normal(rng) + 0.01,
            _ => 0.0,
        }
    }

    /// Simulates boots of A and of B, which costs `1 + effect` times as much.
    pub fn measured(
        self,
        blocks: usize,
        effect: f64,
        design: Design,
        rng: &mut ChaCha8Rng,
    ) -> TestInput {
        let mut input = TestInput {
            clock: Clock::Wall,
            design,
            a: Vec::with_capacity(blocks),
            b: Vec::with_capacity(blocks),
        };
        let mut level = 1000.0_f64.ln();
        for block in 0..blocks as u32 {
            level += self.step(rng);
            let a = level + self.noise(rng);
            let b = level + self.noise(rng) + effect.ln_1p();
            input.a.push(boot(block, a));
            input.b.push(boot(block, b));
        }
        input
    }
}

pub fn boot(block: u32, logarithm: f64) -> BootValues {
    BootValues {
        block,
        batches: vec![logarithm.exp()],
        mean: Some(logarithm.exp()),
    }
}

pub fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

pub fn explain() {
    println!("Simulated hosts: differences between boots of one configuration");
    println!("  normal  normal on the logarithm, 1%");
    println!("  tail    0.7%; one boot in ten is later by 5% on average, exponentially");
    println!("  modes   0.3%; three boots in ten are 4% slower");
    println!("  drift   1%; besides, from block to block all boots move by 5%\n");
}
