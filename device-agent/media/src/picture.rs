//! Pictures: decoded, turned upright, scaled down, and written in a form that every vendor takes.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use deskgate_definition::tool::{Attachment, MediaType};
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::{MAX_IMAGE_BYTES, MediaError};

/// The limit of a picture's pixels, as it is found.
pub(crate) const MAX_PIXELS: u64 = 50_000_000;
/// The longest edge that models see, in pixels: larger pictures cost more and show them no more.
const MAX_EDGE: u32 = 1568;
/// The size limit of a picture that is sent, in bytes: 5 MB in base64, as the strictest vendor has it. No JPEG of ours
/// reaches it.
const MAX_SENT_BYTES: usize = 3_500 * 1024;
/// A drawing is sent without loss up to this size, in bytes.
const MAX_LOSSLESS_BYTES: usize = 1024 * 1024;
/// Of a JPEG, in percent.
const JPEG_QUALITY: u8 = 85;
/// How many pixels one token stands for, about.
const PIXELS_PER_TOKEN: u64 = 750;

/// One picture is decoded at a time: a decoded one may need 200 MB.
static DECODING: Mutex<()> = Mutex::new(());

/// The format, if it is one of the four that models are shown.
pub(crate) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    let known = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
    image::guess_format(bytes).ok().filter(|format| known.contains(format))
}

/// A picture as models take it: PNG or JPEG, at most 1568 pixels wide and high. Of an animation it is the first frame.
/// Takes up to a second; pictures are decoded one after the other.
///
/// # Errors
/// It has too many bytes or pixels, or is damaged.
pub fn picture(bytes: Vec<u8>) -> Result<Attachment, MediaError> {
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(MediaError::TooLarge(MAX_IMAGE_BYTES));
    }
    let _alone = DECODING.lock().unwrap_or_else(PoisonError::into_inner);
    // The decoders are others', and read external content.
    catch_unwind(AssertUnwindSafe(|| shown(bytes))).unwrap_or(Err(MediaError::Damaged))
}

fn shown(bytes: Vec<u8>) -> Result<Attachment, MediaError> {
    let format = format(&bytes).ok_or(MediaError::Damaged)?;
    let (picture, orientation) = decode(&bytes, format)?;
    let (width, height) = (picture.width(), picture.height());
    let fits =
        width.max(height) <= MAX_EDGE && bytes.len() <= MAX_SENT_BYTES && orientation == Orientation::NoTransforms;
    let sent = match (format, fits) {
        (ImageFormat::Png, true) => (MediaType::Png, bytes),
        (ImageFormat::Jpeg, true) => (MediaType::Jpeg, bytes),
        _ => return rewritten(picture, orientation, format),
    };
    Ok(attachment(sent, (width, height), (width, height)))
}

fn decode(bytes: &[u8], format: ImageFormat) -> Result<(DynamicImage, Orientation), MediaError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_PIXELS * 16);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|_| MediaError::Damaged)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(MediaError::TooManyPixels);
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(|_| MediaError::Damaged)?;
    Ok((picture, orientation))
}

/// Upright, scaled down, and in another form where it has to be.
fn rewritten(
    mut picture: DynamicImage,
    orientation: Orientation,
    format: ImageFormat,
) -> Result<Attachment, MediaError> {
    picture.apply_orientation(orientation);
    let found = (picture.width(), picture.height());
    if found.0.max(found.1) > MAX_EDGE {
        picture = picture.resize(MAX_EDGE, MAX_EDGE, FilterType::CatmullRom);
    }
    let size = (picture.width(), picture.height());
    let sent = match format {
        // A photograph stays one.
        ImageFormat::Jpeg => jpeg(&picture)?,
        _ => match png(&picture)? {
            lossless if lossless.1.len() <= MAX_LOSSLESS_BYTES => lossless,
            _ => jpeg(&picture)?,
        },
    };
    Ok(attachment(sent, found, size))
}

fn png(picture: &DynamicImage) -> Result<(MediaType, Vec<u8>), MediaError> {
    let mut bytes = Vec::new();
    // Every pixel in eight bits: some vendors take no others.
    let picture: DynamicImage = match picture.color().has_alpha() {
        true => picture.to_rgba8().into(),
        false => picture.to_rgb8().into(),
    };
    picture.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(|_| MediaError::Damaged)?;
    Ok((MediaType::Png, bytes))
}

/// Where it is transparent, it becomes white.
fn jpeg(picture: &DynamicImage) -> Result<(MediaType, Vec<u8>), MediaError> {
    let mut white = picture.to_rgba8();
    for pixel in white.pixels_mut() {
        let alpha = u32::from(pixel[3]);
        for channel in &mut pixel.0[..3] {
            *channel = ((u32::from(*channel) * alpha + 255 * (255 - alpha)) / 255) as u8;
        }
    }
    let opaque: DynamicImage = DynamicImage::from(white).to_rgb8().into();
    let mut bytes = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY);
    opaque.write_with_encoder(encoder).map_err(|_| MediaError::Damaged)?;
    Ok((MediaType::Jpeg, bytes))
}

fn attachment((media_type, bytes): (MediaType, Vec<u8>), found: (u32, u32), size: (u32, u32)) -> Attachment {
    let scaled = if found == size { String::new() } else { format!(", scaled down to {} x {}", size.0, size.1) };
    let about = format!("An image of {} x {} pixels{scaled}.", found.0, found.1);
    let tokens = (u64::from(size.0) * u64::from(size.1)).div_ceil(PIXELS_PER_TOKEN);
    Attachment { media_type, bytes: bytes.into(), pages: 1, tokens, about }
}

#[cfg(test)]
mod tests {
    use image::{GenericImageView, Rgba, RgbaImage};

    use super::*;

    fn written(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        picture.write_to(&mut Cursor::new(&mut bytes), format).expect("it can be written");
        bytes
    }

    /// Noise cannot be compressed.
    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        RgbaImage::from_fn(width, height, |_, _| Rgba([next(), next(), next(), 255])).into()
    }

    #[test]
    fn a_picture_that_fits_goes_on_as_it_is() {
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let small = written(&DynamicImage::new_rgb8(40, 30), format);
            let shown = picture(small.clone()).expect("a picture");
            assert_eq!(*shown.bytes, *small);
            assert_eq!((shown.about.as_str(), shown.tokens), ("An image of 40 x 30 pixels.", 2));
        }
    }

    #[test]
    fn a_large_picture_is_scaled_down_and_keeps_its_sides() {
        let large = written(&DynamicImage::new_rgb8(4000, 1000), ImageFormat::Png);
        let shown = picture(large).expect("a picture");
        assert_eq!(shown.about, "An image of 4000 x 1000 pixels, scaled down to 1568 x 392.");
        assert_eq!(shown.media_type, MediaType::Png);
        let again = image::load_from_memory(&shown.bytes).expect("a picture");
        assert_eq!(again.dimensions(), (1568, 392));
        // What cannot be compressed without loss is a photograph.
        let shown = picture(written(&noise(2000, 2000), ImageFormat::Png)).expect("a picture");
        assert_eq!(shown.media_type, MediaType::Jpeg);
        assert!(shown.bytes.len() <= MAX_SENT_BYTES, "{}", shown.bytes.len());
        assert!(shown.tokens < 3_500);
    }

    #[test]
    fn other_formats_become_one_that_every_vendor_takes() {
        for format in [ImageFormat::Gif, ImageFormat::WebP] {
            let mut drawing = RgbaImage::new(64, 64);
            drawing.put_pixel(3, 3, Rgba([255, 0, 0, 255]));
            let shown = picture(written(&drawing.into(), format)).expect("a picture");
            assert_eq!(shown.media_type, MediaType::Png);
            let again = image::load_from_memory(&shown.bytes).expect("a picture");
            assert_eq!(again.get_pixel(3, 3), Rgba([255, 0, 0, 255]));
        }
    }

    #[test]
    fn a_photograph_is_turned_upright() {
        let lying = written(&DynamicImage::new_rgb8(60, 20), ImageFormat::Jpeg);
        // An Exif block that says: turn it by a quarter.
        let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let length = (exif.len() + 2) as u16;
        let mut turned = lying[..2].to_vec();
        turned.extend([0xff, 0xe1]);
        turned.extend(length.to_be_bytes());
        turned.extend(exif);
        turned.extend(&lying[2..]);
        let shown = picture(turned).expect("a picture");
        assert_eq!(shown.about, "An image of 20 x 60 pixels.");
        assert_eq!(image::load_from_memory(&shown.bytes).expect("a picture").dimensions(), (20, 60));
    }

    #[test]
    fn a_bomb_a_torn_and_a_lying_picture_are_refused() {
        // A header that claims 60,000 times 60,000 pixels.
        let mut bomb = written(&DynamicImage::new_rgba8(1, 1), ImageFormat::Gif);
        bomb[6..10].copy_from_slice(&[0x60, 0xea, 0x60, 0xea]);
        assert_eq!(picture(bomb), Err(MediaError::TooManyPixels));
        let whole = written(&noise(200, 200), ImageFormat::Png);
        assert_eq!(picture(whole[..whole.len() / 2].to_vec()), Err(MediaError::Damaged));
        assert_eq!(picture(b"\x89PNG\r\n\x1a\nnothing".to_vec()), Err(MediaError::Damaged));
        assert_eq!(picture(vec![0; MAX_IMAGE_BYTES + 1]), Err(MediaError::TooLarge(MAX_IMAGE_BYTES)));
        assert_eq!(picture(b"no picture".to_vec()), Err(MediaError::Damaged));
    }
}
