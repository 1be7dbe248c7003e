//! Layers that keep a state instead of keys and values, in a toy hybrid model: layer 0 has keys and
//! values; layers 1 and 2 each have a state.
use pagedkv::*;

const BYTES: usize = 100; // not a multiple of a state's alignment
const STATE_LAYERS: [u32; 2] = [1, 2];
const STATE_GROUP: u32 = 1;

type State = [u8; BYTES];

/// Checkpoints are 32 tokens apart, and drafts have up to 4 tokens.
fn config() -> CacheConfig {
    let rows = LayerGroup::new(1, 1, 1, 16).blocks(64);
    let states = LayerGroup::states(2, BYTES as u64).checkpoint_interval(32).max_verify_tokens(4);
    CacheConfig::with_groups([rows, states.blocks(64)]).threads(1)
}

fn cache() -> Cache {
    Cache::new(&config()).unwrap()
}

fn state_of(layer: u32, mark: u8) -> State {
    [128 * (layer as u8 - 1) + mark; BYTES]
}

/// Writes all layers of a step, on a thread for each session. The state after new token i of
/// session s has the mark `sessions[s].1` + i; the one before the step has `sessions[s].0`, 0 for
/// none.
fn write(batch: &mut Batch<'_>, sessions: &[(u8, u8)]) {
    let rows = vec![0f32; batch.rows() * 16];
    batch.write(0, &rows, &rows).unwrap();
    for layer in STATE_LAYERS {
        let states = batch.states(layer).unwrap();
        assert_eq!(states.len(), sessions.len());
        std::thread::scope(|scope| {
            for (SessionStates { before, after }, &(old, mark)) in states.into_iter().zip(sessions)
            {
                let wanted = state_of(layer, old);
                assert_eq!(before, Some(&wanted[..]).filter(|_| old > 0));
                scope.spawn(move || {
                    for (token, state) in after {
                        assert_eq!(state.as_ptr() as usize % 64, 0);
                        state.copy_from_slice(&state_of(layer, mark + token as u8));
                    }
                });
            }
        });
    }
}

fn step(cache: &Cache, session: &mut Session, tokens: u32, marks: (u8, u8)) {
    let mut batch = cache.begin([(session, tokens)]).unwrap();
    write(&mut batch, &[marks]);
    batch.commit(None).unwrap();
}

/// After how many tokens the session has a state, and the marks of these.
fn held(session: &Session) -> Vec<(u64, u8)> {
    let mut found = Vec::new();
    for tokens in 1..=session.length().unwrap() {
        for layer in STATE_LAYERS {
            let mut state = [0; BYTES];
            match session.state(layer, tokens, &mut state) {
                Ok(()) => {
                    assert_eq!(state, state_of(layer, state[0] % 128));
                    found.push((tokens, state[0] % 128));
                }
                Err(error) => assert_eq!(error.status(), Status::OUT_OF_RANGE),
            }
        }
    }
    assert!(found.chunks(2).all(|layers| layers[0] == layers[1]), "{found:?}");
    found.into_iter().step_by(2).collect()
}

#[test]
fn steps_forks_and_trims() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    step(&cache, &mut session, 70, (0, 1));
    assert_eq!(held(&session), [(32, 32), (64, 64), (70, 70)]);
    let (mut fork, mut idle) = (session.fork().unwrap(), session.fork().unwrap());

    // Two sessions with new tokens and one without in one step.
    let mut batch = cache.begin([(&mut session, 30), (&mut idle, 0), (&mut fork, 3)]).unwrap();
    let kept = batch.state_blocks(STATE_GROUP).unwrap();
    assert_eq!((kept.indptr, kept.tokens), (vec![0, 2, 2, 5], vec![25, 29, 0, 1, 2]));
    write(&mut batch, &[(70, 71), (70, 0), (70, 101)]);
    batch.commit(None).unwrap();
    assert_eq!(held(&session), [(32, 32), (64, 64), (96, 96), (100, 100)]);
    assert_eq!(held(&idle), [(32, 32), (64, 64), (70, 70)]);
    assert_eq!(held(&fork), [(32, 32), (64, 64), (73, 103)]);

    assert_eq!([1000, 95, 31].map(|limit| session.trim_point(limit).unwrap()), [100, 64, 0]);
    assert_eq!(session.trim(95).unwrap_err().status(), Status::OUT_OF_RANGE);
    cache.validate().unwrap();
}

#[test]
fn a_path_of_a_draft_is_accepted() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    step(&cache, &mut session, 15, (0, 1));
    let mut batch = cache.begin([(&mut session, 4)]).unwrap();
    write(&mut batch, &[(15, 50)]);
    batch.accept(0, &[0, 2]).unwrap();
    assert_eq!(batch.states(1).unwrap()[0].after.len(), 4, "the accept changes no states");
    batch.commit(None).unwrap();
    assert_eq!(held(&session), [(16, 50), (17, 52)]);
}

#[test]
fn engines_with_states_of_their_own() {
    let cache = Cache::new(&config().storage(Storage::EXTERNAL)).unwrap();
    let (mut session, mut last) = (cache.open_session().unwrap(), NO_BLOCK_ID);
    for _ in 0..5 {
        let mut batch = cache.begin([(&mut session, 8)]).unwrap();
        assert_eq!(batch.states(1).unwrap_err().status(), Status::UNSUPPORTED);
        let blocks = batch.state_blocks(STATE_GROUP).unwrap();
        assert_eq!(blocks.before, [last]);
        last = *blocks.after.last().unwrap();
        batch.commit(None).unwrap();
    }
    assert_eq!(session.block_table(STATE_GROUP).unwrap().last(), Some(&last));
    let error = session.state(1, 40, &mut [0; BYTES]).unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
}

#[test]
fn wrong_calls_are_refused() {
    fn status<T>(outcome: Result<T>) -> Option<Status> {
        outcome.err().map(|error| error.status())
    }
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    step(&cache, &mut session, 20, (0, 1));
    let mut state = [0; BYTES + 1];
    let mut read = |layer, tokens, size| session.state(layer, tokens, &mut state[..size]);
    assert_eq!(status(read(1, 20, BYTES)), None);
    assert_eq!(status(read(1, 20, BYTES - 1)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(status(read(1, 20, BYTES + 1)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(status(read(3, 20, BYTES)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(read(0, 20, BYTES)), Some(Status::UNSUPPORTED));
    let mut batch = cache.begin([(&mut session, 1)]).unwrap();
    let error = batch.states(0).unwrap_err();
    assert_eq!(error.message(), "layer 0 keeps keys and values, and no state");
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert_eq!(status(batch.states(3)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(batch.state_blocks(0)), Some(Status::UNSUPPORTED));
}
