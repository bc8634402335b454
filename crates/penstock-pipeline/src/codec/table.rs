//! The formats that are built in.

use std::io;

#[cfg(feature = "deflate")]
use super::deflate::{Gzip, Zlib};
use super::format::Codec;
#[cfg(feature = "lz4")]
use super::lz4::Lz4;
use super::member::Format;
#[cfg(feature = "zstd")]
use super::zstd::Zstd;
use penstock_core::Error;

const FORMATS: &[&dyn Format] = &[
    #[cfg(feature = "deflate")]
    &Zlib,
    #[cfg(feature = "deflate")]
    &Gzip,
    #[cfg(feature = "zstd")]
    &Zstd,
    #[cfg(feature = "lz4")]
    &Lz4,
];

/// The format of a codec, which is not `Auto`.
pub(super) fn format_of(codec: Codec) -> io::Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.codec() == codec).ok_or_else(|| {
        let name = codec.name();
        let feature = if matches!(codec, Codec::Zlib | Codec::Gzip) { "deflate" } else { name };
        let why = format!("this build has no {name}. Enable the feature `{feature}` of penstock-pipeline");
        io::Error::new(io::ErrorKind::Unsupported, why)
    })
}

impl Codec {
    /// Refuses a codec whose feature is off. `Auto` recognizes all, and each asset is refused by itself.
    pub(crate) fn check_built_in(self) -> Result<(), Error> {
        match self {
            Self::Auto => Ok(()),
            codec => format_of(codec).map(drop).map_err(|error| Error::Unsuitable(error.to_string().into())),
        }
    }
}

#[cfg(all(test, not(any(feature = "deflate", feature = "lz4", feature = "zstd"))))]
mod tests {
    use super::*;
    use crate::{Cause, OnError, Options, Pipeline, Sink, Source, Stage};

    #[test]
    fn a_codec_that_is_off_is_refused_by_its_name() {
        let start = |codec, asset: &[u8]| {
            let options = Options::default().on_error(OnError::Skip);
            let stages = vec![Stage::decompress(codec)];
            Pipeline::start(Source::buffers([asset.to_vec()]), stages, Sink::iterate(), &options)
        };
        for (codec, feature, asset) in [
            (Codec::Zlib, "deflate", &[0x78, 0x9C, 0, 0][..]),
            (Codec::Gzip, "deflate", &[0x1F, 0x8B, 8, 0]),
            (Codec::Zstd, "zstd", &[0x28, 0xB5, 0x2F, 0xFD]),
            (Codec::Lz4, "lz4", &[0x04, 0x22, 0x4D, 0x18]),
        ] {
            let Err(Error::Unsuitable(why)) = start(codec, asset) else { panic!("{codec:?} was taken") };
            assert!(why.contains(codec.name()) && why.contains(&format!("`{feature}`")), "{why}");
            let pipeline = start(Codec::Auto, asset).unwrap();
            assert!(pipeline.next(None).unwrap().is_none());
            let Cause::Failed(error) = &pipeline.skipped()[0].cause else {
                panic!("{:?}", pipeline.skipped())
            };
            assert_eq!(error.to_string(), why);
        }
    }
}
