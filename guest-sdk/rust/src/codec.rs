//! How values become bytes: for states and for payloads.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Result;

/// A way to write values of type `T` as bytes and to read them back.
///
/// The same value must always give the same bytes, and what is read back must be equal to what was
/// written: otherwise results depend on how the host cuts its batches. Beware of fields that serde
/// skips, and of hash maps, whose order is not part of their value.
pub trait Codec<T> {
    /// The name that a state's declaration carries, so that tools know how to show its values.
    const FORMAT: &'static str;

    /// Appends `value` to `bytes`.
    ///
    /// # Errors
    ///
    /// When the value has no encoding.
    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<()>;

    /// Reads a value that takes up all of `bytes`.
    ///
    /// # Errors
    ///
    /// When `bytes` are no encoding of a value.
    fn decode(bytes: &[u8]) -> Result<T>;

    /// Whether the value is encoded as no bytes at all. A state with such a value is as good as
    /// cleared.
    fn is_nothing(_value: &T) -> bool {
        false
    }
}

/// JSON text: readable by everyone, the largest and slowest.
pub enum Json {}

/// Postcard's binary encoding: small and fast; every change of the type is a new version.
pub enum Postcard {}

/// The bytes as they are. An empty string of bytes is no value.
pub enum Bytes {}

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    const FORMAT: &'static str = "json";

    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<()> {
        write_json(value, bytes)
    }

    fn decode(bytes: &[u8]) -> Result<T> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl<T: Serialize + DeserializeOwned> Codec<T> for Postcard {
    const FORMAT: &'static str = "postcard";

    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<()> {
        const {
            assert!(
                size_of::<T>() > 0,
                "postcard has no bytes for a type of size 0"
            );
        };
        write_postcard(value, bytes)
    }

    fn decode(bytes: &[u8]) -> Result<T> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

impl Codec<Vec<u8>> for Bytes {
    const FORMAT: &'static str = "bytes";

    fn encode(value: &Vec<u8>, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }

    fn is_nothing(value: &Vec<u8>) -> bool {
        value.is_empty()
    }
}

impl<const N: usize> Codec<[u8; N]> for Bytes {
    const FORMAT: &'static str = "bytes";

    fn encode(value: &[u8; N], bytes: &mut Vec<u8>) -> Result<()> {
        const {
            assert!(N > 0, "an empty string of bytes is no value");
        };
        bytes.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<[u8; N]> {
        Ok(bytes.try_into()?)
    }
}

/// Appends `value` as JSON.
pub(crate) fn write_json<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<()> {
    Ok(serde_json::to_writer(bytes, value)?)
}

/// Appends `value` in postcard's encoding.
pub(crate) fn write_postcard<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<()> {
    Ok(postcard::serialize_with_flavor(value, Appended(bytes))?)
}

/// Lets postcard write behind what is there already, without a buffer of its own.
struct Appended<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use super::*;

    fn check<C: Codec<T>, T: PartialEq + Debug>(value: &T) {
        let mut bytes = vec![7];
        C::encode(value, &mut bytes).expect("the value has an encoding");
        assert_eq!(bytes[0], 7, "what was there is kept");
        assert_eq!(&C::decode(&bytes[1..]).expect("decodes"), value);
    }

    #[test]
    fn every_codec_reads_back_what_it_wrote_and_appends() {
        let value = BTreeMap::from([("a".to_owned(), vec![1_i64, -2]), ("b".to_owned(), vec![])]);
        check::<Json, _>(&value);
        check::<Postcard, _>(&value);
        check::<Bytes, _>(&b"any".to_vec());
        check::<Bytes, _>(b"four");
    }

    /// Without its feature `float_roundtrip`, serde_json reads 12.658579999999999 as 12.65858.
    #[test]
    fn numbers_come_back_to_the_last_bit() {
        let mut bits = 1_u64;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f64::from_bits(bits);
            if value.is_finite() {
                check::<Json, _>(&value);
            }
        }
        check::<Json, _>(&12.658_579_999_999_999_f64);
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert!(<Bytes as Codec<[u8; 4]>>::decode(b"three").is_err());
    }
}
