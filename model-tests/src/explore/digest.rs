//! 128 bits of a state, the same in every run and on every machine of one word size.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A table keyed by digests, which need no second hashing.
pub(super) type ByDigest = BuildHasherDefault<LowHalf>;

/// Two chains of folded multiplications with different seeds over the same input.
pub(super) fn digest<S: Hash>(state: &S) -> u128 {
    // Digits of pi, so that there is nothing up our sleeves.
    let mut twin = Twin { a: 0x243f_6a88_85a3_08d3, b: 0x1319_8a2e_0370_7344 };
    state.hash(&mut twin);
    let (a, b) = (fold(twin.a ^ MUL_B, MUL_A), fold(twin.b ^ MUL_A, MUL_B));
    (u128::from(a) << 64) | u128::from(b)
}

const MUL_A: u64 = 0xa409_3822_299f_31d1;
const MUL_B: u64 = 0x082e_fa98_ec4e_6c89;

const fn fold(x: u64, y: u64) -> u64 {
    let product = (x as u128) * (y as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

struct Twin {
    a: u64,
    b: u64,
}

impl Twin {
    fn word(&mut self, word: u64) {
        self.a = fold(self.a ^ word, MUL_A).rotate_left(23) ^ word;
        self.b = fold(self.b.rotate_left(29) ^ word, MUL_B) ^ word.rotate_left(32);
    }
}

impl Hasher for Twin {
    fn finish(&self) -> u64 {
        self.a ^ self.b
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.word(u64::from_le_bytes(eight));
        }
        let mut rest = [0; 8];
        let left = words.remainder();
        rest[..left.len()].copy_from_slice(left);
        // The length parts `[0]` from `[0, 0]`.
        self.word(u64::from_le_bytes(rest) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, n: u8) {
        self.word(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.word(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.word(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }
}

/// Takes what is a hash already.
#[derive(Default)]
pub(super) struct LowHalf(u64);

impl Hasher for LowHalf {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}
