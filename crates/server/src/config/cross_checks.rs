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
        self.check_hash_cost()?;
        warnings.extend(self.check_key_exchange()?);
        warnings.extend(self.check_client_certificates()?);
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

    /// Refuses a cost that Argon2id cannot have: no key could be made.
    fn check_hash_cost(&self) -> Result<(), Error> {
        let lanes = self.get("security.api_keys.hash_parallelism")?;
        let memory = self.get("security.api_keys.hash_memory_cost")?;
        if let (Value::Integer(lanes), Value::Integer(kib)) = (&lanes.value, &memory.value)
            && *kib < 8 * lanes
        {
            let problem = format!(
                "is less than 8 KiB for each of security.api_keys.hash_parallelism = {lanes}"
            );
            return Err(self.refuse("security.api_keys.hash_memory_cost", problem));
        }
        Ok(())
    }

    /// Refuses clear text on the network where a key exchange is asked for that quantum computers cannot break: what
    /// is recorded there needs no computer at all.
    fn check_key_exchange(&self) -> Result<Option<String>, Error> {
        if self.is("pq.mode", &Value::Word("off"))? {
            return Ok(None);
        }
        let only = self.is("pq.mode", &Value::Word("only"))?;
        let secure = self.is("tls.enabled", &Value::Switch(true))?;
        for (name, in_clear) in [("bind", !secure), ("metrics_addr", only)] {
            let entry = self.get(name)?;
            if in_clear
                && matches!(&entry.value, Value::Address(address) if !address.ip().is_loopback())
            {
                let problem = format!(
                    "allows no clear text beyond this machine, but {name} = {} ({}) speaks no TLS",
                    entry.value, entry.source
                );
                return Err(self.refuse("pq.mode", problem));
            }
        }
        let warning = "pq.mode changes nothing without tls.enabled";
        Ok((!secure).then(|| warning.to_owned()))
    }

    /// Refuses to ask for certificates of clients without TLS: nobody would be asked. Warns of roots for certificates
    /// that nobody is asked for.
    fn check_client_certificates(&self) -> Result<Option<String>, Error> {
        let asked = !self.is("tls.client_auth", &Value::Word("off"))?;
        if asked && !self.is("tls.enabled", &Value::Switch(true))? {
            return Err(self.refuse("tls.client_auth", "needs tls.enabled"));
        }
        let named = !self.is("tls.client_ca", &Value::Unset)?;
        let warning = "tls.client_ca changes nothing while tls.client_auth is off";
        Ok((named && !asked).then(|| warning.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Effective;
    use super::super::tests::{inputs, refusal};

    #[test]
    fn hashes_have_enough_memory_for_their_lanes() {
        let cost = |memory| {
            [
                ("security.api_keys.hash_memory_cost", memory),
                ("security.api_keys.hash_parallelism", "2"),
            ]
        };
        let message = refusal(&inputs(&cost("15"), &[], None));
        assert!(message.contains("hash_parallelism = 2"), "{message}");
        assert!(Effective::read(&inputs(&cost("16"), &[], None)).is_ok());
    }

    #[test]
    fn tls_is_refused_where_it_would_protect_less_than_it_says() {
        const TLS: [(&str, &str); 3] = [
            ("tls.enabled", "true"),
            ("tls.cert_path", "c"),
            ("tls.key_path", "k"),
        ];
        let beyond = ("bind", "0.0.0.0:0");
        let (hybrid, only) = (("pq.mode", "hybrid"), ("pq.mode", "only"));
        let scraped = ("metrics_addr", "0.0.0.0:9600");
        let (required, roots) = (("tls.client_auth", "required"), ("tls.client_ca", "r"));
        let with_tls = |more: &[(&'static str, &'static str)]| [&TLS[..], more].concat();
        for (settings, told) in [
            (vec![hybrid, beyond], "pq.mode = hybrid"),
            (vec![only, beyond], "bind = 0.0.0.0:0"),
            (with_tls(&[only, scraped]), "metrics_addr = 0.0.0.0:9600"),
            (vec![required, roots], "needs tls.enabled"),
            (with_tls(&[required]), "needs tls.client_ca"),
            (with_tls(&[("tls.client_auth", "on")]), "tls.client_auth"),
        ] {
            let message = refusal(&inputs(&settings, &[], None));
            assert!(message.contains(told), "{message}");
        }
        for (settings, warned) in [
            (vec![hybrid], Some("pq.mode changes nothing")),
            (vec![only], Some("pq.mode changes nothing")),
            (with_tls(&[hybrid, beyond, scraped]), None),
            (with_tls(&[only, beyond]), None),
            (with_tls(&[required, roots]), None),
            (with_tls(&[roots]), Some("tls.client_ca changes nothing")),
        ] {
            let effective = Effective::read(&inputs(&settings, &[], None)).unwrap();
            let warnings = effective.warnings;
            assert_eq!(
                warnings.len(),
                usize::from(warned.is_some()),
                "{warnings:?}"
            );
            assert!(warned.is_none_or(|warned| warnings[0].contains(warned)));
        }
    }
}
