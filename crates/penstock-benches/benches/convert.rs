//! Pixel conversions of whole frames on one core, in the strips that a worker makes them in.
//!
//! `cargo bench -p penstock-benches --bench convert`. Bytes per second are those of the input.

#![allow(missing_docs)] // of what criterion's macros make

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_pixels::{Conversion, ConversionOptions, Float, PixelFormat, Quantizer};
use yuv::{BufferStoreMut, YuvConversionMode, YuvPlanarImageMut, YuvRange, YuvStandardMatrix};

use PixelFormat::{
    Bgr24, Bgra, Gray, Nv12, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p, Yuv444p, Yuv444p10,
};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;

fn options(input: PixelFormat, output: PixelFormat) -> ConversionOptions {
    ConversionOptions::new(input, output, WIDTH, HEIGHT)
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

/// One call of the crate for the whole frame: what strips must not be slower than.
fn whole(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whole");
    let frame = noise(WIDTH * HEIGHT * 3);
    let mut planes = [vec![0; WIDTH * HEIGHT], vec![0; WIDTH * HEIGHT / 4], vec![0; WIDTH * HEIGHT / 4]];
    group.throughput(Throughput::Bytes(frame.len() as u64));
    group.bench_function("rgb24 to yuv420p", |bencher| {
        bencher.iter(|| {
            let [y, u, v] = &mut planes;
            let mut image = YuvPlanarImageMut {
                y_plane: BufferStoreMut::Borrowed(y),
                y_stride: WIDTH as u32,
                u_plane: BufferStoreMut::Borrowed(u),
                u_stride: WIDTH as u32 / 2,
                v_plane: BufferStoreMut::Borrowed(v),
                v_stride: WIDTH as u32 / 2,
                width: WIDTH as u32,
                height: HEIGHT as u32,
            };
            let (range, matrix) = (YuvRange::Limited, YuvStandardMatrix::Bt709);
            let stride = WIDTH as u32 * 3;
            yuv::rgb_to_yuv420(&mut image, &frame, stride, range, matrix, YuvConversionMode::Balanced)
                .expect("the sizes are right");
        });
    });
    group.finish();
}

fn strips(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("strips");
    for (input, output) in [
        (Yuv420p, Rgb24),
        (Yuv420p, Bgr24),
        (Yuv420p, Rgba),
        (Yuv420p, Gray),
        (Yuv420p, Rgb48),
        (Yuv422p, Rgb24),
        (Yuv444p, Rgb24),
        (Nv12, Rgb24),
        (Yuv420p10, Rgb24),
        (Yuv420p10, Rgb48),
        (Yuv420p10, Rgba64),
        (Gray, Rgb24),
        (Rgb24, Yuv420p),
        (Rgb24, Yuv444p),
        (Rgb24, Nv12),
        (Rgba, Yuv420p),
        (Bgra, Yuv420p),
        (Rgb24, Yuv420p10),
        (Rgb24, Yuv444p10),
        (Rgb48, Yuv420p10),
        (Rgb48, Yuv420p),
        (Rgba64, Yuv444p10),
        (Gray, Yuv420p),
        (Yuv420p, Yuv420p),
    ] {
        for vertical_flip in [false, true] {
            let mut wanted = options(input, output);
            wanted.vertical_flip = vertical_flip;
            let conversion = Conversion::new(&wanted).expect("the pair is supported");
            let frame = noise(conversion.input_bytes());
            let mut made = vec![0; conversion.output_bytes()];
            group.throughput(Throughput::Bytes(frame.len() as u64));
            let pair = format!("{} to {}", input.name(), output.name());
            let way = if vertical_flip { "flipped" } else { "upright" };
            group.bench_function(BenchmarkId::new(pair, way), |bencher| {
                bencher.iter(|| {
                    for strip in 0..conversion.strips() {
                        conversion.convert_strip(strip, black_box(&frame), black_box(&mut made));
                    }
                });
            });
        }
    }
    group.finish();
}

/// Frames that stay in a near cache, as those that are made part by part while they are read.
fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    for (output, rows) in [(Rgb24, 60), (Rgb24, 36), (Bgr24, 36), (Rgba, 36)] {
        let part = ConversionOptions::new(Yuv420p, output, WIDTH, rows);
        let conversion = Conversion::new(&part).expect("the pair is supported");
        let frame = noise(conversion.input_bytes());
        let mut made = vec![0; conversion.output_bytes()];
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(format!("yuv420p to {}, {rows} rows", output.name()), |bencher| {
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

criterion_group!(benches, whole, strips, parts, copies, floats);
criterion_main!(benches);
