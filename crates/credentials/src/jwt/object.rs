//! JSON objects in which no name stands twice: two readers might take different ones of the two.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Value;

pub(crate) struct Object(BTreeMap<String, Value>);

impl Object {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if entries.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name stands twice"));
                    }
                }
                Ok(Object(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
