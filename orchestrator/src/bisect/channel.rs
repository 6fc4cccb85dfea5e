//! What one more run is expected to teach.

/// A run seen as a message about good or bad that arrives through noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Channel {
    /// Two normal levels this many standard deviations apart.
    Gaussian {
        /// In standard deviations.
        distance: f64,
    },
    /// An event with one of two rates.
    Binary {
        /// Rate on the good side.
        good: f64,
        /// Rate on the bad side.
        bad: f64,
    },
    /// One look decides.
    Clear,
}

impl Channel {
    /// Mutual information in nats between a run's answer and whether the place
    /// is bad, when it is so with probability `p` (Cover and Thomas, "Elements
    /// of Information Theory", section 2.4).
    pub fn information(&self, p: f64) -> f64 {
        if p <= 0.0 || p >= 1.0 {
            return 0.0;
        }
        match *self {
            Self::Clear => -p * p.ln() - (1.0 - p) * (1.0 - p).ln(),
            Self::Binary { good, bad } => {
                let seen = p * bad + (1.0 - p) * good;
                let part = |joint: f64, marginal: f64, prior: f64| {
                    if joint > 0.0 {
                        joint * (joint / (marginal * prior)).ln()
                    } else {
                        0.0
                    }
                };
                part(p * bad, seen, p)
                    + part((1.0 - p) * good, seen, 1.0 - p)
                    + part(p * (1.0 - bad), 1.0 - seen, p)
                    + part((1.0 - p) * (1.0 - good), 1.0 - seen, 1.0 - p)
            }
            Self::Gaussian { distance } => {
                // Each side's expectation of ln(posterior / prior) over a normal
                // run of that side; a rectangle rule is exact enough for a smooth
                // integrand that dies off.
                let mut total = 0.0;
                let mut mass = 0.0;
                for step in -20..=20 {
                    let z = f64::from(step) * 0.25;
                    let weight = (-0.5 * z * z).exp();
                    let shift = distance * z;
                    let half = distance * distance / 2.0;
                    let bad = -(p + (1.0 - p) * (-(half + shift)).exp()).ln();
                    let good = -((1.0 - p) + p * (-half + shift).exp()).ln();
                    total += weight * (p * bad + (1.0 - p) * good);
                    mass += weight;
                }
                (total / mass).max(0.0)
            }
        }
    }
}

/// Information over the probability of bad, from a table: a bisection asks for
/// thousands of points of one smooth curve.
#[derive(Debug, Clone)]
pub struct InformationTable([f64; Self::CELLS + 1]);

impl InformationTable {
    const CELLS: usize = 128;

    /// Of a channel.
    pub fn new(channel: &Channel) -> Self {
        Self(std::array::from_fn(|i| {
            channel.information(fraction(i) / fraction(Self::CELLS))
        }))
    }

    /// Information in nats at probability `p` of bad.
    pub fn at(&self, p: f64) -> f64 {
        let position = p.clamp(0.0, 1.0) * fraction(Self::CELLS);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of cells"
        )]
        let cell = (position as usize).min(Self::CELLS - 1);
        let within = position - fraction(cell);
        self.0[cell] * (1.0 - within) + self.0[cell + 1] * within
    }
}

#[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
fn fraction(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_has_the_known_limits() {
        let far = Channel::Gaussian { distance: 12.0 };
        assert!((far.information(0.5) - 2f64.ln()).abs() < 1e-6);
        assert!(Channel::Gaussian { distance: 0.0 }.information(0.5) < 1e-12);
        assert!((Channel::Clear.information(0.5) - 2f64.ln()).abs() < 1e-12);
        let fair = Channel::Binary {
            good: 0.0,
            bad: 1.0,
        };
        assert!((fair.information(0.25) - Channel::Clear.information(0.25)).abs() < 1e-12);
        // Capacity of the binary-input Gaussian channel at 0 dB (antipodal inputs
        // at ±1, noise 1: two deviations apart) is 0.486 bit.
        let bits = Channel::Gaussian { distance: 2.0 }.information(0.5) / 2f64.ln();
        assert!((bits - 0.486).abs() < 0.002, "{bits}");
    }
}
