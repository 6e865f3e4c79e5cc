//! Mutations of JSON that keep it JSON: values are replaced, removed, repeated and exchanged where they stand.

use rushlight_testing::mutations::Random;
use serde_json::Value;

/// Integers at which sizes, dimensions and indices break.
const INTEGERS: [i64; 20] = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    7,
    64,
    255,
    65_536,
    1 << 20,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 48,
    (1 << 53) + 1,
    1 << 62,
    i64::MAX,
    i64::MIN,
    -(1 << 31),
];

/// Operators whose results or lowering grow with their arguments.
const OPERATORS: [&str; 48] = [
    "arange.default",
    "full.default",
    "zeros.default",
    "ones.default",
    "eye.default",
    "linspace.default",
    "expand.default",
    "repeat.default",
    "constant_pad_nd.default",
    "tril_indices.default",
    "one_hot.default",
    "cat.default",
    "stack.default",
    "view.default",
    "reshape.default",
    "as_strided.default",
    "slice.Tensor",
    "select.int",
    "index_select.default",
    "index.Tensor",
    "gather.default",
    "unbind.int",
    "split.Tensor",
    "split_with_sizes.default",
    "chunk.default",
    "convolution.default",
    "conv2d.default",
    "conv_transpose2d.input",
    "mm.default",
    "bmm.default",
    "matmul.default",
    "einsum.default",
    "cumsum.default",
    "sum.dim_IntList",
    "amax.default",
    "max_pool2d.default",
    "avg_pool2d.default",
    "_adaptive_avg_pool2d.default",
    "upsample_bilinear2d.vec",
    "unfold.default",
    "im2col.default",
    "fft_fft.default",
    "lstm.input",
    "diff.default",
    "matrix_power.default",
    "cartesian_prod.default",
    "combinations.default",
    "roll.default",
];

/// Changes a few values of a text; `None` if it is not JSON.
pub fn mutate(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    for _ in 0..=random.below(3) {
        let count = count(&value);
        let donor = find(&mut value, random.below(count)).map(|value| value.clone());
        let at = random.below(count);
        if let Some(place) = find(&mut value, at) {
            change(place, donor, random);
        }
    }
    serde_json::to_vec(&value).ok()
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(items) => items.values().map(count).sum(),
        _ => 0,
    }
}

/// The value of a number, in depth-first order.
fn find(value: &mut Value, mut at: usize) -> Option<&mut Value> {
    if at == 0 {
        return Some(value);
    }
    at -= 1;
    let items: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(items) => Box::new(items.values_mut()),
        _ => return None,
    };
    for item in items {
        let inside = count(item);
        if at < inside {
            return find(item, at);
        }
        at -= inside;
    }
    None
}

fn change(place: &mut Value, donor: Option<Value>, random: &mut Random) {
    match place {
        Value::Number(number) => {
            let old = number.as_i64().unwrap_or(0);
            *place = match random.below(6) {
                0 => Value::from(old.wrapping_add(1)),
                1 => Value::from(old.wrapping_sub(1)),
                2 => Value::from(old.wrapping_mul(2)),
                3 => Value::from(random.number() as f64 / 1e9),
                _ => Value::from(INTEGERS[random.below(INTEGERS.len())]),
            };
        }
        Value::String(text) => match random.below(6) {
            0 | 1 if text.starts_with("torch.ops.aten") => {
                *text = format!("torch.ops.aten.{}", OPERATORS[random.below(OPERATORS.len())]);
            }
            // Symbolic expressions are texts.
            2 if text.contains('(') => *text = nested(text, random),
            3 => text.truncate(text.char_indices().map(|(at, _)| at).nth(random.below(text.len())).unwrap_or(0)),
            4 => text.push_str("_1"),
            _ => *place = donor.unwrap_or(Value::Null),
        },
        Value::Array(items) if random.below(4) > 0 => {
            let (from, to) = (random.below(items.len()), random.below(items.len() + 1));
            match random.below(5) {
                0 if !items.is_empty() => drop(items.remove(from)),
                1 if !items.is_empty() => items.insert(to, items[from].clone()),
                2 if !items.is_empty() => {
                    let to = to.min(items.len() - 1);
                    items.swap(from, to);
                }
                3 => items.extend(donor),
                4 if !items.is_empty() && items.len() < 64 => {
                    let item = items[from].clone();
                    items.extend(std::iter::repeat_n(item, random.below(32)));
                }
                _ => {}
            }
        }
        Value::Object(items) if random.below(4) > 0 => {
            let key = items.keys().nth(random.below(items.len())).cloned();
            match (random.below(3), key) {
                (0, Some(key)) => drop(items.remove(&key)),
                (_, Some(key)) => drop(items.insert(key, donor.unwrap_or(Value::Null))),
                (_, None) => {}
            }
        }
        Value::Bool(value) if random.below(2) == 0 => *value = !*value,
        _ => *place = donor.unwrap_or(Value::Null),
    }
}

/// An expression around another.
fn nested(text: &str, random: &mut Random) -> String {
    let number = INTEGERS[random.below(INTEGERS.len())];
    match random.below(8) {
        0 => format!("Mul({text}, {text})"),
        1 => format!("Add({text}, Integer({number}))"),
        2 => format!("FloorDiv({text}, Integer({number}))"),
        3 => format!("Mod({text}, Integer({number}))"),
        4 => format!("Pow({text}, Integer({}))", random.below(9)),
        5 => format!("Max({text}, Integer({number}))"),
        6 => format!("Add({text}, FloorDiv({text}, Integer(2)))"),
        _ => format!("Mul(Integer({number}), {text})"),
    }
}
