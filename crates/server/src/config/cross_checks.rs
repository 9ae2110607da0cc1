//! Checks across settings: what one value implies for another, and which values contradict each other.
//! Tables are checked against other settings where they become part of [`Settings`].
//!
//! [`Settings`]: super::Settings

use super::Error;
use super::resolve::Entries;
use super::source::Source;
use super::table::{KEPT_FOR_LATER, ORDERED};
use super::value::Value;

impl Entries {
    /// Applies what settings imply for others, and refuses contradictions. Returns warnings.
    pub(super) fn cross_check(&mut self) -> Result<Vec<String>, Error> {
        let mut warnings = Vec::new();
        warnings.extend(self.imply_memory_store()?);
        warnings.extend(self.warn_of_unused());
        self.check_order()?;
        self.check_replay_window()?;
        self.check_insecure_dev()?;
        self.check_features_of_this_build()?;
        Ok(warnings)
    }

    /// Implies the store in memory for a micronode and for amnesia, which leave nothing on disk.
    fn imply_memory_store(&mut self) -> Result<Option<String>, Error> {
        let micronode = self.is("mailbox.profile", &Value::Word("micronode"))?;
        let amnesia = self.is("amnesia.enabled", &Value::Switch(true))?;
        let (name, by) = match (micronode, amnesia) {
            (true, _) => ("mailbox.profile", "mailbox.profile = micronode"),
            (false, true) => ("amnesia.enabled", "amnesia.enabled = true"),
            (false, false) => return Ok(None),
        };
        for (kept, value) in [("store", Some(&Value::Word("sqlite"))), ("data_dir", None)] {
            let entry = self.get(kept)?;
            if entry.source != Source::Default && value.is_none_or(|value| entry.value == *value) {
                let problem = format!(
                    "keeps nothing on disk, but {kept} = {} ({}) wants to",
                    entry.value, entry.source
                );
                return Err(self.refuse(name, problem));
            }
        }
        self.imply("store", Value::Word("memory"), by);
        let warning =
            "amnesia.enabled=true with macronode profile; DLQ will be ephemeral per policy";
        Ok((!micronode).then(|| warning.to_owned()))
    }

    fn is(&self, name: &'static str, value: &Value) -> Result<bool, Error> {
        Ok(self.get(name)?.value == *value)
    }

    fn warn_of_unused(&self) -> Vec<String> {
        let unused = self.iter().filter(|(key, entry)| {
            entry.source != Source::Default && KEPT_FOR_LATER.contains(&key.name)
        });
        unused
            .map(|(key, entry)| format!("{} ({}) changes nothing yet", key.name, entry.source))
            .collect()
    }

    fn check_order(&self) -> Result<(), Error> {
        for (low_name, high_name) in ORDERED {
            let (low, high) = (self.get(low_name)?, self.get(high_name)?);
            if low.value.amount() > high.value.amount() {
                let problem = format!(
                    "must be at most {high_name} = {} ({})",
                    high.value, high.source
                );
                return Err(self.refuse(low_name, problem));
            }
        }
        Ok(())
    }

    fn check_replay_window(&self) -> Result<(), Error> {
        let replay = &self.get("mailbox.t_replay")?.value;
        let visibility = self.get("mailbox.default_visibility")?;
        // A repeated send must be recognised until its message could have been delivered twice.
        if replay.amount() < visibility.value.amount().map(|millis| 2 * millis) {
            let problem = format!(
                "must be at least twice mailbox.default_visibility = {} ({})",
                visibility.value, visibility.source
            );
            return Err(self.refuse("mailbox.t_replay", problem));
        }
        Ok(())
    }

    /// Refuses to serve without credentials where others could reach the port: they would be admins.
    fn check_insecure_dev(&self) -> Result<(), Error> {
        if !self.is("allow_insecure_dev", &Value::Switch(true))? {
            return Ok(());
        }
        let bind = self.get("bind")?;
        if matches!(&bind.value, Value::Address(address) if !address.ip().is_loopback()) {
            let problem = format!(
                "needs a loopback address, but bind = {} ({})",
                bind.value, bind.source
            );
            return Err(self.refuse("allow_insecure_dev", problem));
        }
        let api_key = self.get("api_key")?;
        if matches!(api_key.value, Value::Secret(Some(_))) {
            let problem = format!(
                "contradicts api_key ({}); set only one of them",
                api_key.source
            );
            return Err(self.refuse("allow_insecure_dev", problem));
        }
        Ok(())
    }

    /// Refuses what this build cannot do. It must not be silently missing: a server that was meant to
    /// check macaroons would let everybody in.
    fn check_features_of_this_build(&self) -> Result<(), Error> {
        let missing = [
            (
                "pq.mode",
                Value::Word("off"),
                "cannot be had: this build has no post-quantum peers",
            ),
            (
                "auth.macaroon_path",
                Value::Unset,
                "cannot be had: this build does not verify macaroons",
            ),
        ];
        for (name, harmless, problem) in missing {
            if !self.is(name, &harmless)? {
                return Err(self.refuse(name, problem));
            }
        }
        Ok(())
    }
}
