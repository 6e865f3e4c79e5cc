//! Tests windows of tensors that have no elements in some calls. Such a window may begin past the end of its tensor's
//! memory.

use std::fmt::Write as _;

use rushlight::{Input, Module, TensorView};
use rushlight_compiler::{CompileOptions, compile};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::Model;
use rushlight_graph::text::Contents;

/// Size of the dimension that the windows select from.
const ROWS: usize = 3;

/// Sizes of the input. `s0` may be 0 to 4; the bounds of `s1` allow only 0.
const SHAPES: [&[&str]; 7] = [
    &["s0", "3"],
    &["3", "s0"],
    &["s1", "s0", "3"],
    &["s0", "s1", "3"],
    &["3", "s1", "s0"],
    &["s0", "3", "s1"],
    &["2", "s0", "3", "s0"],
];

/// Returns a method that squares an index and a transposed slice of an input and of its double.
fn windows(shape: &[&str], dim: usize) -> Model {
    let (whole, chosen) = (shape.join(", "), [&shape[..dim], &shape[dim + 1..]].concat().join(", "));
    let mut sizes = shape.to_vec();
    sizes[dim] = "2";
    let window = sizes.join(", ");
    sizes.reverse();
    let turned = sizes.join(", ");
    let order = (0..shape.len()).rev().map(|dim| dim.to_string()).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "method forward {{
          symbol s0 in 0..=4
          symbol s1 in 0..=0
          input %x : f32[{whole}]
          %double = aten::add.Tensor(%x, %x, 1) : f32[{whole}]"
    );
    for of in ["x", "double"] {
        write!(
            text,
            "
          %chosen_{of} = aten::select_copy.int(%{of}, {dim}, 2) : f32[{chosen}]
          %a_{of} = aten::mul.Tensor(%chosen_{of}, %chosen_{of}) : f32[{chosen}]
          %window_{of} = aten::slice_copy.Tensor(%{of}, {dim}, 1, 3, 1) : f32[{window}]
          %turned_{of} = aten::permute_copy(%window_{of}, [{order}]) : f32[{turned}]
          %b_{of} = aten::mul.Tensor(%turned_{of}, %turned_{of}) : f32[{turned}]"
        )
        .unwrap();
    }
    text += "\n return %a_x, %b_x, %a_double, %b_double\n}";
    Model::parse(&text, &Contents::default()).unwrap()
}

/// Gathers elements of `x` to a tensor of these sizes, in row-major order. `place` maps its indices to those of `x`.
fn gathered(sizes: &[usize], place: impl Fn(&[usize]) -> Vec<usize>, x: (&[usize], &[f32])) -> Vec<f32> {
    let element = |mut number: usize| {
        let mut index = vec![0; sizes.len()];
        for (at, size) in index.iter_mut().zip(sizes).rev() {
            (*at, number) = (number % size, number / size);
        }
        x.1[place(&index).iter().zip(x.0).fold(0, |offset, (at, size)| offset * size + at)]
    };
    (0..sizes.iter().product()).map(element).collect()
}

#[test]
fn windows_begin_anywhere() {
    for shape in SHAPES {
        let dim = shape.iter().position(|size| *size == "3").unwrap();
        let model = windows(shape, dim);
        let program = |options: &CompileOptions| compile(model.clone(), options).unwrap().program.to_bytes().unwrap();
        let portable = program(&CompileOptions::default());
        let ours = program(&CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() });
        for (way, bytes, lower) in
            [("reference", &portable, "off"), ("lowered", &portable, "cpu"), ("CPU", &ours, "off")]
        {
            let mut module = Module::builder().lower(lower).threads(1).load_bytes(bytes).unwrap();
            for s0 in [0, 1, 4, 0] {
                let size = |size: &&str| if *size == "s0" { s0 } else { size.parse().unwrap_or(0) };
                let sizes: Vec<usize> = shape.iter().map(size).collect();
                let x: Vec<f32> = (0..sizes.iter().product()).map(|number: usize| number as f32 + 1.0).collect();
                let results = module.run("forward", &[Input::from(TensorView::of(&sizes, &x).unwrap())]);
                let results = results.unwrap_or_else(|error| panic!("{way}, {shape:?}, s0 = {s0}: {error}"));
                let (mut chosen, mut turned) = (sizes.clone(), sizes.clone());
                chosen.remove(dim);
                turned[dim] = ROWS - 1;
                turned.reverse();
                let at_last = |index: &[usize]| [&index[..dim], &[ROWS - 1], &index[dim..]].concat();
                let back = |index: &[usize]| {
                    let mut index: Vec<usize> = index.iter().rev().copied().collect();
                    index[dim] += 1;
                    index
                };
                let x = (sizes.as_slice(), x.as_slice());
                let expected = [(gathered(&chosen, at_last, x), chosen), (gathered(&turned, back, x), turned)];
                for (index, result) in results.iter().enumerate() {
                    let (numbers, sizes) = &expected[index % 2];
                    let factor = if index < 2 { 1.0 } else { 2.0 };
                    let squares: Vec<f32> =
                        numbers.iter().map(|number| (number * factor) * (number * factor)).collect();
                    let result = result.as_tensor().unwrap();
                    let got = (result.shape(), result.as_slice::<f32>().unwrap());
                    assert_eq!(got, (sizes.as_slice(), squares.as_slice()), "{way}, {shape:?}, s0 = {s0}, {index}");
                }
            }
        }
    }
}
