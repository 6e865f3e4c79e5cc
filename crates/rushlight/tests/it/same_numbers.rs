//! Logits in one file. The tests in C++, Java, JavaScript (Node.js and a page) and Python also compare with it bit by
//! bit.

use std::fs;
use std::path::Path;

use rushlight::{Input, Module, TensorView};

/// Logits of ten images, 100 f32, little-endian. `UPDATE_FILETESTS=1` writes them; `test_plain.py` compares them with PyTorch's.
const LOGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/same_numbers/digits.bin");

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m");

#[test]
fn logits_are_bit_identical_in_every_binding() {
    let example = Path::new(EXAMPLE);
    // The program is not lowered, because kernels of the CPU backend differ between instruction sets.
    let options = Module::builder();
    #[cfg(feature = "lower")]
    let options = options.lower("off");
    let mut module = options.load(example.join("digits.pte")).expect("the digits' program");
    let mut logits = Vec::new();
    for image in fs::read(example.join("images/images.bin")).expect("the digits' images").chunks_exact(256) {
        let pixels: Vec<f32> =
            image.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect();
        let input = Input::from(TensorView::of(&[1, 1, 8, 8], &pixels).expect("an image"));
        let outputs = module.forward(&[input]).expect("a call");
        logits.extend(outputs[0].as_slice::<f32>().expect("floats").iter().flat_map(|logit| logit.to_le_bytes()));
    }
    if std::env::var_os("UPDATE_FILETESTS").is_some() {
        fs::write(LOGITS, &logits).expect("a file of the repository");
    }
    assert_eq!(logits, fs::read(LOGITS).expect("recorded logits"));
}
