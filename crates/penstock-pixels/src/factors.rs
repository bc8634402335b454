//! How much each sample of YUV adds to RGB.

use super::format::PixelFormat;
use super::options::{ConversionOptions, Matrix, Range as ColorRange};

/// [`Factors`], for each depth of the output.
pub(super) struct Scales {
    pub(super) narrow: Factors<Units, i16>,
    pub(super) deep: Factors<FloatUnits, f32>,
}

/// The factors of the input's samples in the output, for an arithmetic.
pub(super) struct Factors<L, F> {
    pub(super) luma: L,
    /// The factors of the first channel's chroma in that channel, and of the last's.
    pub(super) own: [F; 2],
    /// The factors of both chromas in green.
    pub(super) green: [F; 2],
}

/// The exact values of the output for a level of the input, where white is 1.
struct Shares {
    bits: u32,
    range: ColorRange,
    matrix: Matrix,
    luma: f64,
    /// The value of luma at half of the code values.
    middle: f64,
    own: [f64; 2],
    green: [f64; 2],
}

impl Scales {
    /// ITU-T H.273, 8.3, solved for RGB.
    pub(super) fn new(options: &ConversionOptions) -> Self {
        let (bits, blue_first) = (options.input.bits(), options.output.is_blue_first());
        let is_gray = options.input == PixelFormat::Gray;
        let range = if is_gray { ColorRange::Full } else { options.range };
        let (black, luma, chroma) = range.levels(bits);
        let (luma, chroma) = (1.0 / f64::from(luma), 1.0 / f64::from(chroma));
        let (kr, kb) = options.matrix.red_and_blue();
        let (red, blue) = (2.0 * (1.0 - kr) * chroma, 2.0 * (1.0 - kb) * chroma);
        let kg = 1.0 - kr - kb;
        let in_order = |red: f64, blue: f64| if blue_first { [blue, red] } else { [red, blue] };
        let middle = f64::from((1 << (bits - 1)) - i32::from(black)) * luma;
        let (own, green) = (in_order(red, blue), in_order(-red * kr / kg, -blue * kb / kg));
        let shares = Shares { bits, range, matrix: options.matrix, luma, middle, own, green };
        Self { narrow: shares.in_words(), deep: shares.in_floats() }
    }
}

/// Luma as `scale` / 2^16 of samples of 16 bits, less `middle`. A sum times `back` / 2^15 is in levels.
pub(super) struct Units {
    pub(super) scale: u16,
    pub(super) middle: i16,
    pub(super) back: i16,
}

/// The factor of luma, and what luma has in the middle of its code values.
pub(super) struct FloatUnits {
    pub(super) factor: f32,
    pub(super) middle: f32,
}

impl Shares {
    fn in_words(&self) -> Factors<Units, i16> {
        // Chosen, because scale and factors are close to integers: of all colors, none is more than 0.5095 of a level off.
        let back = match (self.range, self.matrix) {
            (ColorRange::Full, _) => 160,
            (ColorRange::Limited, Matrix::Bt601) => 161,
            (ColorRange::Limited, _) => 166,
        };
        let white = 255.0 * f64::from(1 << 15) / f64::from(back);
        let codes = f64::from(1 << self.bits);
        let scale = (self.luma * white * codes).round();
        // Less what truncation takes on average.
        let middle = scale / 2.0 + (128.0 / 255.0 - self.middle) * white - 0.5;
        let factor = |share: f64| share * white * codes / 2.0;
        Factors {
            luma: Units { scale: scale as u16, middle: middle.round() as i16, back },
            own: self.own.map(|share| (factor(share) - f64::from(1 << 15)).round() as i16),
            green: self.green.map(|share| factor(share).round() as i16),
        }
    }

    fn in_floats(&self) -> Factors<FloatUnits, f32> {
        let factor = |share: f64| (share * 65535.0 * f64::from(1 << self.bits) / 1024.0) as f32;
        Factors {
            luma: FloatUnits { factor: factor(self.luma), middle: (self.middle * 65535.0 - 32768.0) as f32 },
            own: self.own.map(factor),
            green: self.green.map(factor),
        }
    }
}
