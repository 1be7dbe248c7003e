//! Random steps on a cache and on a model of it that keeps nothing but the tokens of each session.
use pagedkv::{
    AttentionParams, Cache, CacheConfig, Dtype, Error, LayerGroup, PrefixConfig, Session, Snapshot,
    Status, Storage,
};
use proptest::prelude::*;

const HEADS: usize = 2;
const DIM: usize = 16;
const BLOCKS: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    Open,
    /// New tokens for up to two sessions; the flag aborts.
    Forward(Vec<(usize, Vec<i32>)>, bool),
    Trim(usize, u64),
    Fork(usize),
    Freeze(usize),
    Thaw(usize),
    Suspend(usize),
    Match(usize, Vec<i32>),
    Close(usize),
}

fn tokens() -> impl Strategy<Value = Vec<i32>> {
    prop::collection::vec(0..3, 0..40)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0usize..4;
    let step = prop_oneof![
        2 => Just(Step::Open),
        6 => (prop::collection::vec((which.clone(), tokens()), 1..3), prop::bool::weighted(0.2))
            .prop_map(|(s, abort)| Step::Forward(s, abort)),
        1 => (which.clone(), 0u64..40).prop_map(|(i, n)| Step::Trim(i, n)),
        1 => which.clone().prop_map(Step::Fork),
        1 => which.clone().prop_map(Step::Freeze),
        1 => which.clone().prop_map(Step::Thaw),
        1 => which.clone().prop_map(Step::Suspend),
        1 => (which.clone(), tokens()).prop_map(|(i, text)| Step::Match(i, text)),
        2 => which.prop_map(Step::Close),
    ];
    prop::collection::vec(step, 1..40)
}

/// A row of a text at a position: it depends on all tokens up to there, as in a model. All elements
/// are exact in every type.
fn row(text: &[i32], position: usize) -> f32 {
    let sum: i32 =
        text[..=position].iter().enumerate().map(|(i, token)| (i as i32 % 7 + 1) * token).sum();
    (sum % 64) as f32 / 64.0
}

fn rows(text: &[i32], first: usize) -> Vec<f32> {
    (first..text.len()).flat_map(|position| [row(text, position); HEADS * DIM]).collect()
}

struct Pair {
    session: Session,
    text: Vec<i32>,
}

impl Pair {
    /// What the session holds is what the model says, bit by bit.
    fn check(&self) -> Result<(), Error> {
        let n = self.text.len();
        assert_eq!(self.session.length()?, n as u64);
        assert_eq!(self.session.tokens(0..n as u64)?, self.text);
        let (mut k, mut v) = (vec![0f32; n * HEADS * DIM], vec![0f32; n * HEADS * DIM]);
        self.session.read(0, 0..n as u64, &mut k, &mut v)?;
        assert_eq!(k, rows(&self.text, 0));
        assert_eq!(v, k);
        Ok(())
    }
}

/// With a scale of 2^-60 scores are below 1e-17 and all weights equal: attention gives means. Those
/// of up to 192 numbers within [0, 1) are off by at most 192 * 2^-24 in fp32, with the division a
/// little more: 2e-5 is enough.
fn check_means(pairs: &[&mut Pair], news: &[Vec<i32>], out: &[f32]) {
    let mut row_of_out = 0;
    for (pair, new) in pairs.iter().zip(news) {
        let text = [&pair.text[..], new].concat();
        for position in pair.text.len()..text.len() {
            let mean = (0..=position).map(|j| row(&text, j)).sum::<f32>() / (position + 1) as f32;
            for found in &out[row_of_out * HEADS * DIM..][..HEADS * DIM] {
                assert!((found - mean).abs() < 2e-5, "position {position}: {found} and not {mean}");
            }
            row_of_out += 1;
        }
    }
}

fn forward(
    cache: &Cache,
    pairs: &mut [Pair],
    entries: &[(usize, Vec<i32>)],
    abort: bool,
) -> Result<(), Error> {
    let count = pairs.len();
    let mut chosen: Vec<(usize, Vec<i32>)> = Vec::new();
    for (i, new) in entries.iter().filter(|_| count > 0) {
        if chosen.iter().all(|(j, _)| *j != i % count) {
            chosen.push((i % count, new.clone()));
        }
    }
    chosen.sort();
    let news: Vec<Vec<i32>> = chosen.iter().map(|(_, new)| new.clone()).collect();
    let mut taken: Vec<&mut Pair> = pairs
        .iter_mut()
        .enumerate()
        .filter(|(i, _)| chosen.iter().any(|(j, _)| i == j))
        .map(|(_, pair)| pair)
        .collect();

    let kv: Vec<f32> = taken
        .iter()
        .zip(&news)
        .flat_map(|(pair, new)| rows(&[&pair.text[..], new].concat(), pair.text.len()))
        .collect();
    let mut out = vec![0f32; kv.len()];
    {
        let sessions =
            taken.iter_mut().zip(&news).map(|(pair, new)| (&mut pair.session, new.len() as u32));
        let mut batch = match cache.begin(sessions) {
            Ok(batch) => batch,
            Err(error)
                if [Status::OUT_OF_BLOCKS, Status::TOO_LARGE, Status::BATCH_TOO_LARGE]
                    .contains(&error.status()) =>
            {
                assert_eq!(error.blocks_short().is_some(), error.status() == Status::OUT_OF_BLOCKS);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        assert_eq!(batch.rows() * HEADS * DIM, kv.len());
        batch.write(0, &kv, &kv)?;
        batch.attend_with(0, &AttentionParams::new().scale(2f32.powi(-60)), &kv, &mut out, None)?;
        match abort {
            true => batch.abort()?,
            false => batch.commit(&news.concat())?,
        }
    }
    check_means(&taken, &news, &out);
    if !abort {
        taken.iter_mut().zip(news).for_each(|(pair, new)| pair.text.extend(new));
    }
    Ok(())
}

/// Suspends and resumes, and computes again what is gone; without the blocks for it the text is
/// given up.
fn suspend(cache: &Cache, pair: &mut Pair) -> Result<(), Error> {
    pair.session.suspend()?;
    assert_eq!(pair.session.length()?, 0);
    let resumed = match pair.session.resume() {
        Err(error) if error.status() == Status::OUT_OF_BLOCKS => {
            assert_eq!(pair.session.info()?.total, pair.text.len() as u64);
            pair.text.clear();
            return pair.session.trim(0);
        }
        outcome => outcome?,
    };
    assert_eq!(resumed.total, pair.text.len() as u64);
    let kv = rows(&pair.text, resumed.length as usize);
    let mut batch = cache.begin([(&mut pair.session, (resumed.total - resumed.length) as u32)])?;
    batch.write(0, &kv, &kv)?;
    batch.commit(None)
}

fn play(config: CacheConfig, steps: Vec<Step>) -> Result<(), Error> {
    let cache = Cache::new(&config)?;
    let (mut pairs, mut frozen): (Vec<Pair>, Vec<(Snapshot, Vec<i32>)>) = (Vec::new(), Vec::new());
    for step in steps {
        let room = pairs.len() < 4;
        let at = |i: usize, count: usize| i % count.max(1);
        match step {
            Step::Open if room => {
                pairs.push(Pair { session: cache.open_session()?, text: Vec::new() })
            }
            Step::Forward(entries, abort) => forward(&cache, &mut pairs, &entries, abort)?,
            Step::Freeze(i) if !pairs.is_empty() => {
                let pair = &pairs[at(i, pairs.len())];
                match pair.session.snapshot() {
                    Ok(snapshot) => frozen.push((snapshot, pair.text.clone())),
                    // Storage CONTIGUOUS copies.
                    Err(error) => assert_eq!(error.status(), Status::OUT_OF_BLOCKS),
                }
            }
            Step::Thaw(i) if !frozen.is_empty() && room => {
                let (snapshot, text) = frozen.swap_remove(at(i, frozen.len()));
                assert_eq!(snapshot.length(), text.len() as u64);
                match snapshot.open() {
                    Ok(session) => pairs.push(Pair { session, text }),
                    Err(error) => assert_eq!(error.status(), Status::OUT_OF_BLOCKS),
                }
            }
            Step::Fork(i) if !pairs.is_empty() && room => {
                let pair = &pairs[at(i, pairs.len())];
                match pair.session.fork() {
                    Ok(session) => pairs.push(Pair { session, text: pair.text.clone() }),
                    Err(error) => assert_eq!(error.status(), Status::OUT_OF_BLOCKS),
                }
            }
            Step::Trim(i, n) if !pairs.is_empty() => {
                let i = at(i, pairs.len());
                let n = n.min(pairs[i].text.len() as u64);
                pairs[i].session.trim(n)?;
                pairs[i].text.truncate(n as usize);
            }
            Step::Suspend(i) if !pairs.is_empty() => {
                let i = at(i, pairs.len());
                suspend(&cache, &mut pairs[i])?;
            }
            Step::Match(i, text) if !pairs.is_empty() => {
                let i = at(i, pairs.len());
                if pairs[i].text.is_empty() {
                    pairs[i].session.trim(0)?;
                    let matched = pairs[i].session.match_prefix(&text)?;
                    pairs[i].text = text[..matched as usize].to_vec();
                }
            }
            Step::Close(i) if !pairs.is_empty() => drop(pairs.swap_remove(at(i, pairs.len()))),
            _ => {}
        }
        pairs.iter().try_for_each(Pair::check)?;
        cache.validate()?;
        let tokens: usize = pairs.iter().map(|pair| pair.text.len()).sum();
        assert_eq!(
            (cache.stats()?.sessions as usize, cache.stats()?.tokens as usize),
            (pairs.len(), tokens)
        );
    }
    frozen.clear();
    pairs.clear();
    let stats = cache.stats()?;
    assert_eq!((stats.sessions, stats.snapshots, stats.batches), (0, 0, 0));
    assert_eq!(stats.used_blocks, stats.evictable_blocks);
    Ok(())
}

fn config(dtype: Dtype) -> CacheConfig {
    CacheConfig::new(LayerGroup::new(1, HEADS as u32, HEADS as u32, DIM as u32).dtype(dtype))
        .blocks(BLOCKS)
        .threads(1)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn paged(steps in steps()) {
        play(config(Dtype::F32).prefix(PrefixConfig::new()), steps).unwrap();
    }

    #[test]
    fn paged_in_half_precision(steps in steps()) {
        play(config(Dtype::BF16), steps).unwrap();
    }

    #[test]
    fn contiguous(steps in steps()) {
        play(config(Dtype::F32).storage(Storage::CONTIGUOUS), steps).unwrap();
    }
}
