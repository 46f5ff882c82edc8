//! Keys and how they are spread: the hash, and a hasher for tables of keys.

use std::hash::{BuildHasherDefault, Hasher};

/// The longest key of a message or of a queue's row, in bytes. A stored key holds it behind the name of a state or
/// timer stream, and is itself bounded.
pub const MESSAGE_KEY_BYTES_MAX: usize = 32 << 10;

/// The hash by which keys are spread over partitions: XXH3-64 of the key's bytes, seed 0. The same
/// in every release.
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Which of `count` partitions a key with this hash belongs to. Each has an equal, contiguous
/// range of hashes, so that another count moves whole ranges.
pub fn partition_of(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// Hashes the keys of a table by [`key_hash`], which is fast and the same on every machine.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

/// Makes [`KeyHasher`]s.
pub type BuildKeyHasher = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= key_hash(bytes);
    }

    /// The length that precedes a slice's bytes adds nothing: the key's hash covers it.
    fn write_usize(&mut self, _length: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_same_for_ever() {
        // By another implementation. The algorithm has a case of its own for each of these lengths.
        let long: Vec<u8> = (0..1_000_u32).map(|at| (at % 251) as u8).collect();
        let up_to = |length: usize| -> Vec<u8> { (0..=u8::MAX).take(length).collect() };
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(key_hash(b"UA@EWR"), 0x31d3_637c_5c35_2df8);
        assert_eq!(key_hash(b"user-00000042"), 0xee20_d8bd_4a80_6619);
        assert_eq!(key_hash(&up_to(100)), 0x004e_4f92_1a64_bd1c);
        assert_eq!(key_hash(&up_to(200)), 0xf42a_8864_feaf_0703);
        assert_eq!(key_hash(&long), 0x33ef_703f_b2b2_0ed1);
    }

    #[test]
    fn partitions_are_equal_contiguous_ranges() {
        assert_eq!(partition_of(0, 4), 0);
        assert_eq!(partition_of((1 << 62) - 1, 4), 0);
        assert_eq!(partition_of(1 << 62, 4), 1);
        assert_eq!(partition_of(u64::MAX, 4), 3);
        assert_eq!(partition_of(u64::MAX, 1), 0);
    }
}
