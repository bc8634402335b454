//! Frames between memory and streams, for Penstock's Python package: where they lie, how they are made, and how FFmpeg learns their times.
//!
//! Nothing here is promised to anybody else. The modules, from the lowest layer up:
//!
//! | module | subject |
//! | --- | --- |
//! | `strided` | arrays whose elements are not contiguous |
//! | `float_frame` | frames of floating-point samples, as whole samples |
//! | `parts`, `crew` | work in parts, and the threads that do it for the whole process |
//! | `plane_converter` | frames of planes, made into frames in one piece by the crew |
//! | `nut` | frames and sound with their times, as the NUT stream that FFmpeg reads |

#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod crew;
#[cfg(not(loom))]
mod float_frame;
#[cfg(not(loom))]
mod nut;
mod parts;
#[cfg(not(loom))]
mod plane_converter;
#[cfg(not(loom))]
mod strided;

#[cfg(not(loom))]
pub use {
    float_frame::FloatFrame,
    nut::{FrameTime, NutFeed, PREFIX_BYTES, PictureTimes, Track},
    plane_converter::{PlaneConverter, PlaneJob, PlaneMethod},
    strided::Strided,
};
