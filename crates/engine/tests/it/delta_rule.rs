use super::*;
use rushlight_engine::{DeltaRule, DeltaRuleInputs, Error, delta_rule};

struct Operands {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
}

impl Operands {
    fn random(rule: &DeltaRule, rng: &mut Rng) -> Self {
        let &DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays } = rule;
        let rows = batch * tokens;
        let scale = 1.0 / (key_dim.max(1) as f32).sqrt();
        let mut scaled = |count: usize| rng.vector(count).into_iter().map(|x| x * scale).collect::<Vec<_>>();
        let (q, k) = (scaled(rows * heads * key_dim), scaled(rows * groups * key_dim));
        let mut share = |count: usize| rng.vector(count).into_iter().map(|x| 0.5 + 0.5 * x).collect::<Vec<_>>();
        let (decay, beta) = (share(rows * groups * decays), share(rows * groups));
        let (v, state) = (rng.vector(rows * groups * value_dim), rng.vector(batch * groups * key_dim * value_dim));
        Self { q, k, v, decay, beta, state }
    }

    fn inputs(&self) -> DeltaRuleInputs<'_> {
        let Self { q, k, v, decay, beta, state } = self;
        DeltaRuleInputs { q, k, v, decay, beta, state }
    }

    /// Results, then states, as matrices: `S = (I - beta k k') diag(decay) S + beta k v'` and `y = S' q`.
    fn expected(&self, rule: &DeltaRule) -> Vec<f64> {
        let &DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays } = rule;
        let mut y = vec![0.0; batch * tokens * heads * value_dim];
        let mut state: Vec<f64> = self.state.iter().map(|x| f64::from(*x)).collect();
        let of = |list: &[f32], at: usize| f64::from(list[at]);
        for b in 0..batch {
            for g in 0..groups {
                let s = &mut state[(b * groups + g) * key_dim * value_dim..][..key_dim * value_dim];
                for t in 0..tokens {
                    let at = (b * tokens + t) * groups + g;
                    let beta = of(&self.beta, at);
                    let k = |row: usize| of(&self.k, at * key_dim + row);
                    let decay = |row: usize| of(&self.decay, at * decays + if decays == 1 { 0 } else { row });
                    let mut next = vec![0.0; key_dim * value_dim];
                    for row in 0..key_dim {
                        for column in 0..value_dim {
                            let mut sum = beta * k(row) * of(&self.v, at * value_dim + column);
                            for inner in 0..key_dim {
                                let unit = if inner == row { 1.0 } else { 0.0 };
                                let factor = (unit - beta * k(row) * k(inner)) * decay(inner);
                                sum += factor * s[inner * value_dim + column];
                            }
                            next[row * value_dim + column] = sum;
                        }
                    }
                    s.copy_from_slice(&next);
                    for h in g * (heads / groups)..(g + 1) * (heads / groups) {
                        let row_of_y = (b * tokens + t) * heads + h;
                        for column in 0..value_dim {
                            let products = (0..key_dim)
                                .map(|row| of(&self.q, row_of_y * key_dim + row) * s[row * value_dim + column]);
                            y[row_of_y * value_dim + column] = products.sum();
                        }
                    }
                }
            }
        }
        [y, state].concat()
    }
}

fn run(engine: &Engine, rule: &DeltaRule, operands: &Operands) -> Vec<f32> {
    let results = rule.batch * rule.tokens * rule.heads * rule.value_dim;
    let mut y = vec![f32::NAN; results + operands.state.len()];
    let (out, state) = y.split_at_mut(results);
    delta_rule(engine, rule, operands.inputs(), out, state).unwrap();
    y
}

#[test]
fn states_decay_and_change_by_what_they_do_not_predict() {
    let mut rng = Rng(51);
    let sizes = [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 4, 4, 16, 16],
        [1, 5, 2, 2, 8, 12],
        [2, 3, 6, 2, 7, 33],
        [1, 9, 3, 3, 32, 64],
        [1, 17, 2, 1, 20, 100],
        [1, 1, 4, 4, 128, 128],
        [1, 4, 2, 2, 128, 128],
        [1, 4, 2, 1, 130, 70],
        [2, 0, 2, 2, 4, 4],
        [1, 3, 2, 2, 0, 5],
        [1, 3, 2, 2, 5, 0],
        [1, 2, 0, 0, 4, 4],
    ];
    for [batch, tokens, heads, groups, key_dim, value_dim] in sizes {
        for decays in [1, key_dim] {
            let rule = DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays };
            let operands = Operands::random(&rule, &mut rng);
            let expected = operands.expected(&rule);
            let bound = rounding(key_dim * (1 + tokens));
            assert_agrees(&rule, &expected, |x| bound * x.abs().max(1.0), |engine| run(engine, &rule, &operands));
        }
    }
}

#[test]
fn calls_go_on_where_others_ended() {
    let whole = DeltaRule { batch: 1, tokens: 11, heads: 4, groups: 2, key_dim: 24, value_dim: 40, decays: 1 };
    let operands = Operands::random(&whole, &mut Rng(52));
    for engine in engines() {
        let at_once = run(&engine, &whole, &operands);
        let (mut results, mut state) = (Vec::new(), operands.state.clone());
        for (from, to) in [(0, 4), (4, 5), (5, 11)] {
            let rule = DeltaRule { tokens: to - from, ..whole };
            let of = |list: &[f32], each: usize| list[from * each..to * each].to_vec();
            let part = Operands {
                q: of(&operands.q, 4 * 24),
                k: of(&operands.k, 2 * 24),
                v: of(&operands.v, 2 * 40),
                decay: of(&operands.decay, 2),
                beta: of(&operands.beta, 2),
                state,
            };
            let mut all = run(&engine, &rule, &part);
            state = all.split_off(rule.tokens * 4 * 40);
            results.extend(all);
        }
        results.extend(state);
        let is_same = results.iter().zip(&at_once).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(is_same && results.len() == at_once.len(), "{engine:?}");
    }
}

#[test]
fn sizes_that_contradict_each_other_are_errors() {
    let engine = Engine::new(1);
    let good = DeltaRule { batch: 1, tokens: 2, heads: 4, groups: 2, key_dim: 3, value_dim: 5, decays: 1 };
    let operands = Operands::random(&good, &mut Rng(53));
    let fails = |rule: DeltaRule, inputs: DeltaRuleInputs<'_>, results: usize, states: usize| {
        delta_rule(&engine, &rule, inputs, &mut vec![0.0; results], &mut vec![0.0; states]).unwrap_err()
    };
    let mismatch = |what, expected, got| Error::Mismatch { what, expected, got };
    let inputs = operands.inputs();
    assert_eq!(fails(DeltaRule { heads: 3, ..good }, inputs, 40, 30), mismatch("heads", 2, 3));
    assert_eq!(fails(DeltaRule { groups: 0, ..good }, inputs, 40, 30), mismatch("heads", 0, 4));
    assert_eq!(fails(DeltaRule { decays: 2, ..good }, inputs, 40, 30), mismatch("decays", 3, 2));
    assert_eq!(fails(good, inputs, 39, 30), mismatch("y", 40, 39));
    assert_eq!(fails(good, inputs, 40, 29), mismatch("state", 30, 29));
    let short = |change: fn(&mut DeltaRuleInputs<'_>)| {
        let mut inputs = operands.inputs();
        change(&mut inputs);
        fails(good, inputs, 40, 30)
    };
    assert_eq!(short(|inputs| inputs.q = &inputs.q[1..]), mismatch("q", 24, 23));
    assert_eq!(short(|inputs| inputs.k = &inputs.k[1..]), mismatch("k", 12, 11));
    assert_eq!(short(|inputs| inputs.v = &inputs.v[1..]), mismatch("v", 20, 19));
    assert_eq!(short(|inputs| inputs.decay = &inputs.decay[1..]), mismatch("decay", 4, 3));
    assert_eq!(short(|inputs| inputs.beta = &inputs.beta[1..]), mismatch("beta", 4, 3));
    assert_eq!(short(|inputs| inputs.state = &inputs.state[1..]), mismatch("initial state", 30, 29));
    let huge = DeltaRule { batch: usize::MAX, ..good };
    assert_eq!(fails(huge, inputs, 40, 30), Error::Size { what: "state" });
}
