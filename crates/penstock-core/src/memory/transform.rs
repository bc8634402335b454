//! Changing the bytes of a write on their way.

use std::fmt;

/// Transforms the bytes of a write before they enter the stream.
///
/// The worker applies it in steps, from first to last and with other work in between, into page-aligned memory of its
/// own. A step may run under the lock of the stream's queue: it must call nothing of this crate, and callers of the
/// writer wait for it.
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// Size of the input in bytes.
    fn input_bytes(&self) -> usize;
    /// Size of the output in bytes.
    fn output_bytes(&self) -> usize;
    /// Number of steps. They should be of similar size, each some 20 to 60 µs long, so that the worker can serve its
    /// pipe in between.
    fn steps(&self) -> usize;
    /// Makes part `step` of the output. Both slices are whole and of the sizes above. Reused memory contains what it
    /// held before.
    fn apply(&self, step: usize, input: &[u8], output: &mut [u8]);
}

/// Converts a strip of the frame in each step.
#[cfg(feature = "pixels")]
impl Transform for penstock_pixels::Conversion {
    fn input_bytes(&self) -> usize {
        self.input_bytes()
    }
    fn output_bytes(&self) -> usize {
        self.output_bytes()
    }
    fn steps(&self) -> usize {
        self.strips()
    }
    fn apply(&self, step: usize, input: &[u8], output: &mut [u8]) {
        self.convert_strip(step, input, output);
    }
}
