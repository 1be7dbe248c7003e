//! This library, through its safe Rust layer: a cache without keys and values.
use crate::Peer;
use pagedkv::{Cache, CacheConfig, LayerGroup, PrefixConfig, Session, Storage};

pub struct Ids(Cache);

impl Ids {
    pub fn new(blocks: usize) -> Self {
        let group = LayerGroup::new(1, 1, 1, 16).blocks(blocks as u64);
        let config = CacheConfig::new(group).storage(Storage::EXTERNAL);
        Self(Cache::new(&config.prefix(PrefixConfig::new())).unwrap())
    }
}

impl Peer for Ids {
    type Request = Session;

    fn begin(&self, prompt: &[i32]) -> (Session, usize) {
        let mut session = self.0.open_session().unwrap();
        // The output of the last token is needed.
        let matched = session.admit(&prompt[..prompt.len() - 1], 0).unwrap();
        (session, matched as usize)
    }

    fn extend(&self, sessions: &mut [Session], tokens: &[&[i32]]) {
        let counts = tokens.iter().map(|ids| ids.len() as u32);
        self.0.begin(sessions.iter_mut().zip(counts)).unwrap().commit(&tokens.concat()).unwrap();
    }

    fn append(&self, sessions: &mut [Session], tokens: &[i32]) {
        let step = sessions.iter_mut().map(|session| (session, 1));
        self.0.begin(step).unwrap().commit(tokens).unwrap();
    }

    fn end(&self, session: Session) {
        drop(session);
    }
}
