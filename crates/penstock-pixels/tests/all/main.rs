//! All integration tests of the crate, in one binary.

mod common;
mod convert;
mod delivery;
mod planes;
mod quantizer;
mod to_rgb;
