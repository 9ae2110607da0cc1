//! Shell commands, restricted to texts in which no shell finds more than one command.

/// Returns true if the text is one command whose first word is in `allowed`. Every character that has a
/// meaning to some shell is refused, quotes included: then it does not matter how shells read them.
pub(crate) fn allowed(allowed: &[String], text: &str) -> bool {
    let plain = |c: char| !c.is_control() && !"|&;$`<>(){}[]*?!#~\"'\\".contains(c);
    let first = text.split([' ', '\t']).find(|word| !word.is_empty());
    text.chars().all(plain)
        && first.is_some_and(|word| {
            // `NAME=value` before a command sets a variable, and `..` could leave the allowed folder.
            !word.contains("..") && !word.contains('=') && allowed.iter().any(|name| name == word)
        })
}
