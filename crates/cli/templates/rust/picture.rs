//! Reads an image as the input of a model.

use std::error::Error;

use image::imageops::FilterType;

/// The normalization of torchvision's models, which take colours. A model of grey images gets numbers from 0 to 1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Returns the image as the elements of a tensor `shape`, which is `[1, channels, height, width]`. An image of another size is resized.
pub fn read(path: &str, shape: &[usize]) -> Result<Vec<f32>, Box<dyn Error>> {
    let &[1, channels @ (1 | 3), height, width] = shape else {
        return Err(format!("the model takes {shape:?}, not one image of 1 or 3 channels").into());
    };
    let mut image = image::open(path)?;
    if (image.width() as usize, image.height() as usize) != (width, height) {
        println!("{path} is resized from {} x {} to {width} x {height}", image.width(), image.height());
        image = image.resize_exact(width as u32, height as u32, FilterType::Triangle);
    }
    let bytes = if channels == 3 { image.into_rgb8().into_raw() } else { image.into_luma8().into_raw() };
    let mut elements = vec![0.0; bytes.len()];
    for (at, pixel) in bytes.chunks_exact(channels).enumerate() {
        for (channel, byte) in pixel.iter().enumerate() {
            let value = f32::from(*byte) / 255.0;
            elements[channel * height * width + at] =
                if channels == 3 { (value - MEAN[channel]) / STD[channel] } else { value };
        }
    }
    Ok(elements)
}
