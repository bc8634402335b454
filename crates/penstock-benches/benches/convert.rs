//! Pixel conversions of whole frames on one core, in the strips that a worker makes them in.
//!
//! `cargo bench -p penstock-benches --bench convert`. Bytes per second are those of the input.

#![allow(missing_docs)] // of what criterion's macros make

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_pixels::{Conversion, ConversionOptions, Float, PixelFormat, Quantizer};
use yuv::{
    BufferStoreMut, YuvBiPlanarImageMut, YuvConversionMode, YuvError, YuvPlanarImageMut, YuvRange,
    YuvStandardMatrix,
};

use PixelFormat::{Rgb24, Rgba, Yuv420p, Yuv422p, Yuv444p};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

fn options(input: PixelFormat, output: PixelFormat) -> ConversionOptions {
    ConversionOptions::new(input, output, WIDTH, HEIGHT)
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

type Planar = fn(
    &mut YuvPlanarImageMut<'_, u8>,
    &[u8],
    u32,
    YuvRange,
    YuvStandardMatrix,
    YuvConversionMode,
) -> Result<(), YuvError>;
type BiPlanar = fn(
    &mut YuvBiPlanarImageMut<'_, u8>,
    &[u8],
    u32,
    YuvRange,
    YuvStandardMatrix,
    YuvConversionMode,
) -> Result<(), YuvError>;

/// The crate `yuv`, which converted RGB until it was found to be wrong: one call for the whole frame.
fn crate_yuv(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crate yuv");
    let planar: [(PixelFormat, PixelFormat, Planar); 6] = [
        (Rgb24, Yuv420p, yuv::rgb_to_yuv420),
        (Rgb24, Yuv422p, yuv::rgb_to_yuv422),
        (Rgb24, Yuv444p, yuv::rgb_to_yuv444),
        (Rgba, Yuv420p, yuv::rgba_to_yuv420),
        (Rgba, Yuv422p, yuv::rgba_to_yuv422),
        (Rgba, Yuv444p, yuv::rgba_to_yuv444),
    ];
    let (range, matrix) = (YuvRange::Limited, YuvStandardMatrix::Bt709);
    for (input, output, convert) in planar {
        let channels = if input == Rgb24 { 3 } else { 4 };
        let (chroma_width, chroma_height) = match output {
            Yuv444p => (WIDTH, HEIGHT),
            Yuv422p => (WIDTH / 2, HEIGHT),
            _ => (WIDTH / 2, HEIGHT / 2),
        };
        let frame = noise(WIDTH * HEIGHT * channels);
        let mut luma = vec![0; WIDTH * HEIGHT];
        let mut chroma = [(); 2].map(|()| vec![0; chroma_width * chroma_height]);
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(format!("{} to {}", input.name(), output.name()), |bencher| {
            bencher.iter(|| {
                let [u, v] = &mut chroma;
                let mut image = YuvPlanarImageMut {
                    y_plane: BufferStoreMut::Borrowed(&mut luma),
                    y_stride: WIDTH as u32,
                    u_plane: BufferStoreMut::Borrowed(u),
                    u_stride: chroma_width as u32,
                    v_plane: BufferStoreMut::Borrowed(v),
                    v_stride: chroma_width as u32,
                    width: WIDTH as u32,
                    height: HEIGHT as u32,
                };
                let stride = (WIDTH * channels) as u32;
                convert(&mut image, black_box(&frame), stride, range, matrix, YuvConversionMode::Balanced)
                    .expect("the sizes are right");
            });
        });
    }
    let bi_planar: [(PixelFormat, BiPlanar); 2] =
        [(Rgb24, yuv::rgb_to_yuv_nv12), (Rgba, yuv::rgba_to_yuv_nv12)];
    for (input, convert) in bi_planar {
        let channels = if input == Rgb24 { 3 } else { 4 };
        let frame = noise(WIDTH * HEIGHT * channels);
        let (mut luma, mut chroma) = (vec![0; WIDTH * HEIGHT], vec![0; WIDTH * HEIGHT / 2]);
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(format!("{} to nv12", input.name()), |bencher| {
            bencher.iter(|| {
                let mut image = YuvBiPlanarImageMut {
                    y_plane: BufferStoreMut::Borrowed(&mut luma),
                    y_stride: WIDTH as u32,
                    uv_plane: BufferStoreMut::Borrowed(&mut chroma),
                    uv_stride: WIDTH as u32,
                    width: WIDTH as u32,
                    height: HEIGHT as u32,
                };
                let stride = (WIDTH * channels) as u32;
                convert(&mut image, black_box(&frame), stride, range, matrix, YuvConversionMode::Balanced)
                    .expect("the sizes are right");
            });
        });
    }
    group.finish();
}

/// Every pair of formats.
fn strips(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("strips");
    for (input, output) in
        PixelFormat::ALL.into_iter().flat_map(|input| PixelFormat::ALL.map(|output| (input, output)))
    {
        let Ok(conversion) = Conversion::new(&options(input, output)) else { continue };
        let frame = noise(conversion.input_bytes());
        let mut made = vec![0; conversion.output_bytes()];
        group.throughput(Throughput::Bytes(frame.len() as u64));
        let pair = format!("{} to {}", input.name(), output.name());
        // As the older benchmarks are named, which `make bench-compare` runs, too.
        group.bench_function(BenchmarkId::new(pair, "upright"), |bencher| {
            bencher.iter(|| {
                for strip in 0..conversion.strips() {
                    conversion.convert_strip(strip, black_box(&frame), black_box(&mut made));
                }
            });
        });
    }
    group.finish();
}

/// Copies of what is made: what no conversion is faster than.
fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copies");
    for rows in [HEIGHT, 36] {
        let frame = noise(WIDTH * rows * 3);
        let mut made = vec![0; frame.len()];
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(format!("rgb24, {rows} rows"), |bencher| {
            bencher.iter(|| black_box(&mut made).copy_from_slice(black_box(&frame)));
        });
    }
    group.finish();
}

/// Floats to whole samples, packed and with each channel in a plane of its own, row by row.
fn floats(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floats");
    for (float, bits) in [(Float::F16, 8), (Float::F32, 8), (Float::F64, 8), (Float::F32, 16)] {
        let quantizer = Quantizer::new(float, (0.0, 1.0), bits).expect("there is a scale");
        let (row_bytes, made_bytes) = (WIDTH * 3 * float.bytes(), WIDTH * 3 * quantizer.sample_bytes());
        let frame: Vec<u8> = (0..WIDTH * HEIGHT * 3)
            .flat_map(|index| {
                let value = index.wrapping_mul(0x9E37_79B9) as u16;
                match float {
                    Float::F16 => (value % 0x3C01).to_le_bytes().to_vec(), // 0x3C00 is 1
                    Float::F32 => (f32::from(value) / 65535.0).to_le_bytes().to_vec(),
                    Float::F64 => (f64::from(value) / 65535.0).to_le_bytes().to_vec(),
                }
            })
            .collect();
        let mut made = vec![0; made_bytes * HEIGHT];
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(format!("{float:?} to {bits} bits, packed"), |bencher| {
            bencher.iter(|| {
                for (row, made) in frame.chunks_exact(row_bytes).zip(made.chunks_exact_mut(made_bytes)) {
                    black_box(quantizer.convert(black_box(row), made));
                }
            });
        });
        let planes = frame.as_chunks::<3>().0.len();
        group.bench_function(format!("{float:?} to {bits} bits, planar"), |bencher| {
            bencher.iter(|| {
                for (row, made) in made.chunks_exact_mut(made_bytes).enumerate() {
                    let channel =
                        |plane: usize| &frame[plane * planes..][row * row_bytes / 3..][..row_bytes / 3];
                    black_box(quantizer.interleave(&[channel(0), channel(1), channel(2)], made));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, crate_yuv, strips, copies, floats);
criterion_main!(benches);
