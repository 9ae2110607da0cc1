//! The names of tools. Each has two: `mailbox.send`, which is accepted for ever, and `mailbox_send`,
//! because several hosts and model providers allow no dot in a name.

/// The first words of the names of tools.
pub(crate) const FAMILIES: [&str; 4] = ["asyncgate_", "mailbox_", "host_", "limits_"];

/// The form in which lists show the names of tools. Calls may use either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolNames {
    /// `mailbox_send`.
    #[default]
    Underscore,
    /// `mailbox.send`.
    Dotted,
}

impl ToolNames {
    /// Returns the name under which a tool is listed.
    pub(crate) fn listed(self, tool: &str) -> String {
        match self {
            Self::Underscore => tool.replace('.', "_"),
            Self::Dotted => tool.to_owned(),
        }
    }

    /// Returns a text with the names in it as they are listed. The text has them with an underscore.
    pub(crate) fn within(self, text: String) -> String {
        match self {
            Self::Underscore => text,
            Self::Dotted => FAMILIES.iter().fold(text, |text, family| {
                text.replace(family, &family.replace('_', "."))
            }),
        }
    }
}

/// Returns true if two names can only mean the same tool.
pub(crate) fn agree(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'.' { b'_' } else { byte };
    one.bytes().map(plain).eq(other.bytes().map(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_names_of_a_tool_agree_and_others_do_not() {
        for (one, other, same) in [
            ("mailbox.send", "mailbox_send", true),
            ("mailbox_send", "mailbox.send", true),
            ("mailbox.send", "mailbox.send", true),
            ("mailbox.send", "mailbox-send", false),
            ("mailbox.send", "mailbox.send_", false),
            ("mailbox.send", "Mailbox.send", false),
        ] {
            assert_eq!(agree(one, other), same, "{one} {other}");
        }
        assert_eq!(ToolNames::Underscore.listed("a.b_c"), "a_b_c");
        assert_eq!(ToolNames::Dotted.listed("a.b_c"), "a.b_c");
    }

    #[test]
    fn every_tool_belongs_to_a_family() {
        for entry in asyncgate_engine::registry() {
            let Some(tool) = entry.spec.tool else {
                continue;
            };
            let underscored = ToolNames::Underscore.listed(tool);
            let known = FAMILIES
                .iter()
                .any(|family| underscored.starts_with(family));
            assert!(known, "{tool}");
            assert_eq!(ToolNames::Dotted.within(underscored), tool);
        }
    }
}
