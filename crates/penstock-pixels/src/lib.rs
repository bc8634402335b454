#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A [`Conversion`] is made from [`ConversionOptions`]. Output frames have their planes one after another, as in FFmpeg's
//! `rawvideo`; input frames too, or [`Planes`] with strides, from which [`Band`]s are made. A [`PlaneCopy`] joins planes of any format.
//! A [`Quantizer`] makes whole samples of floats, and a [`Delivery`] floats of whole samples.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_bytes;
#[cfg(target_arch = "x86_64")]
mod avx2_deep;
#[cfg(target_arch = "x86_64")]
mod avx2_pixels;
mod channel;
mod conversion;
mod delivery;
mod factors;
mod format;
#[cfg(target_arch = "x86_64")]
mod interleave;
mod levels;
mod method;
mod options;
mod plane_copy;
mod planes;
mod quantizer;
mod rows;
mod scale;
mod strip;
mod to_rgb;
mod to_yuv;

pub use conversion::Conversion;
pub use delivery::{Delivery, DeliveryOptions};
pub use format::PixelFormat;
pub use options::{ConversionOptions, Matrix, OddSize, Range, Unsupported};
pub use plane_copy::{CopyBand, PlaneCopy};
pub use planes::{PlaneSize, Planes, WrongPlanes};
pub use quantizer::{Float, Outside, Quantizer};
pub use strip::Band;
