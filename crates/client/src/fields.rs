//! Takes an input apart: serde passes its fields, one by one.

use serde::{
    Serialize, Serializer,
    ser::{Error as _, Impossible, SerializeStruct},
};
use serde_json::Error;

/// A receiver of fields.
pub(crate) trait Fields {
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error>;
}

/// Passes the fields of `input`, in order.
pub(crate) fn hand_over(input: &impl Serialize, to: &mut impl Fields) -> Result<(), Error> {
    input.serialize(Struct(to))
}

struct Struct<'a, F>(&'a mut F);

impl<F: Fields> SerializeStruct for Struct<'_, F> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.0.field(name, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

/// Refuses values that are no structs. Every input is one.
macro_rules! no_struct {
    ($($method:ident$(<$T:ident>)?($($of:ty),*) -> $what:ty;)*) => {$(
        fn $method$(<$T: Serialize + ?Sized>)?(self, $(_: $of),*) -> Result<$what, Error> {
            Err(Error::custom("it is no struct"))
        }
    )*};
}

type Never = Impossible<(), Error>;
type Name = &'static str;

impl<F: Fields> Serializer for Struct<'_, F> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Self;
    type SerializeStructVariant = Never;

    fn serialize_struct(self, _: Name, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    no_struct! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_str(&str) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_some<T>(&T) -> ();
        serialize_unit() -> ();
        serialize_unit_struct(Name) -> ();
        serialize_unit_variant(Name, u32, Name) -> ();
        serialize_newtype_struct<T>(Name, &T) -> ();
        serialize_newtype_variant<T>(Name, u32, Name, &T) -> ();
        serialize_seq(Option<usize>) -> Never;
        serialize_tuple(usize) -> Never;
        serialize_tuple_struct(Name, usize) -> Never;
        serialize_tuple_variant(Name, u32, Name, usize) -> Never;
        serialize_map(Option<usize>) -> Never;
        serialize_struct_variant(Name, u32, Name, usize) -> Never;
    }
}
