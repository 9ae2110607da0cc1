//! Classes of topics: names that operators give to patterns of topics. Metrics count by class, since topics can be
//! any number, and a right can be narrowed to one.

/// The characters that divide the name of a topic into segments.
const SEPARATORS: [char; 2] = [':', '/'];
const STAR: char = '*';

/// A pattern of topics.
///
/// A `*` stands for any characters within a segment, perhaps none; segments are divided by `:` and `/`. A `*` at the end
/// stands for all the rest, whatever it holds, perhaps nothing. Every other character stands for itself, and the
/// pattern must fit the whole name:
///
/// | pattern | fits | does not fit |
/// |---|---|---|
/// | `user:*:inbox` | `user:42:inbox` | `user:42:old:inbox`, `user:42:inbox2` |
/// | `user:*` | `user:42`, `user:42:inbox`, `user:` | `users:42` |
/// | `jobs` | `jobs` | `jobs2` |
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicPattern(String);

impl TopicPattern {
    /// Makes a pattern of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if a topic of this name fits.
    pub fn fits(&self, topic: &str) -> bool {
        match self.0.strip_suffix(STAR) {
            Some(beginning) => rest_after(beginning, topic, End::Open).is_some(),
            None => rest_after(&self.0, topic, End::Closed).is_some(),
        }
    }

    /// Returns how many characters stand for themselves. A pattern with more of them says more about a topic.
    fn weight(&self) -> usize {
        self.0.chars().filter(|char| *char != STAR).count()
    }
}

/// What a topic may have after what the pattern names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Closed,
}

/// Returns what is left of a topic after a pattern, if it fits.
///
/// A star is given as few characters as possible. That is enough: a later star of the same segment can take what
/// follows, and none can reach beyond its segment.
fn rest_after<'a>(pattern: &str, topic: &'a str, end: End) -> Option<&'a str> {
    let mut pieces = pattern.split(STAR).peekable();
    let mut rest = topic.strip_prefix(pieces.next()?)?;
    while let Some(piece) = pieces.next() {
        let is_last = pieces.peek().is_none();
        rest = match (end, is_last) {
            (End::Closed, true) => {
                let skipped = rest.strip_suffix(piece)?;
                return (!skipped.contains(SEPARATORS)).then_some("");
            }
            (End::Open, _) | (End::Closed, false) => {
                let (skipped, after) = rest.split_once(piece)?;
                if skipped.contains(SEPARATORS) {
                    return None;
                }
                after
            }
        };
    }
    (end == End::Open || rest.is_empty()).then_some(rest)
}

/// The classes of topics. Each has a name and patterns; a topic is in every class of which a pattern fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicClasses {
    /// The patterns with the names of their classes; those that say most about a topic come first.
    patterns: Vec<(TopicPattern, String)>,
}

impl TopicClasses {
    /// Makes classes of patterns and the names of their classes. The order does not matter.
    pub fn new(patterns: impl IntoIterator<Item = (TopicPattern, String)>) -> Self {
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        patterns.sort_by(|(left, left_class), (right, right_class)| {
            let heavier = right.weight().cmp(&left.weight());
            heavier.then_with(|| (left, left_class).cmp(&(right, right_class)))
        });
        Self { patterns }
    }

    /// Returns the class that stands for a topic where there can be only one: that of the pattern with the most
    /// characters that stand for themselves.
    pub fn first(&self, topic: &str) -> Option<&str> {
        self.all(topic).next()
    }

    /// Returns every class that a topic is in. A class with several patterns that fit comes several times.
    pub fn all(&self, topic: &str) -> impl Iterator<Item = &str> {
        let fitting = self.patterns.iter();
        let fitting = fitting.filter(move |(pattern, _)| pattern.fits(topic));
        fitting.map(|(_, class)| class.as_str())
    }

    /// Returns the names of all classes. A class with several patterns comes several times.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|(_, class)| class.as_str())
    }
}
