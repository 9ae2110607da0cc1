//! The secret behind macaroons: given by the settings, or made at the first start and kept as a file.

use asyncgate_core::RecordId;
use asyncgate_credentials::macaroon::RootKey;

use crate::files::Files;
use crate::machine::Machine;
use crate::open::Error;

const FILE: &str = "macaroon.key";
/// The shortest secret that the settings may give. Whoever finds the secret can make any macaroon.
const SHORTEST: usize = 32;

/// The key that signs macaroons, and its name.
///
/// The identifier of a macaroon is `agm1.<name of the key>.<id of its record>`. So it is known which key to try
/// before a store is asked, and a macaroon of another server is refused without one.
#[derive(Debug)]
pub(crate) struct MacaroonKey {
    name: String,
    key: RootKey,
    /// Another key that follows from the same secret, for codes of other messages.
    mac_key: MacKey,
}

struct MacKey([u8; 32]);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey(..)")
    }
}

impl MacaroonKey {
    /// Takes the secret of the settings, or that of the file, or makes one.
    pub(crate) fn open(
        files: &dyn Files,
        machine: Machine,
        given: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let too_short = |place: &str| Error::Damaged {
            place: place.to_owned(),
            problem: "it is shorter than 32 bytes".to_owned(),
        };
        if let Some(secret) = given {
            // An editor leaves a line feed at the end, which nobody means.
            let secret = secret.trim_ascii_end();
            return Self::of(secret).ok_or_else(|| too_short("auth.macaroon_path"));
        }
        let place = files.place(FILE);
        let failed = |reason| Error::file("use", &place, &reason);
        if let Some(secret) = files.read(FILE).map_err(failed)? {
            return Self::of(&secret).ok_or_else(|| too_short(&place));
        }
        let secret: [u8; 32] = machine.bytes()?;
        files.replace(FILE, &secret).map_err(failed)?;
        Self::of(&secret).ok_or_else(|| too_short(&place))
    }

    fn of(secret: &[u8]) -> Option<Self> {
        let name = blake3::derive_key("AsyncGate 2026 name of a root key", secret);
        let (name, _) = name.split_at(4);
        (secret.len() >= SHORTEST).then(|| Self {
            name: name.iter().map(|byte| format!("{byte:02x}")).collect(),
            key: RootKey::derive(secret),
            mac_key: MacKey(blake3::derive_key("AsyncGate 2026 message codes", secret)),
        })
    }

    /// Returns a code of a message that nobody can compute without the secret.
    pub(crate) fn mac(&self, message: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.mac_key.0, message).as_bytes()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn key(&self) -> &RootKey {
        &self.key
    }

    /// Returns the identifier of a macaroon with this record.
    pub(crate) fn identifier(&self, id: RecordId) -> String {
        format!("agm1.{}.{id}", self.name)
    }

    /// Returns the record that an identifier names, if this key made it.
    pub(crate) fn record_in(&self, identifier: &[u8]) -> Option<RecordId> {
        let text = std::str::from_utf8(identifier).ok()?;
        let rest = text.strip_prefix("agm1.")?;
        let id = rest.strip_prefix(self.name())?.strip_prefix('.')?;
        // There is one way to write an id, so that nobody has two identifiers for one macaroon.
        let parsed: RecordId = id.parse().ok()?;
        (parsed.to_string() == id).then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;
    use crate::fakes::machine;

    fn open(files: &MemoryFiles, given: Option<&[u8]>) -> Result<MacaroonKey, Error> {
        MacaroonKey::open(files, machine(), given)
    }

    #[test]
    fn the_key_is_made_once_and_a_damaged_one_is_not_replaced() {
        let files = MemoryFiles::default();
        let (made, again) = (open(&files, None).unwrap(), open(&files, None).unwrap());
        assert_eq!(made.name(), again.name());
        assert_eq!(made.name().len(), 8);
        assert!(!format!("{made:?}").contains("secret"));
        files.replace(FILE, b"short").unwrap();
        let told = open(&files, None).unwrap_err().to_string();
        assert!(told.contains("macaroon.key"), "{told}");
        assert_eq!(files.read(FILE).unwrap().unwrap(), b"short");
    }

    #[test]
    fn a_given_secret_wins_and_must_be_long() {
        let files = MemoryFiles::default();
        let given = [b'x'; 32];
        let of_settings = open(&files, Some(&given)).unwrap();
        let with_line_feed = [&given[..], b"\n"].concat();
        let edited = open(&files, Some(&with_line_feed)).unwrap();
        assert_eq!(of_settings.name(), edited.name());
        assert!(files.read(FILE).unwrap().is_none(), "nothing is made");
        assert!(open(&files, Some(&given[1..])).is_err());
    }

    #[test]
    fn an_identifier_names_its_key_and_its_record_in_one_way() {
        let key = open(&MemoryFiles::default(), None).unwrap();
        let id = RecordId::from_bytes([0xab; 16]);
        let identifier = key.identifier(id);
        assert!(identifier.is_ascii());
        assert_eq!(key.record_in(identifier.as_bytes()), Some(id));
        let other = open(&MemoryFiles::default(), None).unwrap();
        let bad = [
            other.identifier(id),
            identifier.to_uppercase(),
            identifier.replace('-', ""),
            format!("{identifier} "),
            identifier.replacen("agm1", "agm2", 1),
            String::new(),
        ];
        for text in bad {
            assert_eq!(key.record_in(text.as_bytes()), None, "{text}");
        }
        assert_eq!(key.record_in(b"\xff"), None);
    }
}
