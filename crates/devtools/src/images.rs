//! PNG and JPEG images as tensors, upright and grey as in Pillow. The files are untrusted: the memory of an image is
//! bounded before it is decoded.

use std::fmt;
use std::io::Cursor;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use rushlight::{ScalarType, Tensor, TensorInfo};

/// Maximum bytes of a decoded image: 89 megapixels of 8-bit RGB.
const MAX_DECODED: u64 = 256 << 20;

/// Maximum width and height of an image, in pixels.
const MAX_SIDE: u32 = 1 << 16;

/// Maximum pixels of a resized image, and of the one between the two passes of resizing. Each pixel takes up to 16
/// bytes.
const MAX_RESIZED: u64 = 1 << 25;

/// Maximum number of pixels per byte of a JPEG image: the code of a block of 64 pixels has at least one bit. A decoder
/// fills missing pixels with grey, once for each scan of a progressive image.
const PIXELS_PER_BYTE: u64 = 8 * 64;

/// Normalization of images after the division by 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// Values stay in 0..1.
    #[default]
    None,
    /// Mean and standard deviation of ImageNet, as torchvision's classifiers expect.
    Imagenet,
}

/// torchvision's mean and standard deviation of the three channels.
const IMAGENET: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// The reason why an image cannot be an input.
#[derive(Debug)]
pub enum ImageError {
    /// The file is damaged, of another format, or larger than the limit.
    Decode(image::ImageError),
    /// A JPEG image ends long before its last pixel.
    Truncated {
        width: u32,
        height: u32,
        bytes: usize,
    },
    /// The input does not have the shape of an image; describes the input.
    NotAnImage(String),
    /// Resizing would take more pixels than are allowed.
    TooLarge {
        pixels: u64,
    },
    Tensor(rushlight::Error),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::Truncated { width, height, bytes } => {
                write!(f, "the file is truncated: {bytes} bytes cannot hold {width} x {height} pixels")
            }
            Self::NotAnImage(info) => {
                write!(
                    f,
                    "an image cannot be the input {info}; expected f32 with 1 or 3 channels, then height and width"
                )
            }
            Self::TooLarge { pixels } => write!(
                f,
                "resizing the image to the input takes {pixels} pixels; expected at most {MAX_RESIZED}, resize it before"
            ),
            Self::Tensor(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImageError {}

/// Decodes an image into a `[1, C, H, W]` or `[C, H, W]` tensor of floats, resized to the input's size. Also returns the image's own width
/// and height, upright.
///
/// # Errors
/// If the file is not an image of at most 256 MiB when decoded, or if the input does not have the shape of an image.
pub fn tensor(file: &[u8], info: &TensorInfo, normalize: Normalize) -> Result<(Tensor, [usize; 2]), ImageError> {
    let unfit = || ImageError::NotAnImage(info.to_string());
    let (&[channels, height, width], true) = (info.sizes.last_chunk::<3>().unwrap_or(&[0; 3]), info.sizes.len() <= 4)
    else {
        return Err(unfit());
    };
    if !matches!(channels, 1 | 3) || info.dtype != ScalarType::Float || height == 0 || width == 0 {
        return Err(unfit());
    }
    let image = decode(file)?;
    let size = [image.width() as usize, image.height() as usize];
    let image = resized(image, width, height)?;
    let interleaved = if channels == 1 { luminance(&image) } else { image.into_rgb32f().into_raw() };
    let mut planar = Vec::with_capacity(interleaved.len());
    for channel in 0..channels {
        let (mean, deviation) = match normalize {
            Normalize::Imagenet => IMAGENET[channel.min(2)],
            Normalize::None => (0.0, 1.0),
        };
        planar.extend(interleaved.iter().skip(channel).step_by(channels).map(|v| (v - mean) / deviation));
    }
    let shape: Vec<usize> = match info.sizes[..] {
        [_, c, h, w] => vec![1, c, h, w],
        _ => info.sizes.clone(),
    };
    Ok((Tensor::of(&shape, &planar).map_err(ImageError::Tensor)?, size))
}

fn decode(file: &[u8]) -> Result<DynamicImage, ImageError> {
    let open = || ImageReader::new(Cursor::new(file)).with_guessed_format();
    let mut reader = open().map_err(|error| ImageError::Decode(error.into()))?;
    if reader.format() == Some(ImageFormat::Jpeg) {
        let (width, height) = reader.into_dimensions().map_err(ImageError::Decode)?;
        if u64::from(width) * u64::from(height) > PIXELS_PER_BYTE * file.len() as u64 {
            return Err(ImageError::Truncated { width, height, bytes: file.len() });
        }
        reader = open().map_err(|error| ImageError::Decode(error.into()))?;
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    let format = reader.format();
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(ImageError::Decode)?;
    if decoder.total_bytes() > MAX_DECODED {
        let (width, height) = decoder.dimensions();
        return Err(ImageError::TooLarge { pixels: u64::from(width) * u64::from(height) });
    }
    // A damaged orientation is ignored, as in Pillow.
    let orientation = match format {
        Some(ImageFormat::Png) => png_orientation(file),
        _ => decoder.orientation().ok(),
    };
    let mut image = DynamicImage::from_decoder(decoder).map_err(ImageError::Decode)?;
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image)
}

/// The orientation in the chunk `eXIf` of a PNG image, which the decoder does not read.
fn png_orientation(file: &[u8]) -> Option<Orientation> {
    let (_, mut rest) = file.split_at_checked(8)?;
    loop {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
        if kind == b"eXIf" {
            return exif_orientation(data);
        }
        // Skips the checksum.
        rest = after.get(4..)?;
    }
}

fn resized(image: DynamicImage, width: usize, height: usize) -> Result<DynamicImage, ImageError> {
    let between = (image.width() as u64).saturating_mul(height as u64);
    let pixels = between.max((width as u64).saturating_mul(height as u64));
    let sides = u32::try_from(width).ok().zip(u32::try_from(height).ok());
    let Some((width, height)) = sides.filter(|_| pixels <= MAX_RESIZED) else {
        return Err(ImageError::TooLarge { pixels });
    };
    if (image.width(), image.height()) == (width, height) {
        return Ok(image);
    }
    Ok(image.resize_exact(width, height, image::imageops::FilterType::Triangle))
}

/// The orientation in the first directory of EXIF data, which has the format of a TIFF image.
fn exif_orientation(data: &[u8]) -> Option<Orientation> {
    const ORIENTATION: u16 = 0x112;
    let is_big_endian = match data.get(..4)? {
        b"II*\0" => false,
        b"MM\0*" => true,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *data.get(at..)?.first_chunk()?;
        Some(if is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let bytes = *data.get(4..)?.first_chunk()?;
    let directory = if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    let directory = usize::try_from(directory).ok()?;
    (0..usize::from(short(directory)?)).find_map(|index| {
        let entry = directory.checked_add(2 + 12 * index)?;
        let value = (short(entry)? == ORIENTATION).then(|| short(entry + 8))??;
        Orientation::from_exif(u8::try_from(value).ok()?)
    })
}

/// Luma of ITU-R BT.601 in 0..1, with the weights and the rounding of Pillow, OpenCV and torchvision.
fn luminance(image: &DynamicImage) -> Vec<f32> {
    match image.color() {
        ColorType::L8 | ColorType::La8 => {
            image.to_luma8().into_raw().into_iter().map(|v| f32::from(v) / 255.0).collect()
        }
        ColorType::L16 | ColorType::La16 => {
            image.to_luma16().into_raw().into_iter().map(|v| f32::from(v) / 65535.0).collect()
        }
        ColorType::Rgb8 | ColorType::Rgba8 => {
            let weighted = |&[r, g, b]: &[u8; 3]| {
                (u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16
            };
            image.to_rgb8().as_raw().as_chunks().0.iter().map(|pixel| weighted(pixel) as f32 / 255.0).collect()
        }
        _ => {
            let weighted = |[r, g, b]: &[f32; 3]| 0.299 * r + 0.587 * g + 0.114 * b;
            image.to_rgb32f().as_raw().as_chunks().0.iter().map(weighted).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> TensorInfo {
        TensorInfo {
            dtype: ScalarType::Float,
            sizes: vec![1, 3, 8, 8],
            dim_order: vec![0, 1, 2, 3],
            is_dynamic: false,
            ranges: Vec::new(),
            is_memory_planned: true,
            nbytes: 768,
            name: None,
        }
    }

    /// Compares with Pillow's samples: all orientations and kinds of pixels.
    #[test]
    fn images_are_upright_and_grey_as_by_pillow() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/images");
        let text = std::fs::read_to_string(folder.join("expected.json")).expect("samples");
        let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for row in rows.as_array().expect("rows") {
            let name = row["file"].as_str().expect("a name");
            let file = std::fs::read(folder.join(name)).expect("an image");
            // JPEG decoders round differently.
            let is_jpeg = std::path::Path::new(&name).extension().is_some_and(|extension| extension == "jpg");
            let tolerance = if is_jpeg { 4.0 / 255.0 } else { 1e-6 };
            let [width, height] = ["width", "height"].map(|side| row[side].as_u64().expect("a side") as usize);
            for (kind, channels) in [("rgb", 3), ("grey", 1)] {
                let info = TensorInfo { sizes: vec![1, channels, height, width], ..input() };
                let (got, _) = tensor(&file, &info, Normalize::None).expect("a tensor");
                let got = got.as_slice::<f32>().expect("floats");
                let bytes = row[kind].as_array().expect("bytes");
                assert_eq!(got.len(), bytes.len());
                for (at, got) in got.iter().enumerate() {
                    // The tensor is planar, Pillow's pixels are interleaved.
                    let (channel, pixel) = (at / (width * height), at % (width * height));
                    let expected = bytes[pixel * channels + channel].as_f64().expect("a byte") as f32 / 255.0;
                    assert!((got - expected).abs() <= tolerance, "{name}, {kind} {at}: {got}, not {expected}");
                }
            }
        }
    }

    /// A JPEG image of one colour, the smallest possible of its size.
    fn jpeg(side: u32) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        DynamicImage::new_luma8(side, side).write_to(&mut file, ImageFormat::Jpeg).expect("an image");
        file.into_inner()
    }

    #[test]
    fn images_of_one_colour_are_no_truncated_ones() {
        for side in [1, 64, 4096] {
            assert!(tensor(&jpeg(side), &input(), Normalize::None).is_ok(), "{side}");
        }
    }

    #[test]
    fn pixels_that_no_byte_stands_for_are_not_decoded() {
        let mut file = jpeg(64);
        let header = file.windows(2).position(|marker| marker == [0xff, 0xc0]).expect("a frame header");
        // Height and width follow the marker, the length of the header and the precision.
        file[header + 5..header + 9].copy_from_slice(&[0x40, 0, 0x15, 0]);
        let error = tensor(&file, &input(), Normalize::None).expect_err("88 million pixels").to_string();
        assert_eq!(error, format!("the file is truncated: {} bytes cannot hold 5376 x 16384 pixels", file.len()));
    }
}
