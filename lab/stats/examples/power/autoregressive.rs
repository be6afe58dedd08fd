//! First-order autoregressive noise of unit variance.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The distribution of the innovations.
#[derive(Clone, Copy, PartialEq)]
pub enum Innovations {
    Normal,
    /// Student's t distribution with three degrees of freedom.
    HeavyTailed,
}

impl Innovations {
    pub const ALL: [Self; 2] = [Self::Normal, Self::HeavyTailed];

    pub fn draw(self, rng: &mut ChaCha8Rng) -> f64 {
        let uniform = 1.0 - rng.random::<f64>();
        let angle = (std::f64::consts::TAU * rng.random::<f64>()).cos();
        match self {
            // Box and Muller (1958).
            Self::Normal => (-2.0 * uniform.ln()).sqrt() * angle,
            // Bailey (1994), divided by the standard deviation, the root of 3.
            Self::HeavyTailed => (uniform.powf(-2.0 / 3.0) - 1.0).sqrt() * angle,
        }
    }
}

/// Values before the first, after which a start from 0 is forgotten.
pub const BURN_IN: usize = 40;

/// Turns innovations into noise of autocorrelation `phi`; the first [`BURN_IN`] are dropped.
pub fn autoregressive(innovations: &[f64], phi: f64, noise: &mut Vec<f64>) {
    let scale = (1.0 - phi * phi).sqrt();
    let values = innovations.iter().scan(0.0, |last, innovation| {
        *last = phi * *last + scale * innovation;
        Some(*last)
    });
    noise.clear();
    noise.extend(values.skip(BURN_IN));
}
