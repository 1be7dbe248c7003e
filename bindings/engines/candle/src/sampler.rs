//! Chooses a token from logits: see [`Sampler`].
use candle_core::{bail, Result, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Chooses tokens: the most probable one, or at random.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    random: StdRng,
}

impl Sampler {
    /// A temperature of 0 always chooses the most probable token. `top_p` restricts the choice to
    /// the most probable tokens of this total probability. It fails if the temperature is below 0,
    /// or `top_p` is not above 0 and at most 1.
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Result<Self> {
        if !(temperature >= 0.0 && temperature.is_finite()) {
            bail!("a temperature of {temperature} is not 0 or more")
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            bail!("a top-p of {top_p} is not above 0 and at most 1")
        }
        Ok(Self { temperature, top_p, random: StdRng::seed_from_u64(seed) })
    }

    /// Always chooses the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, random: StdRng::seed_from_u64(0) }
    }

    /// Returns a token for logits `[vocabulary]`. It fails if a logit is NaN or the largest is
    /// infinite.
    pub fn choose(&mut self, logits: &Tensor) -> Result<u32> {
        let logits = logits.to_vec1::<f32>()?;
        let best = likeliest(&logits)?;
        if self.temperature == 0.0 {
            return Ok(best as u32);
        }
        // In 64 bits, and with the largest at 0, no temperature is too small.
        let (max, temperature) = (f64::from(logits[best]), f64::from(self.temperature));
        let weight = |logit: &f32| ((f64::from(*logit) - max) / temperature).exp();
        let mut tokens: Vec<(usize, f64)> = logits.iter().map(weight).enumerate().collect();
        let sum: f64 = tokens.iter().map(|(_, weight)| weight).sum();
        if self.top_p < 1.0 {
            tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut before = 0.0;
            tokens.retain(|(_, weight)| {
                let kept = before < f64::from(self.top_p) * sum;
                before += weight;
                kept
            });
        }
        let kept: f64 = tokens.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.random::<f64>() * kept;
        let chosen = tokens.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        Ok(chosen.map_or(best, |(token, _)| *token) as u32)
    }
}

/// Returns the index of the largest number, the first of equal ones.
fn likeliest(logits: &[f32]) -> Result<usize> {
    let nans = logits.iter().filter(|logit| logit.is_nan()).count();
    if nans > 0 {
        bail!("{nans} of the model's {} logits are NaN", logits.len())
    }
    let best = (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best });
    match best {
        Some(best) if logits[best].is_finite() => Ok(best),
        Some(best) => bail!("the largest of the model's logits is {}", logits[best]),
        None => bail!("the model has no logits"),
    }
}
