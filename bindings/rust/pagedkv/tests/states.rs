//! Layers that keep a state instead of keys and values, in a toy of a hybrid model: layer 0 has
//! keys and values, layers 1 and 2 a running hash of all tokens each.
use pagedkv::*;

const BYTES: usize = 100; // no multiple of the alignment of a state
const STATE_LAYERS: [u32; 2] = [1, 2];
const STATE_GROUP: u32 = 1;

type State = [u8; BYTES];

/// Checkpoints are 32 tokens apart, and drafts have up to 4 tokens.
fn config() -> CacheConfig {
    let rows = LayerGroup::new(1, 1, 1, 16);
    let states = LayerGroup::states(2, BYTES as u64).checkpoint_tokens(32).draft_tokens(4);
    CacheConfig::with_groups([rows, states]).blocks(64).threads(1)
}

fn cache() -> Cache {
    Cache::new(&config()).unwrap()
}

/// A hash of all bytes of the state before, the layer and the token.
fn next_state(before: Option<&[u8]>, layer: u32, token: i32) -> State {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100000001B3).rotate_left(23);
    let bytes = before.unwrap_or(&[]).iter().map(|&byte| u64::from(byte));
    let mut hash = bytes.chain([u64::from(layer), token as u64]).fold(0xCBF29CE484222325, mix);
    [0; BYTES].map(|_: u8| {
        hash = mix(hash, 1);
        hash as u8
    })
}

fn state_of(text: &[i32], layer: u32) -> State {
    let next = |state: Option<State>, &token: &i32| {
        Some(next_state(state.as_ref().map(|state| &state[..]), layer, token))
    };
    text.iter().fold(None, next).unwrap()
}

/// New tokens of one session, and which of them each one follows; -1: the last one of the session.
type NewTokens = (Vec<i32>, Vec<i32>);

fn chain(tokens: &[i32]) -> NewTokens {
    (tokens.to_vec(), (-1..tokens.len() as i32 - 1).collect())
}

fn write(batch: &mut Batch<'_>, news: &[NewTokens]) {
    let rows = vec![0f32; batch.rows() * 16];
    batch.write(0, &rows, &rows).unwrap();
    for layer in STATE_LAYERS {
        let states = batch.states(layer).unwrap();
        assert_eq!(states.len(), news.len());
        for (SessionStates { before, after }, (tokens, parents)) in states.into_iter().zip(news) {
            let mut computed: Vec<State> = Vec::new();
            for (&token, &parent) in tokens.iter().zip(parents) {
                let parent = computed.get(parent as usize).map(|state| &state[..]);
                computed.push(next_state(parent.or(before), layer, token));
            }
            for (token, state) in after {
                assert_eq!(state.as_ptr() as usize % 64, 0);
                state.copy_from_slice(&computed[token as usize]);
            }
        }
    }
}

fn step(cache: &Cache, session: &mut Session, tokens: &[i32]) {
    let mut batch = cache.begin([(session, tokens.len() as u32)]).unwrap();
    write(&mut batch, &[chain(tokens)]);
    batch.commit(tokens).unwrap();
}

/// After how many tokens the session holds a state; all of them are those of the text.
fn held(session: &Session, text: &[i32]) -> Vec<u64> {
    assert_eq!(session.tokens(0..text.len() as u64).unwrap(), text);
    assert_eq!(session.length().unwrap(), text.len() as u64);
    let mut state = [0; BYTES];
    let mut is_held = |tokens: &u64| {
        STATE_LAYERS.iter().all(|&layer| match session.read_state(layer, *tokens, &mut state) {
            Ok(()) => {
                assert_eq!(state, state_of(&text[..*tokens as usize], layer));
                true
            }
            Err(error) => {
                assert_eq!(error.status(), Status::OUT_OF_RANGE);
                false
            }
        })
    };
    (1..=text.len() as u64).filter(|tokens| is_held(tokens)).collect()
}

fn text(n: usize) -> Vec<i32> {
    (0..n as i32).collect()
}

#[test]
fn steps_forks_and_trims() {
    let (cache, whole) = (cache(), text(100));
    let mut session = cache.open_session().unwrap();
    step(&cache, &mut session, &whole[..70]);
    assert_eq!(held(&session, &whole[..70]), [32, 64, 70]);
    let mut fork = session.fork().unwrap();

    // Two sessions with new tokens and one without in one step, which the first time is aborted.
    let mut idle = session.fork().unwrap();
    let news = [chain(&whole[70..]), chain(&[]), chain(&[7; 3])];
    for commits in [false, true] {
        let sessions = [(&mut session, 30), (&mut idle, 0), (&mut fork, 3)];
        let mut batch = cache.begin(sessions).unwrap();
        let kept = batch.state_blocks(STATE_GROUP).unwrap();
        assert_eq!((kept.indptr, kept.tokens), (vec![0, 2, 2, 5], vec![25, 29, 0, 1, 2]));
        write(&mut batch, &news);
        if commits {
            batch.commit(&[&whole[70..], &[7; 3]].concat()).unwrap();
        } else {
            batch.abort().unwrap();
        }
    }
    assert_eq!(held(&session, &whole), [32, 64, 96, 100]);
    assert_eq!(held(&idle, &whole[..70]), [32, 64, 70]);
    assert_eq!(held(&fork, &[&whole[..70], &[7; 3]].concat()), [32, 64, 73]);

    assert_eq!(session.trim_point(1000).unwrap(), 100);
    assert_eq!(session.trim_point(95).unwrap(), 64);
    assert_eq!(session.trim_point(31).unwrap(), 0);
    assert_eq!(session.trim(95).unwrap_err().status(), Status::OUT_OF_RANGE);
    session.trim(64).unwrap();
    step(&cache, &mut session, &[8; 40]);
    assert_eq!(held(&session, &[&whole[..64], &[8; 40]].concat()), [32, 64, 96, 104]);
    cache.validate().unwrap();
}

#[test]
fn any_path_of_a_draft_is_accepted() {
    let cache = cache();
    // 10 is followed by 11 and by 12, 12 by 13.
    let draft = (vec![10, 11, 12, 13], vec![-1, 0, 0, 2]);
    for path in [&[][..], &[0], &[0, 1], &[0, 2], &[0, 2, 3]] {
        let mut session = cache.open_session().unwrap();
        step(&cache, &mut session, &text(15));
        let mut batch = cache.begin([(&mut session, 4)]).unwrap();
        write(&mut batch, std::slice::from_ref(&draft));
        batch.accept(0, path).unwrap();
        assert_eq!(batch.states(1).unwrap_err().status(), Status::INVALID_ARGUMENT);
        batch.commit(&draft.0).unwrap();
        let mut expected = text(15);
        expected.extend(path.iter().map(|&i| draft.0[i as usize]));
        assert_eq!(held(&session, &expected).last(), Some(&(expected.len() as u64)));
    }
}

#[test]
fn threads_write_the_states_of_a_step() {
    let cache = cache();
    let mut sessions: Vec<_> = (0..4).map(|_| cache.open_session().unwrap()).collect();
    let mut batch = cache.begin(sessions.iter_mut().map(|session| (session, 1))).unwrap();
    batch.write(0, &[0f32; 4 * 16], &[0f32; 4 * 16]).unwrap();
    for layer in STATE_LAYERS {
        let states = batch.states(layer).unwrap();
        std::thread::scope(|scope| {
            for (SessionStates { before, after }, token) in states.into_iter().zip(0..) {
                scope.spawn(move || {
                    for (_, state) in after {
                        state.copy_from_slice(&next_state(before, layer, token));
                    }
                });
            }
        });
    }
    batch.commit(&[0, 1, 2, 3]).unwrap();
    for (session, token) in sessions.iter().zip(0..) {
        assert_eq!(held(session, &[token]), [1]);
    }
}

#[test]
fn engines_with_states_of_their_own() {
    let cache = Cache::new(&config().storage(Storage::NONE)).unwrap();
    let (mut session, whole) = (cache.open_session().unwrap(), text(40));
    let mut slab = [[0; BYTES]; 64];
    for chunk in whole.chunks(8) {
        let mut batch = cache.begin([(&mut session, 8)]).unwrap();
        assert_eq!(batch.states(1).unwrap_err().status(), Status::UNSUPPORTED);
        let StateBlocks { before, tokens, after, .. } = batch.state_blocks(STATE_GROUP).unwrap();
        assert_eq!(before[0] == NO_BLOCK, chunk[0] == 0);
        let mut state = (before[0] != NO_BLOCK).then(|| slab[before[0] as usize]);
        for (i, &token) in (0..).zip(chunk) {
            state = Some(next_state(state.as_ref().map(|state| &state[..]), 1, token));
            if let Some(at) = tokens.iter().position(|&token| token == i) {
                slab[after[at] as usize] = state.unwrap();
            }
        }
        batch.commit(chunk).unwrap();
    }
    let last = *session.block_table(STATE_GROUP).unwrap().last().unwrap();
    assert_eq!(slab[last as usize], state_of(&whole, 1));
    let error = session.read_state(1, 40, &mut [0; BYTES]).unwrap_err();
    assert_eq!(error.status(), Status::UNSUPPORTED);
}

#[test]
fn wrong_calls_are_refused() {
    fn status<T>(outcome: Result<T>) -> Option<Status> {
        outcome.err().map(|error| error.status())
    }
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    step(&cache, &mut session, &text(20));
    let (mut k, mut v) = ([0f32; 16], [0f32; 16]);
    let mut state = [0; BYTES + 1];
    let mut read = |layer, tokens, size| session.read_state(layer, tokens, &mut state[..size]);
    assert_eq!(status(read(1, 20, BYTES)), None);
    assert_eq!(status(read(1, 20, BYTES - 1)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(status(read(1, 20, BYTES + 1)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(status(read(1, 0, BYTES)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(read(1, 19, BYTES)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(read(1, 21, BYTES)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(read(3, 20, BYTES)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(read(0, 20, BYTES)), Some(Status::UNSUPPORTED));
    assert_eq!(status(session.read(1, 0..1, &mut k, &mut v)), Some(Status::UNSUPPORTED));
    assert_eq!(status(session.append(1, 1, &k, &v)), Some(Status::UNSUPPORTED));

    let mut batch = cache.begin([(&mut session, 1)]).unwrap();
    let error = batch.states(0).unwrap_err();
    assert_eq!(error.message(), "layer 0 keeps keys and values, and no state");
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert_eq!(status(batch.states(3)), Some(Status::OUT_OF_RANGE));
    assert_eq!(status(batch.state_blocks(0)), Some(Status::UNSUPPORTED));
    assert_eq!(status(batch.state_blocks(2)), Some(Status::OUT_OF_RANGE));
    let error = batch.write(1, &k, &v).unwrap_err();
    assert_eq!(error.message(), "layer 1 keeps a state, and no keys and values");
    assert_eq!(error.status(), Status::UNSUPPORTED);
    assert_eq!(status(batch.attend(1, &k, &mut v)), Some(Status::UNSUPPORTED));
    assert_eq!(status(batch.commit(&[1])), Some(Status::INCOMPLETE));

    let refused = |states: LayerGroup| status(Cache::new(&CacheConfig::new(states).blocks(8)));
    let states = LayerGroup::states(1, 8);
    assert_eq!(refused(states.clone()), None);
    assert_eq!(refused(states.clone().window(4)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(refused(states.clone().checkpoint_tokens(24)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(refused(states.draft_tokens(257)), Some(Status::INVALID_ARGUMENT));
    assert_eq!(refused(LayerGroup::states(1, u64::MAX)), Some(Status::OVERFLOW));
}
