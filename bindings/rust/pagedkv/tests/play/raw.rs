//! Steps that Rust's types rule out (a closed session, or a session twice in a batch), by the C
//! functions.
use super::{named, text, Player};
use pagedkv::{sys, Session, Snapshot, Status};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ptr::null_mut;

/// Handles of dropped objects.
#[derive(Default)]
pub struct Closed {
    sessions: BTreeMap<String, sys::pkv_session>,
    snapshots: BTreeMap<String, sys::pkv_snapshot>,
}

impl Closed {
    pub fn session(&mut self, name: &str, session: Session) {
        self.sessions.insert(name.into(), session.as_raw());
    }

    pub fn snapshot(&mut self, name: &str, snapshot: Snapshot) {
        self.snapshots.insert(name.into(), snapshot.as_raw());
    }

    pub fn has_session(&self, name: &str) -> bool {
        self.sessions.contains_key(name)
    }

    pub fn has_snapshot(&self, name: &str) -> bool {
        self.snapshots.contains_key(name)
    }

    pub fn forget_session(&mut self, name: &str) {
        self.sessions.remove(name);
    }

    pub fn forget_snapshot(&mut self, name: &str) {
        self.snapshots.remove(name);
    }
}

fn handle(player: &Player, name: &str) -> sys::pkv_session {
    player.closed.sessions.get(name).copied().unwrap_or_else(|| player.sessions[name].as_raw())
}

fn begin(player: &Player, step: &Value) -> Status {
    let entries = step["sessions"].as_array().expect("sessions");
    let sessions: Vec<_> =
        entries.iter().map(|entry| handle(player, text(entry, "session"))).collect();
    let new: Vec<_> =
        entries.iter().map(|entry| super::rows::tokens(&entry["tokens"]).len() as u32).collect();
    let mut batch = null_mut();
    unsafe {
        let (cache, new) = (player.cache.as_raw(), new.as_ptr());
        sys::pkv_batch_begin(cache, sessions.len(), sessions.as_ptr(), new, &mut batch)
    }
}

fn of_session(session: sys::pkv_session, step: &Value) -> Status {
    let (mut length, mut other) = (0, null_mut());
    match text(step, "do") {
        "length" => unsafe { sys::pkv_session_get_length(session, &mut length) },
        "trim" => unsafe { sys::pkv_session_trim(session, super::number(&step["length"])) },
        "fork" => unsafe { sys::pkv_session_fork(session, &mut other) },
        "suspend" => unsafe { sys::pkv_session_suspend(session) },
        "close" => unsafe { sys::pkv_session_close(session) },
        unknown => panic!("the runner has no step {unknown} for a closed session"),
    }
}

fn of_snapshot(snapshot: sys::pkv_snapshot, step: &Value) -> Status {
    let mut session = null_mut();
    match text(step, "do") {
        "fork_snapshot" => unsafe { sys::pkv_snapshot_fork(snapshot, &mut session) },
        "close_snapshot" => unsafe { sys::pkv_snapshot_close(snapshot) },
        unknown => panic!("the runner has no step {unknown} for a closed snapshot"),
    }
}

/// All of these fail: only the status and the sentence are compared.
pub fn play(player: &Player, step: &Value) -> Result<(), String> {
    let status = if step.get("sessions").is_some() {
        begin(player, step)
    } else if let Some(name) = step["session"].as_str() {
        of_session(handle(player, name), step)
    } else {
        of_snapshot(player.closed.snapshots[text(step, "snapshot")], step)
    };
    let sentence = unsafe { std::ffi::CStr::from_ptr(sys::pkv_last_error()) }.to_string_lossy();
    if status == named(&step["status"], Status) && !sentence.is_empty() {
        return Ok(());
    }
    Err(format!("{status:?} ({sentence}), expected {}", step["status"]))
}
