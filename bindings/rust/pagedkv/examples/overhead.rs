//! Measures what the safe layer adds to a decode step of 8 sessions with 4096 tokens each: begin,
//! write, attend and commit through it and through the C functions, in turn, on the same cache.
//! Also measures the calls alone, on rows so small that nothing else counts.
use pagedkv::{sys, Cache, CacheConfig, LayerGroup, Result, Session};
use std::ptr::{null, null_mut};
use std::time::Instant;

const SESSIONS: usize = 8;

struct Run {
    cache: Cache,
    sessions: Vec<Session>,
    layers: u32,
    k: Vec<f32>,
    q: Vec<f32>,
    out: Vec<f32>,
}

impl Run {
    fn new(
        layers: u32,
        query_heads: usize,
        kv_heads: usize,
        dim: usize,
        tokens: usize,
    ) -> Result<Self> {
        let model = LayerGroup::new(layers, query_heads as u32, kv_heads as u32, dim as u32);
        let blocks = SESSIONS * (tokens / 16 + 64);
        let cache = Cache::new(&CacheConfig::new(model.blocks(blocks as u64)).prefault())?;
        let prompt = vec![0.5f32; tokens * kv_heads * dim];
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            let mut session = cache.open_session()?;
            let mut batch = cache.begin([(&mut session, tokens as u32)])?;
            (0..layers).try_for_each(|layer| batch.write(layer, &prompt, &prompt))?;
            batch.commit(None)?;
            sessions.push(session);
        }
        let (k, q) =
            (vec![0.5; SESSIONS * kv_heads * dim], vec![0.5; SESSIONS * query_heads * dim]);
        Ok(Self { cache, sessions, layers, k, out: q.clone(), q })
    }

    fn safe(&mut self) -> Result<()> {
        let mut batch = self.cache.begin(self.sessions.iter_mut().map(|session| (session, 1)))?;
        for layer in 0..self.layers {
            batch.write(layer, &self.k, &self.k)?;
            batch.attend(layer, &self.q, &mut self.out)?;
        }
        batch.commit(&[1; SESSIONS])
    }

    /// The same step as a C program does it.
    fn raw(&mut self, handles: &[sys::pkv_session]) {
        let check = |status| assert_eq!(status, sys::pkv_status::OK);
        let tensor = |data: *const f32| sys::pkv_tensor {
            data: data as *mut _,
            dtype: sys::pkv_dtype::F32,
            row_stride: 0,
            head_stride: 0,
            batch_stride: 0,
        };
        let (k, q, out) =
            (tensor(self.k.as_ptr()), tensor(self.q.as_ptr()), tensor(self.out.as_mut_ptr()));
        let mut batch = null_mut();
        unsafe {
            let (cache, new) = (self.cache.as_raw(), [1; SESSIONS]);
            let (handles, new) = (handles.as_ptr(), new.as_ptr());
            check(sys::pkv_batch_begin(cache, SESSIONS, handles, new, &mut batch));
            for layer in 0..self.layers {
                check(sys::pkv_batch_write(batch, layer, &k, &k));
                check(sys::pkv_batch_attend(batch, layer, null(), &q, &out, null()));
            }
            check(sys::pkv_batch_commit(batch, SESSIONS, [1; SESSIONS].as_ptr()));
        }
    }

    /// Medians in nanoseconds of a step through both, in turn.
    fn measure(&mut self, steps: usize) -> Result<[f64; 2]> {
        let handles: Vec<_> = self.sessions.iter().map(Session::as_raw).collect();
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..steps {
            let begin = Instant::now();
            self.safe()?;
            times[0].push(begin.elapsed().as_nanos() as f64);
            let begin = Instant::now();
            self.raw(&handles);
            times[1].push(begin.elapsed().as_nanos() as f64);
        }
        Ok(times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }))
    }
}

fn main() -> Result<()> {
    // Two layers of the shape of Llama 3 8B.
    let [step_safe, step_raw] = Run::new(2, 32, 8, 128, 4096)?.measure(200)?;
    let [calls_safe, calls_raw] = Run::new(2, 1, 1, 16, 16)?.measure(400)?;
    let added = calls_safe - calls_raw;
    println!(
        "decode step, 8 x 4096 tokens, 2 layers: {:.0} us safe, {:.0} us as in C",
        step_safe / 1e3,
        step_raw / 1e3
    );
    println!(
        "the same calls on 16 tokens of 16 dims: {:.2} us safe, {:.2} us as in C",
        calls_safe / 1e3,
        calls_raw / 1e3
    );
    println!(
        "added by the safe layer: {added:.0} ns, {:.3} % of the decode step",
        100.0 * added / step_raw
    );
    Ok(())
}
