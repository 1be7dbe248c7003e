//! A failed request does not affect the others, whatever fails where. PAGEDKV_EVERY=1 lets each
//! call fail.
mod tiny;

use candle_core::quantized::GgmlDType;
use candle_core::{bail, Device, Result, Tensor};
use pagedkv::Dtype;
use pagedkv_candle::{
    Answer, Basic, Begun, Engine, Gguf, Kv, Model, Paged, PagedConfig, Request, Sampler, Step,
    Weights,
};
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

// ---- Calls that fail
// -------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// An error of one call.
    Once,
    /// From that call on, an error of each call for the first request.
    Always,
    /// A panic of one call.
    Panic,
}

/// The payload of a panic.
struct Injected;

/// Which call fails next, and how.
#[derive(Debug)]
struct Faults {
    fault: Fault,
    left: Cell<usize>,
    fired: Cell<bool>,
}

impl Faults {
    fn new(fault: Fault, n: usize) -> Self {
        Self { fault, left: Cell::new(n), fired: Cell::new(false) }
    }

    /// A place where something can fail.
    fn call(&self, of_first: bool) -> Result<()> {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        let fails = match self.fault {
            Fault::Always => left <= 1 && of_first,
            _ => left == 1,
        };
        if !fails {
            return Ok(());
        }
        self.fired.set(true);
        match self.fault {
            Fault::Panic => resume_unwind(Box::new(Injected)), // a panic without its message
            _ => bail!("the moon is full"),
        }
    }
}

/// A `Kv` whose calls can fail, before and after they did something.
struct Faulty<'k, K> {
    kv: &'k K,
    faults: Faults,
}

struct FaultySequence<S> {
    sequence: S,
    of_first: bool,
}

struct FaultyStep<'s, S> {
    step: S,
    faults: &'s Faults,
    of_first: bool,
}

impl<K: Kv> Kv for Faulty<'_, K> {
    type Sequence = FaultySequence<K::Sequence>;
    type Step<'s>
        = FaultyStep<'s, K::Step<'s>>
    where
        Self: 's;

    fn open(&self, tokens: &[u32]) -> Result<(Self::Sequence, usize)> {
        let of_first = tokens.starts_with(&prompts()[0]);
        self.faults.call(of_first)?;
        let (sequence, length) = self.kv.open(tokens)?;
        self.faults.call(of_first)?;
        Ok((FaultySequence { sequence, of_first }, length))
    }

    fn trim(&self, sequence: &mut Self::Sequence, length: usize) -> Result<usize> {
        self.kv.trim(&mut sequence.sequence, length)
    }

    fn begin<'s>(
        &'s self,
        sequences: Vec<(&'s mut Self::Sequence, usize)>,
    ) -> Result<Begun<Self::Step<'s>>> {
        let of_first = sequences.iter().any(|(sequence, _)| sequence.of_first);
        self.faults.call(of_first)?;
        let inner = sequences.into_iter().map(|(sequence, n)| (&mut sequence.sequence, n));
        let begun = self.kv.begin(inner.collect())?;
        self.faults.call(of_first)?;
        Ok(match begun {
            Begun::Step(step) => Begun::Step(FaultyStep { step, faults: &self.faults, of_first }),
            Begun::NoRoom(error) => Begun::NoRoom(error),
        })
    }

    fn longest(&self) -> usize {
        self.kv.longest()
    }

    fn cached(&self, tokens: &[u32]) -> Result<usize> {
        self.faults.call(tokens.starts_with(&prompts()[0]))?;
        self.kv.cached(tokens)
    }

    fn shares(&self) -> bool {
        self.kv.shares()
    }

    fn peak_bytes(&self) -> Result<u64> {
        self.kv.peak_bytes()
    }
}

impl<S: Step> Step for FaultyStep<'_, S> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        self.faults.call(self.of_first)?;
        let out = self.step.attend(layer, q, k, v)?;
        self.faults.call(self.of_first)?;
        Ok(out)
    }

    fn commit(self, tokens: &[u32]) -> Result<()> {
        self.faults.call(self.of_first)?;
        self.step.commit(tokens)
    }
}

// ---- Three requests
// -------------------------------------------------------------------------------------------------

/// The last one has the same prefix as the second one, and waits for it if keys and values can be
/// shared.
fn prompts() -> [Vec<u32>; 3] {
    [vec![5, 9, 60], (10..50).collect(), (10..44).chain([3]).collect()]
}

/// Two requests that sample, one of them with a prompt of several passes, and one that ends early.
fn requests() -> Vec<Request> {
    let sampled = |seed| Sampler::new(0.8, 0.95, seed).unwrap();
    let [first, second, third] = prompts();
    let request = |prompt, max_tokens, sampler| {
        let stops = Vec::new();
        Request { prompt, max_tokens, stops, sampler }
    };
    vec![
        request(first, 20, sampled(7)),
        request(second, 20, sampled(8)),
        request(third, 3, Sampler::greedy()),
    ]
}

fn model(folder: &tiny::Folder) -> Model {
    tiny::use_one_thread();
    let path = folder.file("llama.gguf");
    tiny::write(&path, "llama", GgmlDType::F32);
    Model::load(&mut Gguf::open(path).unwrap(), Weights::F32).unwrap()
}

fn paged(model: &Model, tokens: usize) -> Paged {
    let config = PagedConfig { tokens, sequences: 0, dtype: Dtype::F32, store: None };
    Paged::new(model.config(), &config).unwrap()
}

/// Room for all, and room for so few that steps preempt.
const ROOMS: [usize; 2] = [1024, 64];

fn texts<S>(answers: &[Answer<S>]) -> Vec<Vec<u32>> {
    answers.iter().map(|answer| answer.tokens().to_vec()).collect()
}

fn engine<'a, K: Kv>(model: &'a Model, kv: &'a K, requests: &[Request]) -> Engine<'a, K> {
    let mut engine = Engine::new(model, kv).max_rows(16);
    requests.iter().for_each(|request| engine.add(request.clone()).unwrap());
    engine
}

fn wanted(model: &Model) -> Vec<Vec<u32>> {
    let basic = Basic::new(model.config());
    let mut engine = engine(model, &basic, &requests());
    while !engine.step().is_empty() {}
    texts(engine.answers())
}

/// Steps until all is done, in spite of panics. Steps must return every token once.
fn run<K: Kv>(engine: &mut Engine<'_, K>) {
    let mut streamed = vec![Vec::new(); engine.answers().len()];
    loop {
        match catch_unwind(AssertUnwindSafe(|| engine.step())) {
            Ok(new) if new.is_empty() => break,
            Ok(new) => new.into_iter().for_each(|(i, token)| streamed[i].push(token)),
            Err(payload) if payload.is::<Injected>() => {}
            Err(payload) => resume_unwind(payload),
        }
    }
    assert_eq!(streamed, texts(engine.answers()));
}

/// Fails at one call of each new run: at every fourth one, which reaches each kind of call, because
/// a pass has nine calls.
fn inject<K: Kv>(model: &Model, fault: Fault, make: impl Fn() -> K, check: impl Fn(&K)) {
    let wanted = wanted(model);
    let every = std::env::var("PAGEDKV_EVERY").map_or(4, |n| n.parse().unwrap());
    let (mut n, mut failed) = (1, 0);
    loop {
        let kv = make();
        let faulty = Faulty { kv: &kv, faults: Faults::new(fault, n) };
        let mut engine = engine(model, &faulty, &requests());
        run(&mut engine);
        if !faulty.faults.fired.get() {
            break;
        }
        for (i, (answer, wanted)) in engine.answers().iter().zip(&wanted).enumerate() {
            match &answer.error {
                None => assert_eq!(answer.tokens(), wanted, "{fault:?} at call {n}: answer {i}"),
                Some(error) => {
                    assert!(error.to_string().contains("the moon is full"), "{error}");
                    assert!(wanted.starts_with(answer.tokens()), "{fault:?} at call {n}");
                }
            }
        }
        let errors: Vec<_> = engine.answers().iter().map(|answer| answer.error.is_some()).collect();
        match fault {
            Fault::Always => assert_eq!(errors, [true, false, false], "{fault:?} at call {n}"),
            Fault::Once => assert!(errors.iter().filter(|failed| **failed).count() < 2),
            Fault::Panic => assert_eq!(errors, [false; 3], "{fault:?} at call {n}"),
        }
        failed += errors.iter().filter(|failed| **failed).count();
        drop(engine);
        check(&kv);
        n += every;
    }
    assert!(n > 100, "{n} calls");
    assert_eq!(failed > 0, !matches!(fault, Fault::Panic));
}

fn inject_everywhere(fault: Fault) {
    let folder = tiny::Folder::new(&format!("faults-{fault:?}"));
    let model = model(&folder);
    inject(&model, fault, || Basic::new(model.config()), |_| {});
    for room in ROOMS {
        inject(&model, fault, || paged(&model, room), validate);
    }
}

/// Checks that nothing is lost and nothing is left open.
fn validate(kv: &Paged) {
    kv.cache().validate().unwrap();
    assert_eq!(kv.cache().stats().unwrap().sessions, 0);
}

#[test]
fn an_error_at_any_call_of_a_step_ends_one_request_at_most() {
    inject_everywhere(Fault::Once);
}

#[test]
fn calls_that_fail_for_one_request_end_that_one() {
    inject_everywhere(Fault::Always);
}

#[test]
fn a_panic_at_any_call_of_a_step_loses_nothing() {
    inject_everywhere(Fault::Panic);
}

// ---- Room
// -------------------------------------------------------------------------------------------------

#[test]
fn answers_without_room_wait_and_begin_anew() {
    let folder = tiny::Folder::new("faults-room");
    let model = model(&folder);
    let kv = paged(&model, ROOMS[1]);
    let mut engine = engine(&model, &kv, &requests());
    run(&mut engine);
    assert_eq!(texts(engine.answers()), wanted(&model));
    let preemptions: usize = engine.answers().iter().map(|answer| answer.preemptions).sum();
    assert!(preemptions > 1, "{preemptions}");
    let figures = engine.figures();
    assert_eq!((figures.prompt_tokens, figures.tokens), (78, 43));
    assert!(figures.cached_tokens < figures.prompt_tokens);
}

/// An answer of another engine holds the room.
#[test]
fn what_has_no_room_even_alone_fails() {
    let folder = tiny::Folder::new("faults-alone");
    let model = model(&folder);
    let kv = paged(&model, 64);
    let mut first = engine(&model, &kv, &requests()[1..2]);
    run(&mut first);
    let mut second = engine(&model, &kv, &requests()[0..1]);
    run(&mut second);
    let error = second.answers()[0].error.as_ref().unwrap().to_string();
    assert!(error.contains("are free"), "{error}");
    drop(first);
    let mut third = engine(&model, &kv, &requests()[0..1]);
    run(&mut third);
    assert_eq!(texts(third.answers()), wanted(&model)[..1]);
}

// ---- Values
// -------------------------------------------------------------------------------------------------

#[test]
fn logits_that_are_nan_end_their_request() {
    let folder = tiny::Folder::new("faults-nan");
    let (path, wanted) = (folder.file("poisoned.gguf"), wanted(&model(&folder)));
    let unused = |token: &u32| wanted.iter().flatten().all(|other| other != token);
    let poison = (100..256).find(unused).unwrap();
    tiny::write_poisoned(&path, poison);
    let model = Model::load(&mut Gguf::open(path).unwrap(), Weights::F32).unwrap();
    for sampler in [Sampler::greedy(), Sampler::new(0.8, 0.95, 7).unwrap()] {
        for prompt in [vec![poison], vec![2, poison], (60..=poison).collect()] {
            let poisoned =
                Request { prompt, max_tokens: 9, stops: Vec::new(), sampler: sampler.clone() };
            for at in 0..3 {
                let mut requests = requests();
                requests[at] = poisoned.clone();
                let kv = paged(&model, 1024);
                let mut engine = engine(&model, &kv, &requests);
                run(&mut engine);
                for (i, answer) in engine.answers().iter().enumerate() {
                    let error = answer.error.as_ref().map(ToString::to_string).unwrap_or_default();
                    assert_eq!(error.contains("261 logits are NaN"), i == at, "{error}");
                    assert_eq!(answer.tokens(), if i == at { &[] } else { &wanted[i][..] });
                }
            }
        }
    }
}

#[test]
fn samplers_refuse_what_is_no_temperature_or_probability() {
    for (temperature, top_p, words) in [
        (f32::NAN, 1.0, "temperature of NaN"),
        (f32::INFINITY, 1.0, "temperature of inf"),
        (-1e-45, 1.0, "temperature of -"),
        (1.0, f32::NAN, "top-p of NaN"),
        (1.0, 0.0, "top-p of 0"),
        (1.0, 1.0001, "top-p of 1.0001"),
    ] {
        let error = Sampler::new(temperature, top_p, 0).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn samplers_take_every_logit_that_is_a_number() {
    let choose = |temperature, top_p, logits: &[f32]| {
        let logits = Tensor::new(logits, &Device::Cpu).unwrap();
        Sampler::new(temperature, top_p, u64::MAX).unwrap().choose(&logits)
    };
    const LEAST: f32 = 1e-45;
    let none = f32::NEG_INFINITY;
    for (temperature, top_p) in [(0.0, 1.0), (LEAST, 1.0), (1e-20, 0.5), (1.0, LEAST)] {
        assert_eq!(choose(temperature, top_p, &[1.0, 3.0, 3.0, 2.0]).unwrap(), 1);
        assert_eq!(choose(temperature, top_p, &[none, f32::MAX, f32::MIN]).unwrap(), 1);
    }
    for _ in 0..100 {
        assert_eq!(choose(f32::MAX, 1.0, &[none, 0.0, none]).unwrap(), 1);
    }
    for temperature in [0.0, 1.0] {
        for (logits, words) in [
            (&[0.0, f32::NAN][..], "1 of the model's 2 logits are NaN"),
            (&[none; 3], "the largest of the model's logits is -inf"),
            (&[0.0, f32::INFINITY], "the largest of the model's logits is inf"),
            (&[], "no logits"),
        ] {
            let error = choose(temperature, 0.9, logits).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn what_no_model_can_answer_is_refused_when_it_is_asked() {
    let folder = tiny::Folder::new("faults-values");
    let model = model(&folder);
    let kv = paged(&model, 64);
    let mut engine = Engine::new(&model, &kv);
    for (prompt, max_tokens, words) in [
        (vec![], 1, "no tokens"),
        (vec![9999], 1, "token 9999"),
        (vec![1], 0, "0 tokens"),
        (vec![1], usize::MAX, "an answer of 18446744073709551615; the model has 1024"),
        (vec![1; 1020], 5, "1020 tokens and an answer of 5; the model has 1024"),
        (vec![1; 60], 5, "65 tokens; there is room for 64"),
    ] {
        let (stops, sampler) = (Vec::new(), Sampler::greedy());
        let error = engine.add(Request { prompt, max_tokens, stops, sampler }).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(engine.step().is_empty() && engine.answers().is_empty());
}
