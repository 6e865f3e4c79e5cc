//! Inputs of a method: generated from its metadata, or the example inputs of its export.

use rushlight::runtime::Bool8;
use rushlight::{Error, ScalarType, Tensor, TensorInfo, Value, ValueInfo};
use rushlight_graph::Bytes;

use crate::numbers::doubles;

/// The values of generated tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Zeros,
    Ones,
    /// Uniform in 0..1 for floats, small integers, and both bools; the same for the same seed. A tensor with a single
    /// i32 or i64 is 0: it may be a position, and only 0 is always in range.
    Random(u64),
}

/// Returns the example inputs of a `.pt2` file for a method with `count` inputs. `None` if the file has none, or if all
/// elements of a float tensor are equal. Such an input (`torch.zeros`) hides differences.
pub fn example(exported: &Bytes, count: usize) -> Option<Vec<Value>> {
    let values = rushlight::example_inputs(exported)?;
    let is_varied = |value: &Value| match value {
        Value::Tensor(tensor) if tensor.dtype().is_floating() => {
            let elements = doubles(tensor);
            elements.len() < 2 || elements.windows(2).any(|pair| pair[0] != pair[1])
        }
        _ => true,
    };
    (values.len() == count && values.iter().all(is_varied)).then_some(values)
}

/// Generates a value that fits the declaration of an input. Dynamic dimensions have their upper bound.
pub fn generate(info: &ValueInfo, fill: Fill) -> Result<Value, Error> {
    Ok(match info {
        ValueInfo::Tensor(info) => Value::Tensor(tensor(info, &info.sizes, fill)?),
        ValueInfo::Int(v) => Value::Int(*v),
        ValueInfo::Double(v) => Value::Double(*v),
        ValueInfo::Bool(v) => Value::Bool(*v),
        ValueInfo::String(v) => Value::String(v.clone()),
        ValueInfo::None | ValueInfo::List => Value::None,
    })
}

/// Generates a tensor of the declared element type with these sizes.
pub fn tensor(info: &TensorInfo, shape: &[usize], fill: Fill) -> Result<Tensor, Error> {
    let mut tensor = Tensor::zeros(info.dtype, shape)?;
    let dtype = info.dtype;
    let may_be_position = matches!(dtype, ScalarType::Long | ScalarType::Int) && shape.iter().all(|size| *size == 1);
    let mut random = match fill {
        Fill::Zeros => return Ok(tensor),
        Fill::Random(_) if may_be_position => return Ok(tensor),
        Fill::Ones => None,
        Fill::Random(seed) => Some(SplitMix(seed)),
    };
    for element in tensor.bytes_mut().chunks_exact_mut(dtype.size()) {
        // 24 bits, so that the value is exact in f32.
        let unit = random.as_mut().map_or(1.0, |random| (random.next() >> 40) as f64 / f64::from(1u32 << 24));
        let whole = if random.is_some() { (unit * 8.0) as i64 } else { 1 };
        write_element(dtype, unit, whole, element);
    }
    Ok(tensor)
}

fn write_element(dtype: ScalarType, unit: f64, whole: i64, to: &mut [u8]) {
    match dtype {
        ScalarType::Float => to.copy_from_slice(&(unit as f32).to_ne_bytes()),
        ScalarType::Double => to.copy_from_slice(&unit.to_ne_bytes()),
        ScalarType::Half => to.copy_from_slice(&half::f16::from_f32(unit as f32).to_ne_bytes()),
        ScalarType::BFloat16 => to.copy_from_slice(&half::bf16::from_f32(unit as f32).to_ne_bytes()),
        ScalarType::Bool => to.copy_from_slice(&[Bool8::from(unit >= 0.5).0]),
        _ => {
            let bytes = whole.to_le_bytes();
            let len = to.len().min(bytes.len());
            to[..len].copy_from_slice(&bytes[..len]);
        }
    }
}

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_inputs_that_show_differences() {
        let read = |path: &str| {
            let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
            Bytes::from(std::fs::read(path).unwrap())
        };
        let digits = read("examples/cortex-m/digits.pt2");
        let values = example(&digits, 1).unwrap();
        let [Value::Tensor(image)] = &values[..] else { panic!("{values:?}") };
        assert_eq!((image.shape(), image.as_slice::<f32>().unwrap()[2]), (&[1, 1, 8, 8][..], 0.0625));
        assert!(example(&digits, 2).is_none());
        assert!(example(&Bytes::from(Vec::new()), 1).is_none());
    }

    #[test]
    fn one_integer_alone_is_0() {
        let filled = |sizes: &[usize]| {
            let info = TensorInfo {
                dtype: ScalarType::Long,
                sizes: sizes.to_vec(),
                dim_order: Vec::new(),
                is_dynamic: false,
                ranges: Vec::new(),
                is_memory_planned: false,
                nbytes: 0,
                name: None,
            };
            tensor(&info, sizes, Fill::Random(0)).unwrap().as_slice::<i64>().unwrap().to_vec()
        };
        assert_eq!(filled(&[1]), [0]);
        assert!(filled(&[8]).iter().any(|number| *number != 0));
    }
}
