//! Whether the values in force fit together.

use asyncgate_admission::{Tables, Wrong};
use asyncgate_core::admission::{Limits, Tier};

use super::Error;
use super::domains::keys;
use super::ingress::ingresses;
use super::key::Value;
use super::resolve::{Effective, Entry};
use super::source::Source;
use super::table::{KEPT_FOR_LATER, ORDERED, find};

impl Effective {
    /// Fills in what some settings imply for others, warns, and refuses contradictions.
    pub(super) fn fit_together(&mut self) -> Result<(), Error> {
        self.forget_everything()?;
        self.warn_of_idle_keys();
        self.check_order()?;
        self.check_replay_window()?;
        self.check_insecure_dev()?;
        self.check_limits()?;
        self.check_tls()?;
        self.check_ingress()?;
        self.check_domains()?;
        self.check_what_this_build_has_not()
    }

    /// A micronode and amnesia leave nothing on disk, so they decide where state lives.
    fn forget_everything(&mut self) -> Result<(), Error> {
        let micronode = self.is("mailbox.profile", &Value::Word("micronode"));
        let amnesia = self.is("amnesia.enabled", &Value::Switch(true));
        let (name, by) = match (micronode, amnesia) {
            (true, _) => ("mailbox.profile", "mailbox.profile = micronode"),
            (false, true) => ("amnesia.enabled", "amnesia.enabled = true"),
            (false, false) => return Ok(()),
        };
        let Some(cause) = self.get(name).cloned() else {
            return Ok(());
        };
        for (kept, value) in [("store", Some(&Value::Word("sqlite"))), ("data_dir", None)] {
            let Some(entry) = self.get(kept) else {
                continue;
            };
            if entry.source != Source::Default && value.is_none_or(|value| entry.value == *value) {
                let problem = format!(
                    "keeps nothing on disk, but {kept} = {} ({}) wants to",
                    entry.value, entry.source
                );
                return Err(refuse(name, &cause, problem));
            }
        }
        if !micronode {
            self.warnings.push(
                "amnesia.enabled=true with macronode profile; DLQ will be ephemeral per policy"
                    .to_owned(),
            );
        }
        self.imply("store", Value::Word("memory"), by);
        Ok(())
    }

    fn is(&self, name: &str, value: &Value) -> bool {
        self.get(name).is_some_and(|entry| entry.value == *value)
    }

    fn warn_of_idle_keys(&mut self) {
        let idle = self.iter().filter(|(key, entry)| {
            entry.source != Source::Default && KEPT_FOR_LATER.contains(&key.name)
        });
        let told: Vec<String> = idle
            .map(|(key, entry)| format!("{} ({}) changes nothing yet", key.name, entry.source))
            .collect();
        self.warnings.extend(told);
    }

    fn check_order(&self) -> Result<(), Error> {
        for (low_name, high_name) in ORDERED {
            let (Some(low), Some(high)) = (self.get(low_name), self.get(high_name)) else {
                continue;
            };
            if low.value.amount() > high.value.amount() {
                let limit = format!(
                    "must be at most {high_name} = {} ({})",
                    high.value, high.source
                );
                return Err(refuse(low_name, low, limit));
            }
        }
        Ok(())
    }

    /// A repetition must be recognised at least until its message could have come back twice.
    fn check_replay_window(&self) -> Result<(), Error> {
        let (Some(replay), Some(visibility)) = (
            self.get("mailbox.t_replay"),
            self.get("mailbox.default_visibility"),
        ) else {
            return Ok(());
        };
        if replay.value.amount() < visibility.value.amount().map(|millis| 2 * millis) {
            let problem = format!(
                "must be at least twice mailbox.default_visibility = {} ({})",
                visibility.value, visibility.source
            );
            return Err(refuse("mailbox.t_replay", replay, problem));
        }
        Ok(())
    }

    fn limits(&self) -> Result<Limits, Wrong> {
        let text = |name| match self.get(name).map(|entry| &entry.value) {
            Some(Value::Text(text)) => Ok(text.as_str()),
            _ => Ok(""),
        };
        Tables::read(text)?.limits()
    }

    /// Policies, tiers and what names policies must make sense, each and together.
    fn check_limits(&self) -> Result<(), Error> {
        match self.limits() {
            Ok(_) => Ok(()),
            Err(wrong) => match self.get(wrong.key) {
                Some(entry) => Err(refuse(wrong.key, entry, is_wrong(wrong.problem))),
                None => Ok(()),
            },
        }
    }

    /// Every ingress must make sense, and its policy exist.
    fn check_ingress(&self) -> Result<(), Error> {
        let Some(entry) = self.get("ingress") else {
            return Ok(());
        };
        let Value::Secret(Some(secret)) = &entry.value else {
            return Ok(());
        };
        let limits = self.limits().unwrap_or_default();
        match ingresses(secret.reveal(), &limits) {
            Ok(_) => Ok(()),
            Err(problem) => Err(refuse("ingress", entry, is_wrong(problem))),
        }
    }

    /// An evaluator needs keys, and a limit a policy that there is.
    fn check_domains(&self) -> Result<(), Error> {
        let evaluator = self.is("domains.evaluator", &Value::Word("none"));
        if let Some(entry) = self.get("domains.keys").filter(|_| !evaluator) {
            let mut text = "";
            if let Value::Secret(Some(secret)) = &entry.value {
                text = secret.reveal();
            }
            keys(text).map_err(|problem| refuse("domains.keys", entry, is_wrong(problem)))?;
        }
        if let Some(entry) = self.get("domains.client_policy")
            && let Value::Text(policy) = &entry.value
        {
            self.check_policy("domains.client_policy", entry, policy)?;
        }
        Ok(())
    }

    /// Policies that other settings name must exist.
    fn check_policy(&self, name: &str, entry: &Entry, policy: &str) -> Result<(), Error> {
        let known = self.limits().is_ok_and(|limits| {
            let found = limits.resolve(policy, Tier::default());
            found.is_ok()
        });
        match known {
            true => Ok(()),
            false => Err(refuse(name, entry, "names no policy".to_owned())),
        }
    }

    /// Without credentials, whoever reaches the port is the admin; so nobody else may reach it.
    fn check_insecure_dev(&self) -> Result<(), Error> {
        let (Some(dev), Some(bind), Some(api_key)) = (
            self.get("allow_insecure_dev"),
            self.get("bind"),
            self.get("api_key"),
        ) else {
            return Ok(());
        };
        if dev.value != Value::Switch(true) {
            return Ok(());
        }
        if matches!(&bind.value, Value::Address(address) if !address.ip().is_loopback()) {
            let problem = format!(
                "needs a loopback address, but bind = {} ({})",
                bind.value, bind.source
            );
            return Err(refuse("allow_insecure_dev", dev, problem));
        }
        if matches!(api_key.value, Value::Secret(Some(_))) {
            let problem = format!(
                "contradicts api_key ({}); set only one of them",
                api_key.source
            );
            return Err(refuse("allow_insecure_dev", dev, problem));
        }
        Ok(())
    }

    /// TLS needs a certificate and its key.
    fn check_tls(&self) -> Result<(), Error> {
        let enabled = self.get("tls.enabled");
        let Some(enabled) = enabled.filter(|entry| entry.value == Value::Switch(true)) else {
            return Ok(());
        };
        for name in ["tls.cert_path", "tls.key_path"] {
            if self
                .get(name)
                .is_some_and(|entry| entry.value == Value::Unset)
            {
                return Err(refuse("tls.enabled", enabled, format!("needs {name}")));
            }
        }
        Ok(())
    }

    /// What is asked for and cannot be had must not be silently missing: a server that was meant to
    /// check macaroons would let everybody in.
    fn check_what_this_build_has_not(&self) -> Result<(), Error> {
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
            if let Some(entry) = self.get(name).filter(|entry| entry.value != harmless) {
                return Err(refuse(name, entry, problem.to_owned()));
            }
        }
        Ok(())
    }
}

fn refuse(name: &str, entry: &Entry, problem: String) -> Error {
    Error::Value {
        key: find(name).map_or("", |key| key.name),
        shown: entry.value.to_string(),
        source_of: entry.source.clone(),
        problem,
    }
}

/// What is wrong within a table.
fn is_wrong(problem: impl std::fmt::Display) -> String {
    format!("is wrong: {problem}")
}
