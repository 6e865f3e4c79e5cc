//! Plans of random buffers, checked by the verifier and compared with ExecuTorch's greedy algorithm and the bound.

use super::arena::Arena;
use super::greedy::greedy;
use super::*;

/// Random numbers for tests from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Buffers like those of networks: most are in use for a few instructions, some for long, and sizes repeat.
fn network(random: &mut Random, count: u64, long: u64) -> Vec<Buffer> {
    let lifetime = |random: &mut Random| if random.below(8) == 0 { random.below(long) } else { random.below(4) };
    (0..count)
        .map(|at| {
            let bytes = [1, 40, 64, 1000, 4096, 50_000][random.below(6) as usize] * (1 + random.below(3));
            let first = at as usize;
            Buffer::new(bytes, first, first + lifetime(random) as usize)
        })
        .collect()
}

/// Buffers of any kind: zero bytes, other alignments and arenas, settled offsets that do not conflict.
fn anything(random: &mut Random) -> Vec<Buffer> {
    let instructions = 1 + random.below(40);
    let mut state = 0;
    (0..random.below(60))
        .map(|_| {
            let first = random.below(instructions);
            let last = first + random.below(instructions - first);
            let bytes = random.below(300);
            let alignment = if random.below(6) == 0 { 1 << random.below(9) } else { 16 };
            let buffer = Buffer { alignment, ..Buffer::new(bytes, first as usize, last as usize) };
            match random.below(12) {
                0 => {
                    let offset = (state + random.below(200)).next_multiple_of(alignment);
                    state = offset + bytes;
                    buffer.at(offset)
                }
                1 | 2 => buffer.in_arena(2 + random.below(2) as u32),
                _ => buffer,
            }
        })
        .collect()
}

/// Returns the size of the greedy plan. Like ExecuTorch's, it rounds every size up to the alignment.
fn greedy_total(buffers: &[Buffer]) -> u64 {
    let members: Vec<usize> = (0..buffers.len()).collect();
    greedy(&Arena::new(buffers, &members)).unwrap().peak * DEFAULT_ALIGNMENT
}

#[test]
fn random_plans_are_valid_and_no_larger_than_greedy_ones() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut ours, mut theirs, mut bound, mut optimal) = (0, 0, 0, 0);
    const RUNS: usize = 60;
    for run in 0..RUNS {
        let count = 1 + random.below(150);
        let buffers = network(&mut random, count, 40);
        let planned = plan(&buffers).unwrap();
        assert_eq!(check(&buffers, &planned), Ok(()), "run {run}");
        let lower = lower_bound(&buffers)[&1];
        let greedy = greedy_total(&buffers);
        assert!(lower <= planned.total() && planned.total() <= greedy, "run {run}: {} of {greedy}", planned.total());
        // The bound counts bytes. A plan may also have gaps that are smaller than the alignment.
        optimal += usize::from(planned.total() < lower + DEFAULT_ALIGNMENT * 16);
        ours += planned.total();
        theirs += greedy;
        bound += lower;
    }
    println!("{ours} bytes for greedy {theirs}, bound {bound}; {optimal} of {RUNS} at the bound");
    assert!(ours < theirs, "{ours} of {theirs}");
    assert!(ours * 100 <= bound * 102, "{ours} of {bound}");
}

#[test]
fn plans_of_anything_are_valid() {
    let mut random = Random(7);
    for run in 0..150 {
        let buffers = anything(&mut random);
        let planned = plan(&buffers).unwrap();
        assert_eq!(check(&buffers, &planned), Ok(()), "run {run}: {buffers:?}");
        assert!(lower_bound(&buffers).iter().all(|(id, bound)| planned.arenas[id] >= *bound), "run {run}");
        assert_eq!(plan(&buffers).unwrap(), planned, "run {run}");
    }
}

#[test]
fn a_chain_takes_its_two_largest_neighbours() {
    let chain: Vec<Buffer> = (0..100).map(|i| Buffer::new(64 * (1 + i as u64 % 7), i, i + 1)).collect();
    let planned = plan(&chain).unwrap();
    assert_eq!(planned.total(), 64 * (6 + 7));
}

#[test]
fn greedy_can_be_beaten_where_sizes_fragment() {
    // The buckets of 100 and 60 bytes cannot be joined for the later item of 160, so it opens a third.
    let buffers = [Buffer::new(112, 0, 1), Buffer::new(64, 0, 1), Buffer::new(96, 2, 3), Buffer::new(80, 2, 3)];
    assert_eq!(greedy_total(&buffers), 192);
    assert_eq!(plan(&buffers).unwrap().total(), 176);
}

#[test]
fn settled_state_is_kept_below() {
    let state = Buffer::new(100, 0, 9).at(0);
    let buffers = [Buffer::new(64, 0, 3), state, Buffer::new(64, 4, 9), Buffer::new(0, 2, 2)];
    let planned = plan(&buffers).unwrap();
    assert_eq!(planned.offsets, [112, 0, 112, 0]);
    assert_eq!(planned.total(), 176);
    // A settled buffer leaves the room below it to others.
    let planned = plan(&[Buffer::new(64, 0, 3), Buffer::new(100, 0, 9).at(64)]).unwrap();
    assert_eq!(planned.offsets, [0, 64]);
}

#[test]
fn contradictions_are_refused() {
    let buffer = Buffer::new(64, 3, 5);
    let reversed = Buffer { last: 2, ..buffer };
    assert_eq!(plan(&[buffer, reversed]), Err(PlanError::Lifetime { buffer: 1, first: 3, last: 2 }));
    let endless = Buffer { last: usize::MAX, ..buffer };
    assert_eq!(plan(&[endless]), Err(PlanError::Lifetime { buffer: 0, first: 3, last: usize::MAX }));
    let odd = Buffer { alignment: 24, ..buffer };
    assert_eq!(plan(&[odd]), Err(PlanError::Alignment { buffer: 0, alignment: 24 }));
    assert_eq!(plan(&[Buffer { alignment: 0, ..buffer }]), Err(PlanError::Alignment { buffer: 0, alignment: 0 }));
    let huge = Buffer { bytes: u64::MAX / 2, ..buffer };
    assert_eq!(plan(&[buffer, huge, huge]), Err(PlanError::TooLarge { memory_id: 1 }));
    let overlap = Conflict::Overlap { memory_id: 1, buffers: [1, 2], instruction: 3 };
    assert_eq!(plan(&[buffer, buffer.at(0), buffer.at(32)]), Err(PlanError::Fixed(overlap)));
    let misaligned = Conflict::Misaligned { buffer: 1, offset: 8, alignment: 16 };
    let error = plan(&[buffer, buffer.at(8)]).unwrap_err();
    assert_eq!(error, PlanError::Fixed(misaligned));
    assert_eq!(
        error.to_string(),
        "the settled offsets are impossible: buffer 1 is at 8, which is not a multiple of 16"
    );
}

#[test]
fn no_buffers_need_no_memory() {
    assert_eq!(plan(&[]), Ok(MemoryPlan::default()));
}

/// Sets that would take minutes if the work were quadratic: many buffers, many in use at a time, and all with the same
/// lifetime.
#[test]
fn large_sets_are_planned() {
    let mut random = Random(11);
    let sets = [
        ("chain", network(&mut random, 10_000, 4)),
        ("network", network(&mut random, 10_000, 200)),
        ("all at once", (0..10_000).map(|i| Buffer::new(1 + i % 999, (i % 2) as usize, 5)).collect()),
        ("nested", (0..10_000).map(|i| Buffer::new(1 + i % 999, i as usize, 20_000 - i as usize)).collect()),
        ("overlapping", (0..10_000).map(|i| Buffer::new(1 + i % 999, i as usize, i as usize + 3_000)).collect()),
    ];
    for (name, buffers) in sets {
        let start = std::time::Instant::now();
        let planned = plan(&buffers).unwrap();
        let elapsed = start.elapsed();
        assert_eq!(check(&buffers, &planned), Ok(()), "{name}");
        let bound = lower_bound(&buffers)[&1];
        println!("{name}: {} bytes, bound {bound}, {elapsed:?}", planned.total());
        assert!(elapsed.as_secs() < 60, "{name}: {elapsed:?}");
    }
}
