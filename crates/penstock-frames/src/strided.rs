//! Arrays whose elements are not contiguous in memory, as in NumPy and Python's buffer protocol.

use std::ptr;

/// An array: its first element, and for each axis its length and the bytes from one element to the next.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// The element at index 0 of every axis.
    pub start: *const u8,
    /// Lengths of the axes, the outermost first.
    pub shape: &'a [usize],
    /// Bytes from one element to the next along each axis; negative for a reversed axis.
    pub strides: &'a [isize],
    /// Size of an element.
    pub item_bytes: usize,
}

// SAFETY: no safe function reads through the address: `gather` is unsafe, and its contract holds for whatever thread calls it.
unsafe impl Send for Strided<'_> {}
// SAFETY: as above; nothing changes in it.
unsafe impl Sync for Strided<'_> {}

impl<'a> Strided<'a> {
    /// The part at an index of the outermost axis.
    ///
    /// # Panics
    ///
    /// If there is no such index.
    #[must_use]
    pub fn at(&self, index: usize) -> Self {
        assert!(index < self.shape[0]);
        let start = self.start.wrapping_offset(index as isize * self.strides[0]);
        Self { start, shape: &self.shape[1..], strides: &self.strides[1..], ..*self }
    }

    /// The part at an index of the innermost axis.
    ///
    /// # Panics
    ///
    /// As for [`at`](Self::at).
    #[must_use]
    pub fn at_innermost(&self, index: usize) -> Self {
        let last = self.shape.len() - 1;
        assert!(index < self.shape[last]);
        let start = self.start.wrapping_offset(index as isize * self.strides[last]);
        Self { start, shape: &self.shape[..last], strides: &self.strides[..last], ..*self }
    }

    /// The elements as they lie in memory; none if they do not follow each other in C order.
    ///
    /// # Safety
    ///
    /// Every element is readable, and nobody writes to it, as long as the slice is in use.
    #[must_use]
    pub unsafe fn contiguous(&self) -> Option<&'a [u8]> {
        let mut next = self.item_bytes as isize;
        for (&length, &stride) in self.shape.iter().zip(self.strides).rev() {
            if length > 1 && stride != next {
                return None;
            }
            next = next.checked_mul(length as isize)?;
        }
        if next == 0 {
            return Some(&[]); // whose address may be null
        }
        // SAFETY: from the first element on, they follow each other without gaps; the caller sees to the rest.
        Some(unsafe { std::slice::from_raw_parts(self.start, next as usize) })
    }

    /// The size of all elements; `usize::MAX`, which no slice has, if it is larger than that.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Strides of 0 give a small memory any shape, so even a size beyond the address space can be one of readable elements.
        self.shape.iter().fold(self.item_bytes, |bytes, &length| bytes.saturating_mul(length))
    }

    /// Copies the elements into `output`, one after another, the last axis first (C order).
    ///
    /// # Safety
    ///
    /// Every element is readable, and nobody writes to it, until this returns.
    ///
    /// # Panics
    ///
    /// If `output` does not have the array's size, or `shape` and `strides` differ in length.
    pub unsafe fn gather(&self, output: &mut [u8]) {
        assert_eq!((self.shape.len(), self.bytes()), (self.strides.len(), output.len()));
        if output.is_empty() {
            return;
        }
        let axes = self.merged_axes();
        let (outer, inner) = axes.split_at(axes.len() - 2);
        // SAFETY: the array is the caller's, whose elements are readable. The output holds as many bytes, and is borrowed
        // mutably, so that it is other memory.
        unsafe {
            gather_outer(outer, [inner[0], inner[1]], self.item_bytes, self.start, output.as_mut_ptr())
        };
    }

    /// The axes with a length above one, those joined that make one run of memory; at least two.
    fn merged_axes(&self) -> Vec<Axis> {
        let one = Axis { length: 1, stride: 0 };
        let mut axes: Vec<Axis> = vec![one, one];
        for (&length, &stride) in self.shape.iter().zip(self.strides).filter(|(length, _)| **length > 1) {
            match axes.last_mut() {
                Some(last) if last.length > 1 && last.stride == stride * length as isize => {
                    *last = Axis { length: last.length * length, stride };
                }
                _ => axes.push(Axis { length, stride }),
            }
        }
        axes
    }
}

#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    stride: isize,
}

/// Walks the outer axes. Returns where the next element goes.
///
/// # Safety
///
/// As for [`Strided::gather`]: every element of these axes, of which `from` is the first, is readable and stays as it is.
/// From `to` on, there is room for all of them, in other memory.
unsafe fn gather_outer(
    outer: &[Axis],
    inner: [Axis; 2],
    item_bytes: usize,
    from: *const u8,
    mut to: *mut u8,
) -> *mut u8 {
    let Some((axis, rest)) = outer.split_first() else {
        // SAFETY: these axes are the whole array.
        return unsafe { gather_plane(inner, item_bytes, from, to) };
    };
    for index in 0..axis.length as isize {
        // SAFETY: the index is less than the axis's length, so the rest of the axes begins at an element of the array.
        to = unsafe { gather_outer(rest, inner, item_bytes, from.offset(index * axis.stride), to) };
    }
    to
}

/// The two innermost axes: usually the pixels of a row and their channels, or rows and their pixels.
///
/// # Safety
///
/// As for [`gather_outer`].
unsafe fn gather_plane(axes: [Axis; 2], item_bytes: usize, from: *const u8, to: *mut u8) -> *mut u8 {
    let [pixels, channels] = axes;
    // SAFETY: each of these functions reads and writes the elements of the two axes, and no others.
    unsafe {
        if channels.stride == item_bytes as isize && channels.length * item_bytes > RUN_BYTES {
            return gather_runs(pixels, channels.length * item_bytes, from, to);
        }
        match (item_bytes, channels.length) {
            (1, 3) => gather_pixels::<1, 3>(pixels, channels.stride, from, to),
            (1, 4) => gather_pixels::<1, 4>(pixels, channels.stride, from, to),
            (2, 3) => gather_pixels::<2, 3>(pixels, channels.stride, from, to),
            (2, 4) => gather_pixels::<2, 4>(pixels, channels.stride, from, to),
            (4, 3) => gather_pixels::<4, 3>(pixels, channels.stride, from, to),
            (4, 4) => gather_pixels::<4, 4>(pixels, channels.stride, from, to),
            (1, _) => gather_rows::<1>(axes, from, to),
            (2, _) => gather_rows::<2>(axes, from, to),
            (4, _) => gather_items::<4>(axes, from, to),
            _ => gather_any(axes, item_bytes, from, to),
        }
    }
}

/// Up to here a call of memcpy costs more than a loop of known length saves. Guessed.
const RUN_BYTES: usize = 16;

/// # Safety
///
/// As for [`gather_outer`]; a run is all of the inner axis, without gaps.
unsafe fn gather_runs(runs: Axis, run_bytes: usize, from: *const u8, to: *mut u8) -> *mut u8 {
    for index in 0..runs.length {
        // SAFETY: the run at an index below the axis's length is one of the array's.
        unsafe {
            let run = from.offset(index as isize * runs.stride);
            ptr::copy_nonoverlapping(run, to.add(index * run_bytes), run_bytes);
        }
    }
    // SAFETY: at most one past the end.
    unsafe { to.add(runs.length * run_bytes) }
}

/// # Safety
///
/// As for [`gather_outer`].
unsafe fn gather_rows<const ITEM: usize>(
    [rows, pixels]: [Axis; 2],
    from: *const u8,
    mut to: *mut u8,
) -> *mut u8 {
    for row in 0..rows.length as isize {
        // SAFETY: the row at an index below the axis's length is one of the array's.
        to = unsafe { gather_pixels::<ITEM, 1>(pixels, 0, from.offset(row * rows.stride), to) };
    }
    to
}

/// Pixels of so many channels, which are `stride` bytes apart.
///
/// # Safety
///
/// As for [`gather_outer`].
unsafe fn gather_pixels<const ITEM: usize, const CHANNELS: usize>(
    pixels: Axis,
    stride: isize,
    from: *const u8,
    to: *mut u8,
) -> *mut u8 {
    let items = |bytes: isize| (bytes % ITEM as isize == 0).then_some(bytes / ITEM as isize);
    let gather: Option<unsafe fn(usize, *const u8, *mut u8)> = match (items(pixels.stride), items(stride)) {
        (Some(3), Some(-1)) => Some(gather_known::<ITEM, CHANNELS, 3, -1>),
        (Some(-3), Some(1)) => Some(gather_known::<ITEM, CHANNELS, -3, 1>),
        (Some(-3), Some(-1)) => Some(gather_known::<ITEM, CHANNELS, -3, -1>),
        (Some(4), Some(1)) => Some(gather_known::<ITEM, CHANNELS, 4, 1>),
        (Some(4), Some(-1)) => Some(gather_known::<ITEM, CHANNELS, 4, -1>),
        (Some(-4), Some(1)) => Some(gather_known::<ITEM, CHANNELS, -4, 1>),
        (Some(-4), Some(-1)) => Some(gather_known::<ITEM, CHANNELS, -4, -1>),
        (Some(-1), Some(0)) => Some(gather_known::<ITEM, CHANNELS, -1, 0>),
        _ => None,
    };
    let channels = Axis { length: CHANNELS, stride };
    // SAFETY: the known strides are those of the two axes.
    unsafe {
        if CHANNELS > 1 && pixels.stride == ITEM as isize {
            gather_planes::<ITEM, CHANNELS>(pixels.length, stride, from, to);
            return to.add(pixels.length * CHANNELS * ITEM);
        }
        let Some(gather) = gather else { return gather_items::<ITEM>([pixels, channels], from, to) };
        gather(pixels.length, from, to);
        to.add(pixels.length * CHANNELS * ITEM)
    }
}

/// Pixels whose strides the compiler knows, in items: it makes them shuffles of whole vectors. `frame[..., ::-1]` of 1080p
/// rgb24 takes 0.2 ms, and 1.5 without them (2-core x86-64 VM, best of 40, 2026-11-27). Without AVX2, it takes that, too.
///
/// # Safety
///
/// As for [`gather_outer`], of so many pixels.
unsafe fn gather_known<const ITEM: usize, const CHANNELS: usize, const PIXEL: isize, const CHANNEL: isize>(
    pixels: usize,
    from: *const u8,
    to: *mut u8,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, and the memory is that of this call.
        return unsafe { gather_by_avx2::<ITEM, CHANNELS, PIXEL, CHANNEL>(pixels, from, to) };
    }
    // SAFETY: it has the contract of this function, and gets the same memory.
    unsafe { gather_by_strides::<ITEM, CHANNELS, PIXEL, CHANNEL>(pixels, from, to) };
}

/// [`gather_by_strides`], compiled for AVX2.
///
/// # Safety
///
/// As for [`gather_known`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn gather_by_avx2<
    const ITEM: usize,
    const CHANNELS: usize,
    const PIXEL: isize,
    const CHANNEL: isize,
>(
    pixels: usize,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: it has the contract of this function, and gets the same memory.
    unsafe { gather_by_strides::<ITEM, CHANNELS, PIXEL, CHANNEL>(pixels, from, to) };
}

/// # Safety
///
/// As for [`gather_known`].
#[inline(always)]
unsafe fn gather_by_strides<
    const ITEM: usize,
    const CHANNELS: usize,
    const PIXEL: isize,
    const CHANNEL: isize,
>(
    pixels: usize,
    from: *const u8,
    to: *mut u8,
) {
    // They fit into a slice. Told that no index overflows, the compiler vectorizes `rgba[..., :3]`, too: 1.0 ms, and 0.2.
    assert!(pixels <= isize::MAX as usize / (CHANNELS * ITEM));
    for pixel in 0..pixels {
        for channel in 0..CHANNELS {
            let place = pixel as isize * PIXEL + channel as isize * CHANNEL;
            // SAFETY: the indices are below the lengths of their axes. Arrays of bytes need no alignment.
            unsafe {
                let item = from.offset(place * ITEM as isize).cast::<[u8; ITEM]>().read();
                to.add((pixel * CHANNELS + channel) * ITEM).cast::<[u8; ITEM]>().write(item);
            }
        }
    }
}

/// Pixels of which each channel is a plane of its own.
///
/// # Safety
///
/// As for [`gather_outer`], of so many pixels, whose channels are `stride` bytes apart.
unsafe fn gather_planes<const ITEM: usize, const CHANNELS: usize>(
    pixels: usize,
    stride: isize,
    from: *const u8,
    to: *mut u8,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, and the memory is that of this call.
        return unsafe { gather_planes_by_avx2::<ITEM, CHANNELS>(pixels, stride, from, to) };
    }
    // SAFETY: it has the contract of this function, and gets the same memory.
    unsafe { gather_planes_inline::<ITEM, CHANNELS>(pixels, stride, from, to) };
}

/// [`gather_planes_inline`], compiled for AVX2.
///
/// # Safety
///
/// As for [`gather_planes`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn gather_planes_by_avx2<const ITEM: usize, const CHANNELS: usize>(
    pixels: usize,
    stride: isize,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: it has the contract of this function, and gets the same memory.
    unsafe { gather_planes_inline::<ITEM, CHANNELS>(pixels, stride, from, to) };
}

/// Channels known to the compiler, and slices, which it knows not to overlap: so it vectorizes the loop.
///
/// # Safety
///
/// As for [`gather_planes`].
#[inline(always)]
unsafe fn gather_planes_inline<const ITEM: usize, const CHANNELS: usize>(
    pixels: usize,
    stride: isize,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: a channel's items follow one another from its first on, and the output has room for all of them.
    let (planes, made) = unsafe {
        let plane = |channel| {
            let first = from.offset(channel as isize * stride);
            std::slice::from_raw_parts(first.cast::<[u8; ITEM]>(), pixels)
        };
        let planes: [_; CHANNELS] = std::array::from_fn(plane);
        (planes, std::slice::from_raw_parts_mut(to.cast::<[[u8; ITEM]; CHANNELS]>(), pixels))
    };
    for (index, pixel) in made.iter_mut().enumerate() {
        for (item, plane) in pixel.iter_mut().zip(&planes) {
            *item = plane[index];
        }
    }
}

/// # Safety
///
/// As for [`gather_outer`].
unsafe fn gather_items<const ITEM: usize>(axes: [Axis; 2], from: *const u8, to: *mut u8) -> *mut u8 {
    // SAFETY: the axes are those of this call. Here the compiler knows the size of an item.
    unsafe { gather_any(axes, ITEM, from, to) }
}

/// # Safety
///
/// As for [`gather_outer`].
#[inline(always)]
unsafe fn gather_any(axes: [Axis; 2], item_bytes: usize, from: *const u8, mut to: *mut u8) -> *mut u8 {
    for outer in 0..axes[0].length as isize {
        for inner in 0..axes[1].length as isize {
            // SAFETY: the indices are below the lengths of their axes, so the item is one of the array's, and has its room.
            unsafe {
                let item = from.offset(outer * axes[0].stride + inner * axes[1].stride);
                ptr::copy_nonoverlapping(item, to, item_bytes);
                to = to.add(item_bytes);
            }
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One element after another, by its index.
    fn naive(memory: &[u8], origin: usize, array: &Strided<'_>) -> Vec<u8> {
        let mut output = Vec::new();
        for number in 0..array.shape.iter().product::<usize>() {
            let (mut rest, mut place) = (number, origin as isize);
            for (&length, &stride) in array.shape.iter().zip(array.strides).rev() {
                place += (rest % length) as isize * stride;
                rest /= length;
            }
            output.extend_from_slice(&memory[place as usize..place as usize + array.item_bytes]);
        }
        output
    }

    /// Axes of a C-contiguous array, and for each whether it is reversed, how many elements are stepped over, and where it stands.
    fn arrays() -> impl Strategy<Value = (usize, Vec<(usize, bool, usize)>, Vec<usize>)> {
        let axes = prop::collection::vec((0usize..6, any::<bool>(), 1usize..3), 0..5);
        (prop::sample::select(vec![1usize, 2, 3, 4, 8]), axes).prop_flat_map(|(item_bytes, axes)| {
            let order: Vec<usize> = (0..axes.len()).collect();
            (Just(item_bytes), Just(axes), Just(order).prop_shuffle())
        })
    }

    proptest! {
        #[test]
        fn every_view_comes_out_as_it_looks((item_bytes, axes, order) in arrays()) {
            let (mut stride, mut origin) = (item_bytes, 0);
            let mut plain = Vec::new();
            for &(length, is_reversed, step) in axes.iter().rev() {
                let reach = stride * step;
                origin += if is_reversed { reach * length.saturating_sub(1) } else { 0 };
                plain.push((length, if is_reversed { -(reach as isize) } else { reach as isize }));
                stride *= (length * step).max(1);
            }
            let memory: Vec<u8> = (0..stride.max(origin + item_bytes)).map(|byte| (byte * 7 + byte / 251) as u8).collect();
            let (shape, strides): (Vec<_>, Vec<_>) = order.iter().map(|&axis| plain[axis]).unzip();
            let start = memory.as_ptr().wrapping_add(origin);
            let array = Strided { start, shape: &shape, strides: &strides, item_bytes };
            let mut output = vec![0; array.bytes()];
            // SAFETY: the vector holds all elements.
            unsafe { array.gather(&mut output) };
            prop_assert_eq!(output, naive(&memory, origin, &array));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long: other tests read such memory")]
    fn pixels_long_enough_for_vectors_come_out_as_they_look() {
        let orders = [1, -1].map(|pixels| [1, -1].map(|channels| (pixels, channels)));
        let shapes = [(3, 3), (4, 3), (4, 4), (4, 2), (1, 1)];
        for (item_bytes, (held, taken), width, &(pixels, channels)) in [1usize, 2, 4]
            .into_iter()
            .flat_map(|item| shapes.map(|shape| (item, shape)))
            .flat_map(|(item, shape)| [0, 1, 7, 31, 33, 64, 101].map(|width: usize| (item, shape, width)))
            .flat_map(|(item, shape, width)| {
                orders.as_flattened().iter().map(move |order| (item, shape, width, order))
            })
        {
            let (rows, item, held) = (3, item_bytes as isize, held as isize);
            let memory: Vec<u8> =
                (0..rows * width * held as usize * item_bytes).map(|byte| (byte * 7) as u8).collect();
            let last =
                |length: usize, order: isize| if order < 0 { length.saturating_sub(1) as isize } else { 0 };
            let origin = (last(width, pixels) * held + last(taken, channels)) * item;
            let shape = [rows, width, taken];
            let strides = [width as isize * held * item, pixels * held * item, channels * item];
            let start = memory.as_ptr().wrapping_offset(origin);
            let array = Strided { start, shape: &shape, strides: &strides, item_bytes };
            let mut output = vec![0; array.bytes()];
            // SAFETY: the vector holds all elements.
            unsafe { array.gather(&mut output) };
            assert_eq!(output, naive(&memory, origin as usize, &array), "{array:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long: other tests read such memory")]
    fn planes_come_out_as_pixels() {
        for (item_bytes, channels, width) in [1usize, 2, 4]
            .into_iter()
            .flat_map(|item| [2, 3, 4, 5].map(|channels: usize| (item, channels)))
            .flat_map(|(item, channels)| [1, 31, 64, 101].map(|width: usize| (item, channels, width)))
        {
            let (rows, item) = (3, item_bytes as isize);
            let memory: Vec<u8> =
                (0..channels * rows * width * item_bytes).map(|byte| (byte * 7) as u8).collect();
            let (shape, width) = ([rows, width, channels], width as isize);
            for (origin, strides) in [
                (0, [width * item, item, rows as isize * width * item]),
                (
                    (channels - 1) * rows * width as usize * item_bytes,
                    [width * item, item, -(rows as isize) * width * item],
                ),
            ] {
                let array = Strided {
                    start: memory.as_ptr().wrapping_add(origin),
                    shape: &shape,
                    strides: &strides,
                    item_bytes,
                };
                let mut output = vec![0; array.bytes()];
                // SAFETY: the vector holds all elements.
                unsafe { array.gather(&mut output) };
                assert_eq!(output, naive(&memory, origin, &array), "{array:?}");
            }
        }
    }

    #[test]
    fn size_saturates_beyond_any_memory() {
        let size = |shape: &[usize]| {
            Strided { start: [0u8].as_ptr(), shape, strides: &vec![0; shape.len()], item_bytes: 2 }.bytes()
        };
        assert_eq!(size(&[1 << 63]), usize::MAX, "which wraps to 0");
        assert_eq!(size(&[3, usize::MAX / 3 + 2]), usize::MAX, "which wraps to 8");
        assert_eq!(size(&[1 << 63, 1 << 63, 0]), 0);
    }

    #[test]
    fn pixels_are_mirrored_and_their_channels_exchanged() {
        let rgb: Vec<u8> = (0..12).collect();
        // SAFETY: the twelve bytes of the vector, from the last of the first row backwards.
        let mirrored = unsafe {
            let array = Strided {
                start: rgb.as_ptr().add(5),
                shape: &[2, 2, 3],
                strides: &[6, -3, -1],
                item_bytes: 1,
            };
            let mut output = [0; 12];
            array.gather(&mut output);
            output
        };
        assert_eq!(mirrored, [5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6]);
    }
}
