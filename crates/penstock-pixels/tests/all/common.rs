//! Conversions by default options.

use penstock_pixels::{Conversion, ConversionOptions, Matrix, PixelFormat, Range};

pub const MATRICES: [Matrix; 3] = [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020];
pub const RANGES: [Range; 2] = [Range::Limited, Range::Full];

pub fn options(
    input: PixelFormat,
    output: PixelFormat,
    (width, height): (usize, usize),
) -> ConversionOptions {
    ConversionOptions::new(input, output, width, height)
}

pub fn convert(options: &ConversionOptions, input: &[u8]) -> Vec<u8> {
    let conversion = Conversion::new(options).unwrap();
    assert_eq!(conversion.input_bytes(), input.len());
    let mut output = vec![0xA5; conversion.output_bytes()];
    conversion.convert(input, &mut output);
    output
}
