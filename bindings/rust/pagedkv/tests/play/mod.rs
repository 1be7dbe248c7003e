//! Plays the steps of a scenario.
mod config;
mod device;
mod raw;
pub mod rows;

use config::{attention_params, floats, named, number, Shape};
use device::Device;
use pagedkv::{
    Batch, Cache, Error, HintOutcome, HintReason, PrefixUse, Salt, Session, SessionConfig,
    Snapshot, Status, Storage, StoreConfig, NO_BLOCK_ID,
};
use rows::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Why a step did not go as expected.
pub enum Trouble {
    Status(Error),
    Difference(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Status(error)
    }
}

type Played<T = ()> = Result<T, Trouble>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Played {
    if found == expected {
        return Ok(());
    }
    Err(Trouble::Difference(format!("{what} is {found:?}, expected {expected:?}")))
}

fn close(what: &str, found: f32, expected: &Value, tolerance: f64) -> Played {
    let expected = expected.as_f64().expect("a number");
    if (f64::from(found) - expected).abs() <= tolerance {
        return Ok(());
    }
    Err(Trouble::Difference(format!("{what} is {found}, expected {expected} up to {tolerance}")))
}

/// Compares fields of a struct of C by name, as its text shows them.
fn compare_fields(found: impl std::fmt::Debug, expected: &Value) -> Played {
    let text = format!("{found:?}").replace(" }", ",");
    for (name, expected) in expected.as_object().expect("fields") {
        let (_, value) = text.split_once(&format!(" {name}: ")).expect("a field of the struct");
        same(name, &value[..value.find(',').unwrap()], &*number(expected).to_string())?;
    }
    Ok(())
}

fn text<'a>(step: &'a Value, name: &str) -> &'a str {
    step[name].as_str().unwrap_or_else(|| panic!("{name} is missing in {step}"))
}

fn salt(step: &Value) -> Salt<'_> {
    step.get("salt").map_or(Salt::All, |salt| salt.as_str().expect("a salt").into())
}

pub struct Player {
    config: Value,
    shapes: Vec<Shape>,
    tolerance: f64,
    cache: Cache,
    sessions: BTreeMap<String, Session>,
    snapshots: BTreeMap<String, Snapshot>,
    closed: raw::Closed,
    device: Option<Device>,
    now_ms: Arc<AtomicU64>,
}

impl Player {
    /// `folder`: where a store's directory is made.
    pub fn new(scenario: &Value, folder: &Path) -> Self {
        let config = scenario["config"].clone();
        let device = config::device(&config);
        let now_ms = Arc::new(AtomicU64::new(0));
        let clock = now_ms.clone();
        let mut cache = config::cache_config(&config)
            .clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        if config.get("store").is_some() {
            cache = cache.store(StoreConfig::directory(folder));
        }
        if let Some(device) = &device {
            cache = cache.block_io(device.clone());
        }
        Self {
            shapes: config::shapes(&config),
            tolerance: scenario["tolerance"].as_f64().expect("a tolerance"),
            cache: Cache::new(&cache).expect("a cache"),
            device,
            now_ms,
            config,
            sessions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            closed: raw::Closed::default(),
        }
    }

    /// Plays a step, and returns what differs from the scenario.
    pub fn play(&mut self, step: &Value) -> Result<(), String> {
        if self.uses_closed(step) {
            return raw::play(self, step);
        }
        match (self.act(step), step.get("status")) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(status)) => Err(format!("PKV_OK, expected {status}")),
            (Err(Trouble::Difference(difference)), _) => Err(difference),
            (Err(Trouble::Status(error)), None) => Err(format!("{error:?}, expected PKV_OK")),
            (Err(Trouble::Status(error)), Some(status)) => {
                let blocks = step.get("blocks_short").map(number);
                if error.status() != named(status, Status) || error.message().is_empty() {
                    Err(format!("{error:?}, expected {status}"))
                } else if blocks.is_some() && error.blocks_short() != blocks {
                    Err(format!("blocks_short is {:?}, expected {blocks:?}", error.blocks_short()))
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Whether a step needs a dropped session or snapshot, or a session twice. Rust's types rule
    /// that out.
    fn uses_closed(&self, step: &Value) -> bool {
        let entries = step["sessions"].as_array().map_or(&[][..], Vec::as_slice);
        let listed: Vec<_> = entries.iter().filter_map(|entry| entry["session"].as_str()).collect();
        let gone = |name: &str| self.closed.has_session(name);
        let twice = (1..listed.len()).any(|i| listed[..i].contains(&listed[i]));
        let snapshot_gone =
            step["snapshot"].as_str().map_or(false, |name| self.closed.has_snapshot(name));
        twice
            || snapshot_gone
            || step["session"].as_str().map_or(false, gone)
            || listed.into_iter().any(gone)
    }

    fn session(&mut self, step: &Value) -> &mut Session {
        self.sessions.get_mut(text(step, "session")).expect("a session of this name")
    }

    fn opened(&mut self, name: &str, session: Session) -> Played {
        self.closed.forget_session(name);
        self.sessions.insert(name.into(), session);
        Ok(())
    }

    fn act(&mut self, step: &Value) -> Played {
        match text(step, "do") {
            "open" | "fork" | "fork_snapshot" => self.open(step),
            "step" => self.forward(step),
            "table" => self.table(step),
            "read" => self.read(step),
            "plan" | "info" | "stats" | "pool_stats" | "prefix_stats" => self.figures(step),
            "victims" => self.victims(step),
            "length" => same("length", self.session(step).length()?, number(&step["length"])),
            "tokens" => {
                let (first, expected) = (number(&step["first"]), rows::tokens(&step["tokens"]));
                same(
                    "tokens",
                    self.session(step).tokens(first..first + expected.len() as u64)?,
                    expected,
                )
            }
            "admit" => {
                let matched = self.session(step).admit(&rows::tokens(&step["tokens"]), 0)?;
                same("matched", matched, number(&step["matched"]))
            }
            "reserve" => Ok(self.session(step).reserve(number(&step["tokens"]))?),
            "trim" => Ok(self.session(step).trim(number(&step["length"]))?),
            "suspend" => Ok(self.session(step).suspend()?),
            "resume" => {
                let resumed = self.session(step).resume()?;
                same("length", resumed.length, number(&step["length"]))?;
                same("total", resumed.total, number(&step["total"]))
            }
            "snapshot" => {
                let snapshot = self.session(step).snapshot()?;
                self.closed.forget_snapshot(text(step, "into"));
                self.snapshots.insert(text(step, "into").into(), snapshot);
                Ok(())
            }
            "close_snapshot" => {
                let name = text(step, "snapshot");
                self.closed
                    .snapshot(name, self.snapshots.remove(name).expect("a snapshot of this name"));
                Ok(())
            }
            "close" => {
                let name = text(step, "session");
                self.closed
                    .session(name, self.sessions.remove(name).expect("a session of this name"));
                Ok(())
            }
            "prefix_clear" => Ok(self.cache.prefix().clear(salt(step))?),
            "hint" => self.hint(step),
            "clock" => {
                self.now_ms.store(number(&step["now_ms"]), Ordering::Relaxed);
                Ok(())
            }
            "flush" => same("queued", self.cache.flush_store(LONG)?, 0),
            "wait" => {
                let text = rows::tokens(&step["tokens"]);
                let cached = self.cache.wait_for_prefetch(Salt::None, &text, LONG)?;
                same("cached", cached, number(&step["cached"]))
            }
            "validate" => Ok(self.cache.validate()?),
            unknown => panic!("the runner has no step {unknown}"),
        }
    }

    fn hint(&mut self, step: &Value) -> Played {
        let hint = config::hint(&step["hint"]);
        let result = match step.get("tokens") {
            Some(spans) => {
                let salt = step.get("salt").map_or(Salt::None, |_| salt(step));
                self.cache.hint(salt, &rows::tokens(spans), hint)?
            }
            None => self.session(step).hint(hint)?,
        };
        let expected = &step["fields"];
        same("outcome", result.outcome, named(&expected["outcome"], HintOutcome))?;
        same("reason", result.reason, named(&expected["reason"], HintReason))?;
        same("tokens", result.tokens, number(&expected["tokens"]))
    }

    fn open(&mut self, step: &Value) -> Played {
        match text(step, "do") {
            "fork" => {
                let session = self.session(step).fork()?;
                self.opened(text(step, "into"), session)
            }
            "fork_snapshot" => {
                let session = self.snapshots[text(step, "snapshot")].fork()?;
                self.opened(text(step, "into"), session)
            }
            _ => {
                let mut config = SessionConfig::new();
                if let Some(salt) = step.get("salt") {
                    config = config.salt(salt.as_str().expect("a salt"));
                }
                if let Some(priority) = step.get("priority") {
                    config = config.priority(priority.as_i64().expect("a priority") as i32);
                }
                if let Some(prefix_use) = step.get("prefix_use") {
                    config = config.prefix_use(named(prefix_use, PrefixUse));
                }
                let session = self.cache.open_session_with(&config)?;
                self.opened(text(step, "session"), session)
            }
        }
    }

    fn figures(&mut self, step: &Value) -> Played {
        let fields = &step["fields"];
        match text(step, "do") {
            "plan" => {
                let config = config::cache_config(&self.config);
                let plan = step.get("group").map_or_else(
                    || config.sizes(),
                    |group| config.sizes_of(number(group) as u32),
                )?;
                compare_fields(plan, fields)
            }
            "info" => compare_fields(self.session(step).info()?, fields),
            "stats" => compare_fields(self.cache.stats()?, fields),
            "pool_stats" => compare_fields(self.cache.pool_stats()?, fields),
            _ => compare_fields(self.cache.prefix().stats(salt(step))?, fields),
        }
    }

    fn table(&mut self, step: &Value) -> Played {
        let group = number(&step["group"]) as u32;
        let table = self.session(step).block_table(group)?;
        same("entries", table.len() as u64, number(&step["count"]))?;
        same(
            "gone",
            table.iter().filter(|&&id| id == NO_BLOCK_ID).count() as u64,
            number(&step["gone"]),
        )?;
        if let Some(shares) = step.get("shares") {
            let other = self.sessions[shares[0].as_str().expect("a name")].block_table(group)?;
            let shared =
                table.iter().zip(&other).filter(|(a, b)| a == b && **a != NO_BLOCK_ID).count();
            same("shared entries", shared as u64, number(&shares[1]))?;
        }
        Ok(())
    }

    fn read(&mut self, step: &Value) -> Played {
        let (layer, first, count) =
            (number(&step["layer"]), number(&step["first"]), number(&step["count"]));
        // A layer that does not exist has no shape; it is refused with any shape.
        let shape = *self.shapes.get(layer as usize).unwrap_or(&self.shapes[0]);
        let tolerance = self.tolerance;
        let mut k = vec![0f32; (count * shape.kv_heads * shape.key_dim) as usize];
        let mut v = vec![0f32; (count * shape.kv_heads * shape.value_dim) as usize];
        self.session(step).read(layer as u32, first..first + count, &mut k, &mut v)?;
        for value in step["values"].as_array().expect("values") {
            let [position, head, dim] = [1, 2, 3].map(|i| number(&value[i]));
            let (rows, dims) =
                if value[0] == "k" { (&k, shape.key_dim) } else { (&v, shape.value_dim) };
            let found = rows[(((position - first) * shape.kv_heads + head) * dims + dim) as usize];
            close(&format!("{value}"), found, &value[4], tolerance)?;
        }
        Ok(())
    }

    fn victims(&mut self, step: &Value) -> Played {
        let entries = step["sessions"].as_array().expect("sessions");
        let list = entries.iter().map(|entry| {
            (&self.sessions[entry[0].as_str().expect("a name")], number(&entry[1]) as u32)
        });
        let victims = self.cache.choose_victims(list)?;
        let name = |id| {
            self.sessions
                .iter()
                .find(|(_, session)| session.id() == id)
                .map_or("?", |(name, _)| name.as_str())
        };
        let expected = step["victims"]
            .as_array()
            .expect("victims")
            .iter()
            .map(|name| name.as_str().expect("a name"))
            .collect();
        same("victims", victims.into_iter().map(name).collect::<Vec<_>>(), expected)
    }

    /// Runs a batch. Its sessions leave the map meanwhile, because they are borrowed in the order
    /// of the step.
    fn forward(&mut self, step: &Value) -> Played {
        let mut taken: Vec<(String, Session, Vec<i32>)> = Vec::new();
        for entry in step["sessions"].as_array().expect("sessions") {
            let name = text(entry, "session");
            taken.push((
                name.into(),
                self.sessions.remove(name).expect("a session"),
                rows::tokens(&entry["tokens"]),
            ));
        }
        let outcome = self.forward_with(step, &mut taken);
        self.sessions.extend(taken.into_iter().map(|(name, session, _)| (name, session)));
        outcome
    }

    fn forward_with(&self, step: &Value, taken: &mut [(String, Session, Vec<i32>)]) -> Played {
        let mut texts = Vec::new();
        for (_, session, new) in &*taken {
            let first = session.length()?;
            let mut text = session.tokens(0..first)?;
            text.extend(new);
            texts.push((text, first as usize));
        }
        let new_tokens: Vec<i32> =
            taken.iter().flat_map(|(_, _, new)| new.iter().copied()).collect();
        let mut batch = self
            .cache
            .begin(taken.iter_mut().map(|(_, session, new)| (session, new.len() as u32)))?;
        if self.cache.info()?.storage != Storage::EXTERNAL {
            for layer in 0..self.shapes.len() {
                self.layer(step, layer, &texts, &mut batch)?;
            }
        }
        if let Some(device) = &self.device {
            let new = |(text, first): &(Vec<i32>, usize)| rows::histories(text).split_off(*first);
            device.compute(&batch, &texts.iter().flat_map(new).collect::<Vec<_>>())?;
        }
        match step["end"].as_str() {
            Some("abort") => batch.abort()?,
            _ => batch.commit(&new_tokens)?,
        }
        match &self.device {
            Some(device) => taken.iter().try_for_each(|(_, session, _)| device.compare(session)),
            None => Ok(()),
        }
    }

    fn layer(
        &self,
        step: &Value,
        layer: usize,
        texts: &[(Vec<i32>, usize)],
        batch: &mut Batch<'_>,
    ) -> Played {
        let shape = self.shapes[layer];
        let stacked = |kind, heads, dim| -> Vec<f32> {
            let of = |(text, first): &(Vec<i32>, usize)| {
                rows::rows(text, *first, text.len(), kind, layer as u64, heads, dim)
            };
            texts.iter().flat_map(of).collect()
        };
        let k = stacked(Kind::Key, shape.kv_heads, shape.key_dim);
        let v = stacked(Kind::Value, shape.kv_heads, shape.value_dim);
        let q = stacked(Kind::Query, shape.query_heads, shape.key_dim);
        let mut out = vec![0f32; batch.rows() * (shape.query_heads * shape.value_dim) as usize];
        let (slopes, logits) =
            (floats(&step["params"], "alibi_slopes"), floats(&step["params"], "sink_logits"));
        batch.write(layer as u32, &k, &v)?;
        batch.attend_with(
            layer as u32,
            &attention_params(&step["params"], &slopes, &logits),
            &q,
            &mut out,
            None,
        )?;
        for value in step["out"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|value| number(&value[1]) == layer as u64)
        {
            let [row, _, head, dim] = [0, 1, 2, 3].map(|i| number(&value[i]));
            let found = out[((row * shape.query_heads + head) * shape.value_dim + dim) as usize];
            close(&format!("{value}"), found, &value[4], self.tolerance)?;
        }
        Ok(())
    }
}
