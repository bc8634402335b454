//! Frames from one pixel format to another, while they are copied.
//!
//! To YUV, the arithmetic is the crate `yuv`'s; to RGB, it is here. Around it: whole frames in strips, planes one after another as
//! FFmpeg's `rawvideo` has them, pictures upside down, and sizes that the chroma cannot share out.
//!
//! [`Conversion`] does it.
#![doc = include_str!("../README.md")]

mod channel;
mod conversion;
mod convert;
mod format;
mod options;
mod scale;
mod strip;
mod to_rgb;

pub use conversion::Conversion;
pub use format::PixelFormat;
pub use options::{ConversionOptions, Matrix, OddSize, Range, Unsupported};
