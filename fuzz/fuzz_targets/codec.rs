//! LZ4 frames and members of the other formats: whole and in pieces alike, and as other decoders have them.

#![no_main]

use std::io::{Read, Write};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use penstock_pipeline::Codec;
use penstock_pipeline::fuzzing::{is_stricter, needs_a_larger_window, streamed, whole};

/// A bomb is to be cut off, and not to take the fuzzer's time.
const MOST: usize = 4 << 20;

const CODECS: [Codec; 5] = [Codec::Auto, Codec::Zlib, Codec::Gzip, Codec::Zstd, Codec::Lz4];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    codec: u8,
    step: u16,
    /// How the bytes become an asset: as they are, or packed and then damaged at one place.
    pack: Option<Damage>,
    lz4: Lz4,
    bytes: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct Damage {
    at: u16,
    with: u8,
    cut: u16,
    is_twice: bool,
}

#[derive(Arbitrary, Debug)]
struct Lz4 {
    is_linked: bool,
    has_block_checksums: bool,
    has_content_checksum: bool,
    has_content_size: bool,
}

fuzz_target!(|input: Input<'_>| {
    let codec = CODECS[usize::from(input.codec) % CODECS.len()];
    let Some(damage) = &input.pack else {
        compare(codec, input.bytes, usize::from(input.step));
        return;
    };
    let one = pack(codec, &input);
    let repeats = if damage.is_twice && codec != Codec::Zlib && codec != Codec::Auto { 2 } else { 1 };
    let mut asset = one.repeat(repeats);
    let named = compare(codec, &asset, usize::from(input.step));
    assert!(named.as_deref() == Some(&*input.bytes.repeat(repeats)), "it does not come back");
    let at = usize::from(damage.at) % asset.len();
    asset[at] ^= damage.with;
    asset.truncate(asset.len() - usize::from(damage.cut) % asset.len());
    compare(codec, &asset, usize::from(input.step));
});

/// Decodes it in all ways, which must agree. The content, if it is whole.
fn compare(codec: Codec, asset: &[u8], step: usize) -> Option<Vec<u8>> {
    let (pieces, result) = streamed(codec, asset, step.max(1), MOST as u64);
    let (again, other) = streamed(codec, asset, asset.len().max(1), MOST as u64);
    assert_eq!(result.as_ref().err().map(|error| error.kind()), other.err().map(|error| error.kind()));
    if result.is_ok() {
        assert!(pieces == again, "it depends on the size of the pieces");
    }
    if pieces.len() >= MOST {
        return None;
    }
    let is_deflate = !matches!(codec, Codec::Lz4 | Codec::Zstd);
    match whole(codec, asset, MOST) {
        Some(Ok(content)) => {
            // The symbols 286 and 287 mean nothing (RFC 1951), and libdeflate takes them for a length of 258 (its table
            // `litlen_decode_results`). Here the checksum has confirmed the content.
            let is_corner = |error: &std::io::Error| {
                is_deflate && error.to_string() == "invalid literal/length code"
                    || needs_a_larger_window(error)
            };
            assert!(result.as_ref().err().is_none_or(is_corner), "only the stream fails: {result:?}");
            assert!(result.is_err() || content == pieces, "a stream and an asset differ");
        }
        // libdeflate is stricter than zlib-rs in corners of DEFLATE that neither documents, and libzstd is stricter with whole
        // frames than with streams.
        Some(Err(error)) => {
            let may_differ = is_deflate || (codec == Codec::Zstd && has_empty_block(asset));
            let is_corner = may_differ && is_stricter(&error);
            assert!(result.is_err() || is_corner, "only the asset fails: {error}");
        }
        None => return None,
    }
    if let (Codec::Lz4, Ok(())) = (codec, &result) {
        compare_with_lz4_flex(asset, &pieces);
    }
    result.is_ok().then_some(pieces)
}

/// Whether there may be a compressed block of no bytes (RFC 8878, 3.1.1.2), which libzstd passes over in a stream.
fn has_empty_block(asset: &[u8]) -> bool {
    asset.windows(3).any(|header| matches!(header, [4 | 5, 0, 0]))
}

/// The first frame as lz4_flex has it, which stops behind it.
fn compare_with_lz4_flex(asset: &[u8], content: &[u8]) {
    let mut theirs = Vec::new();
    if lz4_flex::frame::FrameDecoder::new(asset).read_to_end(&mut theirs).is_ok() {
        assert!(content.starts_with(&theirs) || theirs == content, "lz4_flex has other bytes");
    }
}

fn pack(codec: Codec, input: &Input<'_>) -> Vec<u8> {
    let plain = input.bytes;
    match codec {
        Codec::Auto | Codec::Zlib => {
            let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(plain).unwrap();
            packed.finish().unwrap()
        }
        Codec::Gzip => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(plain).unwrap();
            packed.finish().unwrap()
        }
        Codec::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
        Codec::Lz4 => {
            let Lz4 { is_linked, has_block_checksums, has_content_checksum, has_content_size } = input.lz4;
            let info = FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(if is_linked { BlockMode::Linked } else { BlockMode::Independent })
                .block_checksums(has_block_checksums)
                .content_checksum(has_content_checksum)
                .content_size(has_content_size.then_some(plain.len() as u64));
            let mut packed = FrameEncoder::with_frame_info(info, Vec::new());
            packed.write_all(plain).unwrap();
            packed.finish().unwrap()
        }
        other => unreachable!("{other:?} is none of those that are fuzzed"),
    }
}
