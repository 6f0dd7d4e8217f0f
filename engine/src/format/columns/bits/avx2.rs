//! Handles eight packed numbers of at most 25 bits at once, on processors with AVX2. The portable form is in `bits`.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_cvtepu32_epi64, _mm256_extract_epi64,
    _mm256_extracti128_si256, _mm256_max_epu32, _mm256_min_epu32, _mm256_movemask_ps,
    _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srlv_epi32, _mm256_sub_epi32,
};
use std::ops::Range;

use super::{Packed, SLACK_BYTES};
use crate::format::bytes::u64_at;
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use crate::proven::at;

/// A number up to this width lies in four bytes, at any bit of its first byte.
pub const WIDTH_MOST: usize = 25;
/// Four numbers up to this width lie in eight bytes, at any bit of the first byte.
const NARROW: usize = 15;

/// Runs `work`, which is inlined here and so compiled for AVX2.
#[target_feature(enable = "avx2")]
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// As [`Packed::find`].
#[target_feature(enable = "avx2")]
pub fn find<const WIDTH: usize>(packed: &Packed<'_>, wanted: NumberRange, found: &mut Vec<u32>) {
    packed.find_by::<WIDTH>(wanted, found, |bytes| {
        let mask = _mm256_set1_epi32((1 << WIDTH) - 1);
        let (first, more) = (wanted.first as i32, wanted.more as i32);
        let above = _mm256_sub_epi32(eight::<WIDTH>(bytes), _mm256_set1_epi32(first));
        let above = _mm256_and_si256(above, mask);
        let least = _mm256_min_epu32(above, _mm256_set1_epi32(more));
        let hits = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(above, least)));
        hits as u64
    });
}

/// As [`Packed::totals`], for some blocks of eight numbers.
#[target_feature(enable = "avx2")]
pub fn totals<const WIDTH: usize>(
    packed: &Packed<'_>,
    blocks: Range<usize>,
    wanted: NumberRange,
) -> RangeTotals {
    let mask = _mm256_set1_epi32((1 << WIDTH) - 1);
    let first = _mm256_set1_epi32(wanted.first as i32);
    let more = _mm256_set1_epi32(wanted.more as i32);
    let ones = _mm256_set1_epi32(-1);
    let zero = _mm256_setzero_si256();
    let (mut count, mut sum, mut least, mut greatest) = (zero, zero, ones, zero);
    for block in blocks {
        let start = block * WIDTH;
        let bytes = at(packed.bytes, start..start + WIDTH + SLACK_BYTES);
        let behind = _mm256_and_si256(_mm256_sub_epi32(eight::<WIDTH>(bytes), first), mask);
        let hits = _mm256_cmpeq_epi32(behind, _mm256_min_epu32(behind, more));
        let held = _mm256_and_si256(behind, hits);
        // A hit is -1.
        count = _mm256_sub_epi32(count, hits);
        let (low, high) = (
            _mm256_cvtepu32_epi64(_mm256_castsi256_si128(held)),
            _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(held)),
        );
        sum = _mm256_add_epi64(sum, _mm256_add_epi64(low, high));
        least = _mm256_min_epu32(
            least,
            _mm256_or_si256(behind, _mm256_andnot_si256(hits, ones)),
        );
        greatest = _mm256_max_epu32(greatest, held);
    }
    let halves = |word: u64| [word & u64::from(u32::MAX), word >> 32];
    let eight = |numbers| words(numbers).into_iter().flat_map(halves);
    match eight(count).sum() {
        0 => RangeTotals::NONE,
        count => RangeTotals {
            count,
            sum: words(sum).into_iter().map(u128::from).sum(),
            least: eight(least).fold(u64::MAX, u64::min),
            greatest: eight(greatest).fold(0, u64::max),
        },
    }
}

#[target_feature(enable = "avx2")]
fn words(numbers: __m256i) -> [u64; 4] {
    [
        _mm256_extract_epi64::<0>(numbers) as u64,
        _mm256_extract_epi64::<1>(numbers) as u64,
        _mm256_extract_epi64::<2>(numbers) as u64,
        _mm256_extract_epi64::<3>(numbers) as u64,
    ]
}

/// As [`Packed::unpack`].
#[target_feature(enable = "avx2")]
pub fn unpack<const WIDTH: usize>(
    packed: &Packed<'_>,
    out: &mut [u64],
    map: impl Fn(u64) -> u64 + Copy,
) {
    packed.unpack_by::<WIDTH>(out, map, |bytes, out| {
        let eight = eight::<WIDTH>(bytes);
        let halves = [
            _mm256_castsi256_si128(eight),
            _mm256_extracti128_si256::<1>(eight),
        ];
        for (half, out) in halves.into_iter().zip(out.chunks_exact_mut(4)) {
            let four = _mm256_cvtepu32_epi64(half);
            for (number, out) in words(four).into_iter().zip(out) {
                *out = map(number);
            }
        }
    });
}

/// Loads the eight numbers at the start of `bytes`, which must go on for 8 bytes behind them.
#[target_feature(enable = "avx2")]
fn eight<const WIDTH: usize>(bytes: &[u8]) -> __m256i {
    let high = WIDTH / 2;
    let word = |place: usize| u64_at(bytes, place) as i64;
    let words = match WIDTH <= NARROW {
        true => _mm256_set_epi64x(0, word(high), 0, word(0)),
        false => _mm256_set_epi64x(word(high + 8), word(high), word(8), word(0)),
    };
    let ([a, b, c, d], [e, f, g, h]) = const { shape::<WIDTH>() };
    let moved = _mm256_shuffle_epi8(words, _mm256_set_epi64x(d, c, b, a));
    let shifted = _mm256_srlv_epi32(moved, _mm256_set_epi64x(h, g, f, e));
    _mm256_and_si256(shifted, _mm256_set1_epi32((1 << WIDTH) - 1))
}

/// Gives for each of eight numbers, four in each half, its four bytes and its lowest bit in them.
#[expect(
    clippy::indexing_slicing,
    reason = "a place out of bounds does not compile"
)]
const fn shape<const WIDTH: usize>() -> ([i64; 4], [i64; 4]) {
    let (mut places, mut shifts) = ([0; 4], [0; 4]);
    let mut nth = 0;
    while nth < 8 {
        // The higher half is loaded from a whole byte, and its first number may begin inside that byte.
        let bit = nth % 4 * WIDTH + nth / 4 * (4 * WIDTH % 8);
        let byte = (bit / 8) as i64;
        let bytes = byte | (byte + 1) << 8 | (byte + 2) << 16 | (byte + 3) << 24;
        places[nth / 2] |= bytes << (nth % 2 * 32);
        shifts[nth / 2] |= ((bit % 8) as i64) << (nth % 2 * 32);
        nth += 1;
    }
    (places, shifts)
}
