//! Writes whose bytes are made on the way.

use std::fmt;

/// How the bytes of a write are made into those that enter the stream.
///
/// The worker runs it, in steps from first to last and with other work in between, into page-aligned memory of its own.
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// The size of what is handed in.
    fn input_bytes(&self) -> usize;
    /// The size of what enters the stream.
    fn output_bytes(&self) -> usize;
    /// Into how many parts the work is divided: of similar size, each some 20 to 60 µs long, so that a worker can look after its
    /// pipe in between.
    fn steps(&self) -> usize;
    /// Makes part `step` of the output. Both are whole, and of the sizes above; a page that was used before holds what it held.
    fn apply(&self, step: usize, input: &[u8], output: &mut [u8]);
}
