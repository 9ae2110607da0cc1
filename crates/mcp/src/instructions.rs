//! The guide that a model gets when it connects: about the tools that it is shown, and no others.

use asyncgate_api::Toolset;

use crate::{names::ToolNames, toolsets::Toolsets};

const BEGIN: &str = include_str!("instructions/begin.md");
const AGENT: &str = include_str!("instructions/agent.md");
const WORKER: &str = include_str!("instructions/worker.md");
const MAILBOX: &str = include_str!("instructions/mailbox.md");
const ADMISSION: &str = include_str!("instructions/admission.md");
const END: &str = include_str!("instructions/end.md");

/// Returns the guide to the tools of these toolsets.
pub(crate) fn guide(shown: Toolsets, names: ToolNames) -> String {
    let about = Toolset::ALL.into_iter().filter(|set| shown.contains(*set));
    let parts = [BEGIN].into_iter().chain(about.map(part)).chain([END]);
    let parts: Vec<&str> = parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    names.within(parts.join("\n\n"))
}

const fn part(toolset: Toolset) -> &'static str {
    match toolset {
        Toolset::Agent => AGENT,
        Toolset::Worker => WORKER,
        Toolset::Mailbox => MAILBOX,
        Toolset::Admission => ADMISSION,
        Toolset::Ops => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::FAMILIES;

    #[test]
    fn the_guide_names_only_tools_that_are_shown() {
        let tools = crate::tool_list();
        let names: Vec<_> = tools["tools"].as_array().unwrap().iter().collect();
        let exists = |tool: &str| names.iter().any(|one| one["name"] == tool);
        let mut seen = 0;
        for set in Toolset::ALL {
            let guide = guide(Toolsets::from(set), ToolNames::Underscore);
            let words = guide.split(|c: char| c.is_whitespace() || ",:;`".contains(c));
            let is_tool = |word: &&str| FAMILIES.iter().any(|family| word.starts_with(family));
            let named = words.map(|word| word.trim_end_matches('.')).filter(is_tool);
            for tool in named.filter(|word| *word != "asyncgate_") {
                assert!(exists(tool), "{tool}");
                let entry = asyncgate_engine::registry().iter().find(|entry| {
                    entry
                        .spec
                        .tool
                        .is_some_and(|own| own.replace('.', "_") == tool)
                });
                assert_eq!(entry.unwrap().spec.toolset(), set, "{tool}");
                seen += 1;
            }
        }
        assert!(seen >= 12, "{seen}");
    }

    #[test]
    fn each_part_is_there_for_its_toolset_only() {
        let agent = guide(Toolsets::from(Toolset::Agent), ToolNames::Underscore);
        assert!(agent.contains("asyncgate_create_task") && !agent.contains("lease_next"));
        assert!(agent.starts_with("AsyncGate") && agent.contains("isError"));
        let dotted = guide(Toolsets::ALL, ToolNames::Dotted);
        for (listed, other) in [
            ("asyncgate.lease_next", "asyncgate_"),
            ("limits.check", "limits_"),
        ] {
            assert!(
                dotted.contains(listed) && !dotted.contains(other),
                "{dotted}"
            );
        }
    }
}
