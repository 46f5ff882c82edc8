//! A byte string that lies in place as long as it is short, so that looking at it is looking at what
//! it is part of.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// A byte string; up to [`SmallBytes::IN_PLACE_MAX`] bytes cost no allocation.
#[derive(Clone)]
pub struct SmallBytes(Form);

#[derive(Clone)]
enum Form {
    InPlace {
        len: u8,
        bytes: [u8; SmallBytes::IN_PLACE_MAX],
    },
    Elsewhere(Box<[u8]>),
}

impl SmallBytes {
    /// The most bytes that lie in place: with them the whole is as large as three words.
    pub const IN_PLACE_MAX: usize = 22;

    /// A copy of `value`.
    pub fn new(value: &[u8]) -> SmallBytes {
        let mut bytes = SmallBytes::default();
        bytes.set(value);
        bytes
    }

    /// Replaces all bytes; memory is used again where it fits.
    pub fn set(&mut self, value: &[u8]) {
        if value.len() <= SmallBytes::IN_PLACE_MAX {
            let mut bytes = [0; SmallBytes::IN_PLACE_MAX];
            bytes[..value.len()].copy_from_slice(value);
            let len = value.len() as u8;
            self.0 = Form::InPlace { len, bytes };
            return;
        }
        match &mut self.0 {
            Form::Elsewhere(bytes) if bytes.len() == value.len() => bytes.copy_from_slice(value),
            form => *form = Form::Elsewhere(value.into()),
        }
    }

    /// Bytes that do not lie in place.
    pub fn allocated_bytes(&self) -> usize {
        match &self.0 {
            Form::InPlace { .. } => 0,
            Form::Elsewhere(bytes) => bytes.len(),
        }
    }
}

impl Default for SmallBytes {
    fn default() -> SmallBytes {
        SmallBytes(Form::InPlace {
            len: 0,
            bytes: [0; SmallBytes::IN_PLACE_MAX],
        })
    }
}

impl Deref for SmallBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::InPlace { len, bytes } => &bytes[..usize::from(*len)],
            Form::Elsewhere(bytes) => bytes,
        }
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &SmallBytes) -> bool {
        **self == **other
    }
}

impl Eq for SmallBytes {}

impl Hash for SmallBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialOrd for SmallBytes {
    fn partial_cmp(&self, other: &SmallBytes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SmallBytes {
    fn cmp(&self, other: &SmallBytes) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for SmallBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_come_back() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut reused = SmallBytes::default();
        for len in (0..=100).chain((0..=100).rev()) {
            let value = &bytes[..len];
            assert_eq!(*SmallBytes::new(value), *value);
            reused.set(value);
            assert_eq!(*reused, *value);
            let expected = if len <= 22 { 0 } else { len };
            assert_eq!(reused.allocated_bytes(), expected);
        }
    }

    #[test]
    fn bytes_of_one_length_use_the_same_memory() {
        let mut bytes = SmallBytes::new(&[1; 50]);
        let place = bytes.as_ptr();
        bytes.set(&[2; 50]);
        assert_eq!((bytes.as_ptr(), &bytes[..]), (place, &[2; 50][..]));
    }

    #[test]
    fn its_order_is_that_of_the_bytes_wherever_they_lie() {
        let long = [1; 40];
        let values: [&[u8]; 5] = [b"", &long[..22], &long, &[1, 2], &[2]];
        let small = values.map(SmallBytes::new);
        assert!(small.is_sorted_by(|left, right| left < right));
        assert_eq!(small[2], SmallBytes::new(&long));
    }

    #[test]
    fn it_is_as_large_as_three_words() {
        assert_eq!(size_of::<SmallBytes>(), 24);
    }
}
