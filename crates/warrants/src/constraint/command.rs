//! Commands of a shell, where no shell can find more than one command in the text.

/// Whether the text is one command whose first word is among `allowed`. Anything that some shell takes for
/// more than a letter is refused, quotes included: then it does not matter how they are read.
pub(crate) fn allowed(allowed: &[String], text: &str) -> bool {
    let plain = |c: char| !c.is_control() && !"|&;$`<>(){}[]*?!#~\"'\\".contains(c);
    let first = text.split([' ', '\t']).find(|word| !word.is_empty());
    text.chars().all(plain)
        && first.is_some_and(|word| {
            !word.contains("..") && !word.contains('=') && allowed.iter().any(|name| name == word)
        })
}
