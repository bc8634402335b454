//! Converts samples from one depth to another.

/// The depth that conversions from or to more than 8 bits go through.
pub(super) const DEEP_BITS: u32 = 14;
pub(super) const DEEP_WHITE: u16 = (1 << DEEP_BITS) - 1;

/// Maps bytes to a scale from `black` to `white`, rounded to the nearest. All in 16 bits: so compilers vectorize it,
/// which they cannot do with a table (measured: 10 times slower).
#[derive(Clone, Copy)]
pub(super) struct ByteScale {
    black: u16,
    whole: u16,
    rest: u16,
}

impl ByteScale {
    pub(super) fn new(black: u16, white: u16) -> Self {
        Self { black, whole: (white - black) / 255, rest: (white - black) % 255 }
    }

    pub(super) fn of(self, byte: u8) -> u16 {
        let byte = u16::from(byte);
        let rest = self.rest * byte + 127;
        // rest / 255, exact for all values that occur: less than 254 * 255 + 128.
        self.black + self.whole * byte + ((rest + 1 + (rest >> 8)) >> 8)
    }
}

/// Rounds 14 bits to fewer, to the nearest. All in 16 bits, as [`ByteScale`].
#[derive(Clone, Copy)]
pub(super) struct Round {
    pub(super) bits: u32,
    /// The code value that stays: black, or neutral chroma.
    pub(super) zero: i16,
    /// All ones for the full range, whose white is one less than a power of two on both sides, and so slightly less
    /// than shifted.
    pub(super) shrinks: i16,
}

impl Round {
    pub(super) fn of(self, sample: u16) -> u16 {
        let (shift, peak) = (DEEP_BITS - self.bits, (1 << self.bits) - 1);
        let above = sample as i16 - self.zero;
        let shrunk = above - ((above >> self.bits) & self.shrinks);
        (((shrunk + (1 << (shift - 1))) >> shift) + (self.zero >> shift)).clamp(0, peak) as u16
    }
}
