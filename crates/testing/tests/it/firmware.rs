//! The digits firmware on an emulated Cortex-M4 against the same program on this machine, bit for bit.

use std::path::Path;

use rushlight::{Lower, Module, TensorView};

#[test]
#[ignore = "needs what the firmware printed, in the file that FIRMWARE_OUTPUT names: cargo xtask test embedded"]
fn logits_have_the_same_bits_as_on_the_host() {
    let path = std::env::var("FIRMWARE_OUTPUT").expect("FIRMWARE_OUTPUT names a file");
    let printed = std::fs::read_to_string(path).expect("the file is readable");
    let firmware: Vec<Vec<u32>> =
        printed.lines().filter_map(|line| line.split_once(" bits ")).map(|(_, bits)| parse(bits)).collect();
    assert_eq!(firmware.len(), 10, "one line for each image in:\n{printed}");

    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cortex-m");
    let mut module = Module::builder().lower(Lower::Off).load(example.join("digits.pte")).expect("the program loads");
    let images = std::fs::read(example.join("images/images.bin")).expect("the images are readable");
    for (digit, (image, firmware)) in images.chunks_exact(256).zip(firmware).enumerate() {
        let pixels: Vec<f32> = image.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let image = TensorView::of(&[1, 1, 8, 8], &pixels).expect("64 pixels");
        let outputs = module.forward(&[image.into()]).expect("the program runs");
        let logits = outputs[0].as_slice::<f32>().expect("logits are floats");
        let host: Vec<u32> = logits.iter().map(|logit| logit.to_bits()).collect();
        assert_eq!(firmware, host, "logits of digit {digit}");
    }
}

fn parse(bits: &str) -> Vec<u32> {
    bits.split_whitespace().map(|word| u32::from_str_radix(word, 16).expect("eight hexadecimal digits")).collect()
}
