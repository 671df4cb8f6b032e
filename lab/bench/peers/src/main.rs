//! Replays an operation file of indexbench through kv-index's ChainIndex and
//! prints the costs of its operations, with checksums of all matches.
//!
//!     peers ops-64.bin [full]

use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::SeqCst};
use std::time::Instant;

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

/// Counts live bytes while COUNT is on.
struct Counting;
static LIVE: AtomicIsize = AtomicIsize::new(0);
static COUNT: AtomicBool = AtomicBool::new(false);
static MI: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn count(n: isize) {
    if COUNT.load(SeqCst) {
        LIVE.fetch_add(n, SeqCst);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        count(l.size() as isize);
        MI.alloc(l)
    }
    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        count(l.size() as isize);
        MI.alloc_zeroed(l)
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        count(-(l.size() as isize));
        MI.dealloc(p, l)
    }
    unsafe fn realloc(&self, p: *mut u8, l: Layout, n: usize) -> *mut u8 {
        count(n as isize - l.size() as isize);
        MI.realloc(p, l, n)
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

const QUERY: u32 = 0;
const STORE: u32 = 1;

enum Op {
    Query(Vec<u64>),
    Store(usize, Option<SequenceHash>, Vec<StoredBlock>),
    Remove(usize, Vec<SequenceHash>),
}

/// The engine hashes of kv-index are chained content hashes in its own users;
/// ours are opaque, which it allows.
fn load(path: &str) -> (usize, Vec<Op>) {
    let d = std::fs::read(path).expect("operation file");
    assert_eq!(&d[..8], b"IDXW0001", "not an operation file");
    let u32_at = |o: usize| u32::from_le_bytes(d[o..o + 4].try_into().unwrap());
    let u64_at = |o: usize| u64::from_le_bytes(d[o..o + 8].try_into().unwrap());
    let (replicas, n) = (u32_at(8) as usize, u32_at(12) as usize);
    let mut ops = Vec::with_capacity(n);
    let mut o = 16;
    for _ in 0..n {
        let (kind, replica, count) = (u32_at(o), u32_at(o + 4) as usize, u32_at(o + 8) as usize);
        let parent = (u32_at(o + 12) != 0).then(|| SequenceHash(u64_at(o + 16)));
        o += 24;
        match kind {
            QUERY => {
                ops.push(Op::Query((0..count).map(|i| u64_at(o + 16 * i)).collect()));
                o += 16 * count;
            }
            STORE => {
                let blocks = (0..count)
                    .map(|i| StoredBlock {
                        content_hash: ContentHash(u64_at(o + 16 * i)),
                        seq_hash: SequenceHash(u64_at(o + 16 * i + 8)),
                    })
                    .collect();
                ops.push(Op::Store(replica, parent, blocks));
                o += 16 * count;
            }
            _ => {
                ops.push(Op::Remove(replica, (0..count).map(|i| SequenceHash(u64_at(o + 8 * i))).collect()));
                o += 8 * count;
            }
        }
    }
    (replicas, ops)
}

struct Peer {
    index: ChainIndex,
    ids: Vec<u32>,
    maps: Vec<ChainBlockMap>,
}

impl Peer {
    fn new(replicas: usize) -> Peer {
        let index = ChainIndex::with_max_workers(replicas);
        let ids = (0..replicas).map(|i| index.intern_worker(&format!("w{i}")).expect("worker")).collect();
        Peer { index, ids, maps: (0..replicas).map(|_| ChainBlockMap::new()).collect() }
    }
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Query(_) => {}
            Op::Store(r, parent, blocks) => {
                self.index.apply_stored(self.ids[*r], blocks, *parent, &mut self.maps[*r]).expect("parent");
            }
            Op::Remove(r, hashes) => self.index.apply_removed(self.ids[*r], hashes, &mut self.maps[*r]),
        }
    }
    fn lookup(&self, q: &[u64], out: &mut Vec<(u32, u32)>) {
        out.clear();
        self.index.score_into(q, |x| *x, false, |w, s| out.push((w, s)));
    }
}

fn warm(q: &[u64]) {
    std::hint::black_box(q.iter().fold(0u64, |a, b| a.wrapping_add(*b)));
}

fn trimmed_mean(v: &mut [u64]) -> f64 {
    v.sort_unstable();
    let n = v.len() * 998 / 1000;
    v[..n].iter().sum::<u64>() as f64 / n.max(1) as f64
}

fn quantile(v: &mut [u64], q: f64) -> u64 {
    v.sort_unstable();
    v[((v.len() - 1) as f64 * q) as usize]
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(|a, b| a.partial_cmp(b).unwrap());
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}

fn replay(replicas: usize, ops: &[Op]) {
    let mut peer = Peer::new(replicas);
    let (mut stores, mut removes, mut lookups) = (vec![], vec![], vec![]);
    let (mut best, mut total, mut blocks) = (0u64, 0u64, 0usize);
    let mut out = Vec::with_capacity(replicas);
    for op in ops {
        match op {
            Op::Query(q) => {
                warm(q);
                let t = Instant::now();
                peer.lookup(q, &mut out);
                lookups.push(t.elapsed().as_nanos() as u64);
                blocks += q.len();
                best += out.iter().map(|x| x.1).max().unwrap_or(0) as u64;
                total += out.iter().map(|x| x.1 as u64).sum::<u64>();
            }
            Op::Store(_, _, b) => {
                let t = Instant::now();
                peer.apply(op);
                let per = t.elapsed().as_nanos() as f64 / b.len() as f64;
                if b.len() >= 64 {
                    stores.push(per);
                }
            }
            Op::Remove(_, h) => {
                let t = Instant::now();
                peer.apply(op);
                removes.push(t.elapsed().as_nanos() as f64 / h.len() as f64);
            }
        }
    }
    let mean = trimmed_mean(&mut lookups);
    println!(
        "kv-index R={replicas} replay: store {:.1} ns/blk, remove {:.1} ns/blk, lookup mean {mean:.0} ns p50 {} p99 {}, {:.2} ns per queried block, best={best} total={total}",
        median(&mut stores), median(&mut removes), quantile(&mut lookups, 0.5), quantile(&mut lookups, 0.99),
        mean * lookups.len() as f64 / blocks as f64
    );
}

fn memory(replicas: usize, ops: &[Op]) {
    LIVE.store(0, SeqCst);
    COUNT.store(true, SeqCst);
    let mut peer = Peer::new(replicas);
    for op in ops {
        peer.apply(op);
    }
    COUNT.store(false, SeqCst);
    let live = LIVE.load(SeqCst);
    let mut held: HashMap<u64, ()> = HashMap::new();
    let mut by: Vec<HashMap<u64, ()>> = (0..replicas).map(|_| HashMap::new()).collect();
    for op in ops {
        match op {
            Op::Store(r, _, b) => b.iter().for_each(|b| {
                by[*r].insert(b.seq_hash.0, ());
            }),
            Op::Remove(r, h) => h.iter().for_each(|h| {
                by[*r].remove(&h.0);
            }),
            Op::Query(_) => {}
        }
    }
    by.iter().for_each(|m| held.extend(m.iter().map(|(k, _)| (*k, ()))));
    println!(
        "kv-index R={replicas} events: live {live} bytes, {} distinct blocks, {:.1} bytes each",
        held.len(), live as f64 / held.len() as f64
    );
}

/// Chains of one length: all replicas hold all, or each a different part.
fn growth() {
    for length in [64usize, 512, 8192] {
        for replicas in [8usize, 64, 512] {
            for staggered in [false, true] {
                grow(length, replicas, staggered);
            }
        }
    }
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn grow(length: usize, replicas: usize, staggered: bool) {
    let chains = (2_000_000 / (length * replicas)).clamp(1, 64);
    let mut peer = Peer::new(replicas);
    let mut queries = vec![];
    for c in 0..chains {
        let block = |i: usize| (c * length + i) as u64;
        queries.push((0..length).map(|i| mix(block(i) * 2 + 1)).collect::<Vec<u64>>());
        for r in 0..replicas {
            let n = if staggered { (length * (r + 1) / replicas).max(1) } else { length };
            for from in (0..n).step_by(128) {
                let blocks = (from..n.min(from + 128))
                    .map(|i| StoredBlock { content_hash: ContentHash(mix(block(i) * 2 + 1)), seq_hash: SequenceHash(mix(block(i) * 2 + 2) | 1) })
                    .collect();
                let parent = (from > 0).then(|| SequenceHash(mix(block(from - 1) * 2 + 2) | 1));
                peer.apply(&Op::Store(r, parent, blocks));
            }
        }
    }
    let mut out = Vec::with_capacity(replicas);
    let mut lat = vec![];
    let start = Instant::now();
    while start.elapsed().as_millis() < 150 {
        let q = &queries[lat.len() % chains];
        warm(q);
        let t = Instant::now();
        peer.lookup(q, &mut out);
        lat.push(t.elapsed().as_nanos() as u64);
        std::hint::black_box(&out);
    }
    let shape = if staggered { "all different" } else { "all full" };
    println!("kv-index growth L={length} R={replicas} {shape}: median {} ns", quantile(&mut lat, 0.5));
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("growth") => growth(),
        Some(path) => {
            let (replicas, ops) = load(path);
            replay(replicas, &ops);
            if args.get(2).map(String::as_str) == Some("full") {
                memory(replicas, &ops);
            }
        }
        None => {
            eprintln!("usage: peers ops-R.bin [full] | peers growth");
            std::process::exit(2);
        }
    }
}
