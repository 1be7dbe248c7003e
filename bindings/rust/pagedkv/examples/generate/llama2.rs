//! A Llama model from a llama2.c checkpoint: seven int32 (dim, hidden, layers, heads, KV heads,
//! vocabulary, context), then fp32 tensors. The forward pass (Touvron et al. 2023) knows nothing of
//! caches: where a layer needs attention it hands out queries, keys and values.
use std::ops::Range;

pub struct Llama2 {
    pub layers: usize,
    pub query_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    dim: usize,
    hidden: usize,
    numbers: Vec<f32>,
    embedding: usize,
    attention_norm: usize,
    wq: usize,
    wk: usize,
    wv: usize,
    wo: usize,
    ffn_norm: usize,
    w1: usize,
    w2: usize,
    w3: usize,
    final_norm: usize,
    classifier: usize,
}

/// Rows of different sequences and positions.
pub struct Rows<'a> {
    pub tokens: &'a [i32],
    pub positions: &'a [u64],
}

impl Llama2 {
    /// The model of a checkpoint's bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let word = |i: usize| {
            bytes.get(i * 4..i * 4 + 4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let mut header = [0usize; 7];
        for (i, entry) in header.iter_mut().enumerate() {
            let value = word(i).ok_or("the model is cut short")?;
            // A negative vocabulary size tells that the classifier is not the embedding.
            *entry = if i == 5 { value.unsigned_abs() } else { value.max(0) as u32 } as usize;
        }
        let [dim, hidden, layers, query_heads, kv_heads, vocabulary, context] = header;
        if header.contains(&0) || dim % query_heads != 0 || query_heads % kv_heads != 0 {
            return Err("the model is not a llama2.c checkpoint".into());
        }
        let numbers: Vec<f32> = bytes[28..]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let (head_dim, mut next) = (dim / query_heads, 0);
        let kv_dim = kv_heads * head_dim;
        let mut take = |factors: [usize; 3]| {
            let begin = next;
            next = factors
                .iter()
                .try_fold(1usize, |size, &factor| size.checked_mul(factor))
                .and_then(|size| size.checked_add(begin))?;
            Some(begin)
        };
        let mut read = || {
            let model = Self {
                embedding: take([1, vocabulary, dim])?,
                attention_norm: take([layers, 1, dim])?,
                wq: take([layers, dim, dim])?,
                wk: take([layers, kv_dim, dim])?,
                wv: take([layers, kv_dim, dim])?,
                wo: take([layers, dim, dim])?,
                ffn_norm: take([layers, 1, dim])?,
                w1: take([layers, hidden, dim])?,
                w2: take([layers, dim, hidden])?,
                w3: take([layers, hidden, dim])?,
                final_norm: take([1, 1, dim])?,
                classifier: 0,
                numbers: Vec::new(),
                layers,
                query_heads,
                kv_heads,
                head_dim,
                vocabulary,
                dim,
                hidden,
            };
            take([2, context, head_dim / 2])?; // rotary tables, unused
            let own_classifier = word(5)? < 0;
            let classifier =
                if own_classifier { take([1, vocabulary, dim])? } else { model.embedding };
            Some(Self { classifier, ..model })
        };
        let model = read().ok_or("the model's sizes do not fit")?;
        if next != numbers.len() {
            return Err(format!(
                "the model has {} numbers, its header accounts for {next}",
                numbers.len()
            ));
        }
        Ok(Self { numbers, ..model })
    }

    fn matrix(&self, first: usize, layer: usize, outputs: usize, inputs: usize) -> &[f32] {
        &self.numbers[first + layer * outputs * inputs..][..outputs * inputs]
    }

    fn norm(&self, x: &[f32], first: usize, layer: usize) -> Vec<f32> {
        let weight = self.matrix(first, layer, 1, self.dim);
        let mut out = Vec::with_capacity(x.len());
        for row in x.chunks_exact(self.dim) {
            let mean = row.iter().map(|x| x * x).sum::<f32>() / self.dim as f32;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            out.extend(row.iter().zip(weight).map(|(x, w)| w * (scale * x)));
        }
        out
    }

    /// One pass. `attend(layer, q, k, v, out)` is attention over the rows and what came before them
    /// in their sequences. The result is the residual stream, [rows][dim].
    pub fn forward<E>(
        &self,
        rows: &Rows<'_>,
        mut attend: impl FnMut(usize, &[f32], &[f32], &[f32], &mut [f32]) -> Result<(), E>,
    ) -> Result<Vec<f32>, E> {
        let (dim, kv_dim, hidden) = (self.dim, self.kv_heads * self.head_dim, self.hidden);
        let mut x: Vec<f32> = rows
            .tokens
            .iter()
            .flat_map(|&token| self.matrix(self.embedding, token as usize, 1, dim).iter().copied())
            .collect();
        let mut out = vec![0f32; x.len()];
        for layer in 0..self.layers {
            let normed = self.norm(&x, self.attention_norm, layer);
            let mut q = matmul(&normed, self.matrix(self.wq, layer, dim, dim), dim);
            let mut k = matmul(&normed, self.matrix(self.wk, layer, kv_dim, dim), dim);
            let v = matmul(&normed, self.matrix(self.wv, layer, kv_dim, dim), dim);
            rotate(&mut q, rows.positions, self.query_heads, self.head_dim);
            rotate(&mut k, rows.positions, self.kv_heads, self.head_dim);
            attend(layer, &q, &k, &v, &mut out)?;
            add(&mut x, &matmul(&out, self.matrix(self.wo, layer, dim, dim), dim));

            let normed = self.norm(&x, self.ffn_norm, layer);
            let mut gate = matmul(&normed, self.matrix(self.w1, layer, hidden, dim), dim);
            let up = matmul(&normed, self.matrix(self.w3, layer, hidden, dim), dim);
            gate.iter_mut()
                .zip(up)
                .for_each(|(gate, up)| *gate = *gate / (1.0 + (-*gate).exp()) * up);
            add(&mut x, &matmul(&gate, self.matrix(self.w2, layer, dim, hidden), hidden));
        }
        Ok(x)
    }

    /// The likeliest token after a row of the residual stream.
    pub fn best_token(&self, x: &[f32], row: usize) -> i32 {
        let row: Range<usize> = row * self.dim..(row + 1) * self.dim;
        let logits = matmul(
            &self.norm(&x[row], self.final_norm, 0),
            self.matrix(self.classifier, 0, self.vocabulary, self.dim),
            self.dim,
        );
        let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
        (1..logits.len()).fold(0, better) as i32
    }
}

/// [rows][inputs] times the transpose of [outputs][inputs]. Eight sums at once, so that the
/// compiler uses vectors.
fn matmul(x: &[f32], matrix: &[f32], inputs: usize) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| {
        let mut sums = [0f32; 8];
        let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
        let rest: f32 =
            a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
        for (a, b) in a_chunks.zip(b_chunks) {
            sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        }
        sums.iter().sum::<f32>() + rest
    };
    x.chunks_exact(inputs)
        .flat_map(|row| matrix.chunks_exact(inputs).map(move |weights| dot(row, weights)))
        .collect()
}

/// Rotary positions on interleaved pairs.
fn rotate(x: &mut [f32], positions: &[u64], heads: usize, head_dim: usize) {
    for (head, pairs) in x.chunks_exact_mut(head_dim).enumerate() {
        for (i, pair) in pairs.chunks_exact_mut(2).enumerate() {
            let frequency = 10000f64.powf(-((2 * i) as f64) / head_dim as f64) as f32;
            let (sin, cos) = (positions[head / heads] as f64 * f64::from(frequency)).sin_cos();
            let (a, b, sin, cos) = (pair[0], pair[1], sin as f32, cos as f32);
            (pair[0], pair[1]) = (a * cos - b * sin, a * sin + b * cos);
        }
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
