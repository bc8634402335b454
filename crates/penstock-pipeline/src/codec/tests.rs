use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use super::format::*;
use super::member::Member;
use super::*;
use penstock_core::Pool;
use proptest::prelude::*;

const MAX: usize = 64 << 20;

/// Compressible, and longer than any window and block.
fn plain() -> Vec<u8> {
    (0..80_000u32).flat_map(|number| (number / 7 * (number % 1009)).to_le_bytes()).collect()
}

fn deflated(plain: &[u8], compress: flate2::Compress) -> Vec<u8> {
    let mut compress = compress;
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let status = compress.compress_vec(plain, &mut packed, flate2::FlushCompress::Finish).unwrap();
    assert_eq!(status, flate2::Status::StreamEnd);
    packed
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    deflated(plain, flate2::Compress::new(flate2::Compression::default(), true))
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    deflated(plain, flate2::Compress::new_gzip(flate2::Compression::default(), 15))
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    let mut compressor = ::zstd::bulk::Compressor::new(3).unwrap();
    compressor.include_checksum(true).unwrap();
    compressor.compress(plain).unwrap()
}

fn lz4_with(plain: &[u8], info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn lz4(plain: &[u8]) -> Vec<u8> {
    lz4_with(plain, lz4_flex::frame::FrameInfo::new().content_checksum(true))
}

type Pack = fn(&[u8]) -> Vec<u8>;
const ALL: [(Codec, Pack); 4] =
    [(Codec::Zlib, zlib), (Codec::Gzip, gzip), (Codec::Zstd, zstd), (Codec::Lz4, lz4)];

fn whole(codec: Codec, asset: &[u8]) -> Result<Vec<u8>, Undecoded> {
    Decoder::default().decode(codec, asset, &Pool::new(0), MAX).map(|buffer| buffer.to_vec())
}

/// As a stream, in input of so many bytes at a time.
fn streamed(codec: Codec, asset: &[u8], step: usize) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    let input = std::io::BufReader::with_capacity(step, asset);
    Members::new(codec, input, MAX).read_to_end(&mut got).map(|_| got)
}

fn at(undecoded: Undecoded) -> io::ErrorKind {
    match undecoded {
        Undecoded::At { error, .. } => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_format_comes_back_whole_and_in_pieces() {
    for plain in [Vec::new(), b"a".to_vec(), plain()] {
        for (codec, pack) in ALL {
            let asset = pack(&plain);
            for named in [codec, Codec::Auto] {
                assert!(whole(named, &asset).unwrap() == plain, "{codec:?}");
                for step in [1, 7, 100_000] {
                    assert!(streamed(named, &asset, step).unwrap() == plain, "{codec:?} {step}");
                }
            }
        }
    }
}

#[test]
fn further_members_and_trailing_bytes_are_treated_as_by_the_formats_own_tool() {
    let plain = plain();
    for (codec, pack) in ALL {
        let member = pack(&plain);
        let twice = [member.clone(), member.clone()].concat();
        let copies = if codec == Codec::Zlib { 1 } else { 2 };
        assert!(whole(codec, &twice).unwrap() == plain.repeat(copies), "{codec:?}");
        assert!(streamed(codec, &twice, 1000).unwrap() == plain.repeat(copies), "{codec:?}");
        let soiled = [member.as_slice(), b"garbage"].concat();
        let is_ignored = matches!(codec, Codec::Zlib | Codec::Gzip);
        assert_eq!(whole(codec, &soiled).is_ok(), is_ignored, "{codec:?}");
        assert_eq!(streamed(codec, &soiled, 1000).is_ok(), is_ignored, "{codec:?}");
    }
}

#[test]
fn skippable_frames_are_skipped() {
    let skippable = [&0x184D_2A53u32.to_le_bytes()[..], &5u32.to_le_bytes(), b"aside"].concat();
    for (codec, pack) in [(Codec::Zstd, zstd as Pack), (Codec::Lz4, lz4)] {
        let asset = [skippable.clone(), pack(b"frame"), skippable.clone(), pack(b"s")].concat();
        assert_eq!(whole(codec, &asset).unwrap(), b"frames", "{codec:?}");
        assert_eq!(streamed(codec, &asset, 3).unwrap(), b"frames", "{codec:?}");
        assert!(whole(codec, &asset[..6]).is_err(), "cut short in a frame that is skipped");
    }
}

#[test]
fn auto_detects_the_codec_after_skippable_frames() {
    let skippable = [&0x184D_2A5Eu32.to_le_bytes()[..], &5u32.to_le_bytes(), b"aside"].concat();
    for (codec, pack) in ALL {
        let asset = [skippable.repeat(2), pack(b"frame")].concat();
        let has_them = matches!(codec, Codec::Zstd | Codec::Lz4);
        assert_eq!(
            whole(Codec::Auto, &asset).ok().as_deref(),
            has_them.then_some(&b"frame"[..]),
            "{codec:?}"
        );
        let got = streamed(Codec::Auto, &asset, 3).ok();
        assert_eq!(got.as_deref(), has_them.then_some(&b"frame"[..]), "{codec:?}");
    }
    assert_eq!(whole(Codec::Auto, &skippable).unwrap(), b"");
    assert_eq!(streamed(Codec::Auto, &skippable, 3).unwrap(), b"");
    assert_eq!(at(whole(Codec::Auto, &skippable[..9]).unwrap_err()), io::ErrorKind::UnexpectedEof);
}

#[test]
fn every_cut_is_truncated() {
    let plain = &plain()[..40_000];
    for (codec, pack) in ALL {
        let asset = pack(plain);
        let cuts =
            (0..25).chain((25..asset.len()).step_by(asset.len() / 6)).chain(asset.len() - 9..asset.len());
        for cut in cuts {
            assert_eq!(
                at(whole(codec, &asset[..cut]).unwrap_err()),
                io::ErrorKind::UnexpectedEof,
                "{codec:?} {cut}"
            );
            let error = streamed(codec, &asset[..cut], 100).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{codec:?} {cut}");
        }
    }
}

#[test]
fn every_cut_in_a_further_member_is_truncated() {
    for (codec, pack) in ALL.into_iter().filter(|(codec, _)| *codec != Codec::Zlib) {
        let member = pack(b"member");
        for cut in member.len() + 1..2 * member.len() {
            let asset = &member.repeat(2)[..cut];
            let error = at(whole(codec, asset).unwrap_err());
            assert_eq!(error, io::ErrorKind::UnexpectedEof, "{codec:?} {cut}");
            for step in [1, 100] {
                let error = streamed(codec, asset, step).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{codec:?} {cut} {step}");
            }
        }
    }
}

#[test]
fn a_wrong_byte_is_an_error_with_its_place() {
    for (codec, pack) in ALL {
        let mut asset = pack(&plain());
        let place = asset.len() / 2;
        asset[place..place + 16].fill(0xA5);
        let Err(Undecoded::At { byte, .. }) = whole(codec, &asset) else { panic!("{codec:?} took it") };
        assert!(byte > 0 && byte <= asset.len() as u64, "{codec:?} {byte}");
        assert!(streamed(codec, &asset, 1000).is_err());
    }
    for codec in ALL.map(|(codec, _)| codec).into_iter().filter(|codec| *codec != Codec::Lz4) {
        let told = whole(codec, b"garbage");
        assert!(matches!(told, Err(Undecoded::At { byte: 0, .. })), "{codec:?} {told:?}");
    }
    assert_eq!(at(whole(Codec::Auto, b"plain text").unwrap_err()), io::ErrorKind::InvalidData);
    assert_eq!(at(whole(Codec::Auto, b"").unwrap_err()), io::ErrorKind::UnexpectedEof);
}

/// libzstd does not look at it where the last block is empty.
#[test]
fn a_zstd_frame_of_another_size_than_it_claims_is_wrong() {
    let mut asset = ::zstd::bulk::compress(b"", 1).unwrap();
    assert_eq!(streamed(Codec::Zstd, &asset, 1).unwrap(), b"");
    asset[5] = 157; // the header's size of the content
    assert_eq!(at(whole(Codec::Zstd, &asset).unwrap_err()), io::ErrorKind::InvalidData);
    assert_eq!(streamed(Codec::Zstd, &asset, 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn bomb_is_refused_and_an_asset_that_just_fits_is_not() {
    let zeros = vec![0; 1 << 20];
    let pool = Pool::new(0);
    for (codec, pack) in ALL {
        let asset = pack(&zeros);
        let mut decoder = Decoder::default();
        for max in [1, 100_000, zeros.len() - 1] {
            let refused = decoder.decode(codec, &asset, &pool, max);
            assert!(matches!(refused, Err(Undecoded::TooLarge)), "{codec:?} {max} {refused:?}");
        }
        assert_eq!(
            decoder.decode(codec, &asset, &pool, zeros.len()).unwrap().len(),
            zeros.len(),
            "{codec:?}"
        );
        let mut damaged = asset;
        *damaged.last_mut().unwrap() ^= 1; // of a checksum
        let told = decoder.decode(codec, &damaged, &pool, zeros.len());
        assert!(matches!(told, Err(Undecoded::At { .. })), "{codec:?} {told:?}");
    }
}

#[test]
fn a_header_that_claims_too_much_is_not_believed() {
    // RFC 8878: a frame with a content size of 8 bytes, claiming 1 TiB, and no block.
    let mut claims = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0x58];
    claims.extend((1u64 << 40).to_le_bytes());
    assert_eq!(at(whole(Codec::Zstd, &claims).unwrap_err()), io::ErrorKind::UnexpectedEof);
}

#[test]
fn lz4_frames_of_every_kind_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    let plain = plain();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            let info = FrameInfo::new()
                .block_mode(mode)
                .block_size(size)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(plain.len() as u64));
            let asset = lz4_with(&plain, info);
            assert!(whole(Codec::Lz4, &asset).unwrap() == plain);
            assert!(streamed(Codec::Lz4, &asset, 333).unwrap() == plain);
        }
    }
}

/// A frame of one block, whose header allows blocks of 4 MiB.
fn small_lz4_frame(stored: &[u8], size_bits: u32) -> Vec<u8> {
    let header = [0b0110_0000, 0x70];
    let checksum = (twox_hash::XxHash32::oneshot(0, &header) >> 8) as u8;
    let size = stored.len() as u32 | size_bits;
    [&LZ4_MAGIC.to_le_bytes()[..], &header, &[checksum], &size.to_le_bytes(), stored, &[0; 4]].concat()
}

#[test]
fn an_lz4_block_takes_no_more_memory_than_it_can_give() {
    // A literal, and a match as long as its length bytes can make it.
    let most: Vec<u8> = [&[0x1F, b'x', 1, 0][..], &[255; 1000], &[254], &[0x50], b"ended"].concat();
    for (stored, size_bits) in [(&b"x"[..], 1 << 31), (&most, 0)] {
        let asset = small_lz4_frame(stored, size_bits);
        let plain = whole(Codec::Lz4, &asset).unwrap();
        assert!(plain.len() <= 255 * stored.len());
        assert!(streamed(Codec::Lz4, &asset.repeat(3), 7).unwrap() == plain.repeat(3));
        let mut frames = super::lz4::Frames::default();
        let (mut input, mut has_more) = (&asset[..], false);
        frames.read(&mut input, &mut vec![0; plain.len()], &mut has_more).unwrap();
        assert!(frames.memory_bytes() <= 2 * 256 * stored.len(), "{} bytes", frames.memory_bytes());
    }
    let claims = &small_lz4_frame(&[0; 100], (4 << 20) - 128)[..30];
    assert_eq!(at(whole(Codec::Lz4, claims).unwrap_err()), io::ErrorKind::UnexpectedEof);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whole and in pieces, with one error or the other where bytes are damaged.
    #[test]
    fn lz4_assets_and_streams_agree(
        sizes in prop::collection::vec(prop_oneof![0usize..50, 0usize..150_000], 1..4),
        is_linked in any::<bool>(),
        checksums in any::<bool>(),
        has_size in any::<bool>(),
        damage in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        cut in prop::option::of(any::<prop::sample::Index>()),
        step in 1usize..5000,
    ) {
        use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
        let plain = plain();
        let mut asset: Vec<u8> = sizes.iter().flat_map(|&bytes| {
            let info = FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(if is_linked { BlockMode::Linked } else { BlockMode::Independent })
                .block_checksums(checksums)
                .content_checksum(checksums)
                .content_size(has_size.then_some(bytes as u64));
            lz4_with(&plain[..bytes], info)
        }).collect();
        if let Some((index, with)) = damage {
            let index = index.index(asset.len());
            asset[index] ^= with;
        }
        asset.truncate(cut.map_or(asset.len(), |cut| 1 + cut.index(asset.len())));
        let max = [MAX, 100_000][step % 2];
        let in_pieces = streamed(Codec::Lz4, &asset, step);
        match Decoder::default().decode(Codec::Lz4, &asset, &Pool::new(0), max) {
            Ok(at_once) => prop_assert!(at_once.to_vec() == *in_pieces.as_ref().unwrap()),
            Err(Undecoded::At { error, .. }) => {
                prop_assert_eq!(error.kind(), in_pieces.as_ref().unwrap_err().kind());
            }
            Err(_) => prop_assert!(max < MAX),
        }
        if damage.is_none() && cut.is_none() {
            let expected: Vec<u8> = sizes.iter().flat_map(|&bytes| plain[..bytes].to_vec()).collect();
            prop_assert!(in_pieces.unwrap() == expected);
        }
    }
}

/// A zstd frame of a window of that size, and no content.
fn zstd_with_window(window_log: u8) -> Vec<u8> {
    [&ZSTD_MAGIC.to_le_bytes()[..], &[0, (window_log - 10) << 3], &[1, 0, 0]].concat()
}

#[test]
fn the_window_of_a_zstd_stream_is_bounded() {
    let streamed = |window_log, max_window_bytes| {
        let mut got = Vec::new();
        let asset = zstd_with_window(window_log);
        Members::new(Codec::Auto, &asset[..], max_window_bytes).read_to_end(&mut got).map(|_| got)
    };
    for (max_window_bytes, most_log) in [(1, 23), (16 << 20, 24), ((32 << 20) - 1, 24), (256 << 20, 28)] {
        assert_eq!(streamed(most_log, max_window_bytes).unwrap(), b"");
        let refused: WindowTooLarge =
            streamed(most_log + 1, max_window_bytes).unwrap_err().downcast().unwrap();
        assert_eq!(refused.limit_bytes, 1 << most_log);
    }
}

/// What the formats' own tools make, other than what our dependencies do.
#[test]
fn output_of_the_command_line_tools_is_read() {
    let plain = plain();
    for (codec, command) in [
        (Codec::Gzip, "gzip -9"),
        (Codec::Zstd, "zstd -q -19 --long=24"),
        (Codec::Zstd, "zstd -q --no-check --format=zstd -1"),
        (Codec::Lz4, "lz4 -q -9 -BD"),
        (Codec::Lz4, "lz4 -q -B4 -BX --content-size"),
    ] {
        let Some(asset) = through(command, &plain) else {
            eprintln!("skipped: {command} is not installed");
            continue;
        };
        assert!(whole(codec, &asset).unwrap() == plain, "{command}");
        assert!(streamed(Codec::Auto, &asset, 4096).unwrap() == plain, "{command}");
    }
}

fn through(command: &str, plain: &[u8]) -> Option<Vec<u8>> {
    let mut words = command.split(' ');
    let spawned = Command::new(words.next()?)
        .args(words)
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = spawned.ok()?;
    let mut to = child.stdin.take()?;
    let plain = plain.to_vec();
    let feeder = std::thread::spawn(move || to.write_all(&plain));
    let output = child.wait_with_output().ok()?;
    feeder.join().ok()?.ok()?;
    output.status.success().then_some(output.stdout)
}
