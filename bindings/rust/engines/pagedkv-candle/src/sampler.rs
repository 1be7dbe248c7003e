//! From logits to a token: see [`Sampler`].
use candle_core::{Result, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Chooses tokens: the likeliest, or by chance.
#[derive(Clone, Debug)]
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    random: StdRng,
}

impl Sampler {
    /// With a temperature of 0 the likeliest token is chosen. `top_p`: only the likeliest tokens
    /// that have this probability together.
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Self {
        Self { temperature, top_p, random: StdRng::seed_from_u64(seed) }
    }

    /// The likeliest token, always.
    pub fn greedy() -> Self {
        Self::new(0.0, 1.0, 0)
    }

    /// A token for logits `[vocabulary]`.
    pub fn choose(&mut self, logits: &Tensor) -> Result<u32> {
        let logits = logits.to_vec1::<f32>()?;
        if self.temperature <= 0.0 {
            return Ok(likeliest(&logits));
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: &f32| ((logit - max) / self.temperature).exp();
        let mut tokens: Vec<(usize, f32)> = logits.iter().map(weight).enumerate().collect();
        let sum: f32 = tokens.iter().map(|(_, weight)| weight).sum();
        if self.top_p < 1.0 {
            tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut before = 0.0;
            tokens.retain(|(_, weight)| {
                let kept = before < self.top_p * sum;
                before += weight;
                kept
            });
        }
        let kept: f32 = tokens.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.random::<f32>() * kept;
        let chosen = tokens.iter().find(|(_, weight)| {
            left -= weight;
            left <= 0.0
        });
        Ok(chosen.or(tokens.last()).map_or(0, |(token, _)| *token as u32))
    }
}

/// The first of the largest.
fn likeliest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best as u32
}
