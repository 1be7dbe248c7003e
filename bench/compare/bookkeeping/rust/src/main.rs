//! Measures the bookkeeping of one peer, in a process of its own.
//!
//! The jobs are those of pagedkv_peer.cpp, which says what they are.
mod kvbm;
mod ours;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, fs, slice, thread};

const BLOCK: usize = 16;

/// What all peers do for requests.
pub trait Peer: Sync {
    type Request: Send;
    /// Takes over what is cached of a prompt. Returns how many tokens that are.
    fn begin(&self, prompt: &[i32]) -> (Self::Request, usize);
    /// Takes blocks for new tokens of each request, and caches them. The first are the rest of the
    /// prompt.
    fn extend(&self, requests: &mut [Self::Request], tokens: &[&[i32]]);
    /// One new token of each request.
    fn append(&self, requests: &mut [Self::Request], tokens: &[i32]);
    /// Gives blocks back; what is cached stays.
    fn end(&self, request: Self::Request);
}

/// The tokens of a segment: those that trace.cpp computes (splitmix64).
fn segment(number: u64, length: usize) -> impl Iterator<Item = i32> {
    const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;
    let start = number.wrapping_mul(INCREMENT).wrapping_add(INCREMENT);
    (0..length as u64).map(move |i| {
        let mut x = start.wrapping_add(i);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 33) as i32
    })
}

fn text(number: u64, length: usize) -> Vec<i32> {
    segment(number, length).collect()
}

/// The prompt and the answer of one request.
fn read(line: &str) -> (Vec<i32>, Vec<i32>) {
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let (prompt, answer) = numbers.split_at(numbers.len() - 2);
    let tokens = |segments: &[u64]| {
        segments.chunks(2).flat_map(|pair| segment(pair[0], pair[1] as usize)).collect()
    };
    (tokens(prompt), tokens(answer))
}

/// Leaves a prompt in the cache.
fn keep<P: Peer>(peer: &P, prompt: &[i32]) {
    let (mut request, matched) = peer.begin(prompt);
    peer.extend(slice::from_mut(&mut request), &[&prompt[matched..]]);
    peer.end(request);
}

/// Returns how many tokens of the prompts were cached.
fn serve<P: Peer>(peer: &P, texts: &[(Vec<i32>, Vec<i32>)]) -> usize {
    let (mut requests, matched): (Vec<_>, Vec<_>) =
        texts.iter().map(|(prompt, _)| peer.begin(prompt)).unzip();
    let rest: Vec<_> = texts.iter().zip(&matched).map(|(text, &from)| &text.0[from..]).collect();
    peer.extend(&mut requests, &rest);
    let answers: Vec<_> = texts.iter().map(|(_, answer)| &answer[..]).collect();
    peer.extend(&mut requests, &answers);
    requests.into_iter().for_each(|request| peer.end(request));
    matched.iter().sum()
}

fn trace<P: Peer>(peer: &P, path: &str, threads: usize) {
    const PREPARED: usize = 256;
    const TOGETHER: usize = 8;
    let lines = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let (mut seconds, mut asked, hits) = (0.0, 0, AtomicUsize::new(0));
    for some in lines.chunks(PREPARED) {
        let texts: Vec<_> = some.iter().map(|line| read(line)).collect();
        asked += texts.iter().map(|(prompt, _)| prompt.len()).sum::<usize>();
        let next = AtomicUsize::new(0);
        let work = || {
            let take = || texts.chunks(TOGETHER).nth(next.fetch_add(1, Ordering::Relaxed));
            while let Some(some) = take() {
                hits.fetch_add(serve(peer, some), Ordering::Relaxed);
            }
        };
        let begin = Instant::now();
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        seconds += begin.elapsed().as_secs_f64();
    }
    let hits = hits.into_inner() as f64 / asked as f64;
    println!("{{\"seconds\": {seconds}, \"requests\": {}, \"hits\": {hits}}}", lines.len());
}

const LONG: usize = 32768;
const LONG_TEXTS: usize = 100;

fn matches<P: Peer>(peer: &P) {
    let mut prompts: Vec<_> = (0..LONG_TEXTS).map(|number| text(number as u64, LONG)).collect();
    for prompt in &mut prompts {
        keep(peer, prompt);
        prompt.push(1);
    }
    let fastest = fastest(5, || {
        let begin = Instant::now();
        for prompt in &prompts {
            let (mut request, matched) = peer.begin(prompt);
            assert_eq!(matched, LONG);
            peer.extend(slice::from_mut(&mut request), &[&prompt[LONG..]]);
            peer.end(request);
        }
        begin.elapsed().as_secs_f64()
    });
    println!("{{\"us\": {}}}", fastest * 1e6 / LONG_TEXTS as f64);
}

fn fastest(turns: usize, mut turn: impl FnMut() -> f64) -> f64 {
    (0..turns).map(|_| turn()).fold(f64::INFINITY, f64::min)
}

const SEQUENCES: usize = 256;
const APPENDED: usize = 20;
const TURNS: usize = 5;

fn append<P: Peer>(peer: &P) {
    let mut turn = 0;
    let fastest = fastest(TURNS, || {
        let mut requests: Vec<_> = (0..SEQUENCES)
            .map(|i| {
                let prompt = text((turn * SEQUENCES + i) as u64, BLOCK);
                let mut request = peer.begin(&prompt).0;
                peer.extend(slice::from_mut(&mut request), &[&prompt]);
                request
            })
            .collect();
        let tokens = text(turn as u64, SEQUENCES);
        let begin = Instant::now();
        for _ in 0..APPENDED * BLOCK {
            peer.append(&mut requests, &tokens);
        }
        let seconds = begin.elapsed().as_secs_f64();
        requests.into_iter().for_each(|request| peer.end(request));
        turn += 1;
        seconds
    });
    println!("{{\"us\": {}}}", fastest * 1e6 / (SEQUENCES * APPENDED) as f64);
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

const MANY: usize = 1 << 20;

fn memory<P: Peer>(make: impl FnOnce(usize) -> P) {
    const LENGTH: usize = 2048;
    let before = resident_bytes();
    let peer = make(MANY);
    for number in 0..MANY * BLOCK / LENGTH {
        keep(&peer, &text(number as u64, LENGTH));
    }
    println!("{{\"bytes\": {}}}", (resident_bytes() - before) as f64 / MANY as f64);
}

fn run<P: Peer>(make: impl FnOnce(usize) -> P, job: &str, arguments: &[String]) {
    match (job, arguments) {
        ("trace", [path, blocks, threads]) => {
            trace(&make(blocks.parse().unwrap()), path, threads.parse().unwrap())
        }
        ("match", []) => matches(&make((LONG_TEXTS + 1) * (LONG / BLOCK + 1))),
        ("append", []) => append(&make(SEQUENCES * (APPENDED + 2) * (TURNS + 1))),
        ("memory", []) => memory(make),
        _ => panic!("usage: bookkeeping PEER trace REQUESTS BLOCKS THREADS|match|append|memory"),
    }
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let (peer, job, arguments) = (words[0].as_str(), words[1].as_str(), &words[2..]);
    match peer {
        "pagedkv" => run(ours::Ids::new, job, arguments),
        backend => run(|blocks| kvbm::Manager::new(blocks, backend), job, arguments),
    }
}
