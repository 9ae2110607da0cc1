//! Lists: how much of them is printed, and what is said when there is more.

use anyhow::bail;
use asyncgate_client::Error;
use clap::Args;
use serde::Serialize;

use crate::{output, remote::Common};

/// The largest page that a server gives.
const MAX_PAGE: usize = 200;

/// The arguments of every list.
#[derive(Debug, Clone, Args)]
pub struct Paging {
    /// The most to print.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one)]
    limit: usize,
    /// Print everything.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where a shorter list ended; it says where.
    #[arg(long, value_name = "CURSOR", alias = "since")]
    cursor: Option<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "must be a number, at least 1".to_owned())
}

/// The argument of lists that scripts read.
#[derive(Debug, Clone, Copy, Args)]
pub struct Quiet {
    /// Print only the ids, whole and one a line.
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
}

/// A list, or its beginning.
#[derive(Debug)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// The cursor behind the last item, if there may be more.
    next: Option<String>,
}

impl Paging {
    /// Gathers a list from its pages. `fetch` is given a cursor and the size of a page, and returns the
    /// page with the cursor of the next.
    pub async fn gather<T>(
        &self,
        mut fetch: impl AsyncFnMut(Option<String>, u32) -> Result<(Vec<T>, Option<String>), Error>,
    ) -> anyhow::Result<Listed<T>> {
        let limit = if self.all { usize::MAX } else { self.limit };
        let mut items = Vec::new();
        let mut cursor = self.cursor.clone();
        loop {
            let size = (limit - items.len()).min(MAX_PAGE);
            let (page, next) = fetch(cursor.clone(), size as u32).await?;
            items.extend(page);
            // A filter that matches rarely can leave a page empty although there is a next one.
            if next.is_none() || items.len() >= limit {
                return Ok(Listed { items, next });
            }
            if next == cursor {
                bail!("the server names the same page twice");
            }
            cursor = next;
        }
    }
}

impl<T: Serialize> Listed<T> {
    /// Prints the list as JSON or as text, and says if it is not the whole list.
    pub fn show(&self, common: &Common, text: impl FnOnce(&[T]) -> String) -> anyhow::Result<()> {
        common.show(&self.items, || text(&self.items))?;
        self.say_if_more(common);
        Ok(())
    }

    /// Prints only what `id` returns of each item if `quiet`, else as [`Listed::show`] does.
    pub fn show_or_ids(
        &self,
        common: &Common,
        Quiet { quiet }: Quiet,
        id: impl Fn(&T) -> String,
        text: impl FnOnce(&[T]) -> String,
    ) -> anyhow::Result<()> {
        if !quiet {
            return self.show(common, text);
        }
        if !self.items.is_empty() {
            let ids: Vec<String> = self.items.iter().map(id).collect();
            output::say(&ids.join("\n"))?;
        }
        self.say_if_more(common);
        Ok(())
    }

    /// Says on stderr that there is more: what reads stdout wants only the list.
    fn say_if_more(&self, common: &Common) {
        let Some(next) = &self.next else { return };
        if common.json {
            output::mutter(&serde_json::json!({ "next_cursor": next }).to_string());
        } else {
            let shown = self.items.len();
            output::complain(&format!(
                "{shown} shown, there may be more: --limit N, --all, or go on with --cursor {next}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn first(limit: usize) -> Paging {
        Paging {
            limit,
            all: false,
            cursor: None,
        }
    }

    /// A list of the numbers below `end`, in pages that are as large as they are asked to be.
    async fn numbers(paging: &Paging, end: usize) -> (Listed<usize>, usize) {
        let mut calls = 0;
        let gathered = paging.gather(async |cursor, size| {
            calls += 1;
            let from = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let to = end.min(from + size as usize);
            let next = (to < end).then(|| to.to_string());
            Ok(((from..to).collect(), next))
        });
        (gathered.await.unwrap(), calls)
    }

    #[tokio::test]
    async fn a_list_ends_at_its_limit_and_says_where_to_go_on() {
        let (listed, calls) = numbers(&first(3), 10).await;
        assert_eq!((listed.items.len(), listed.next.as_deref()), (3, Some("3")));
        assert_eq!(calls, 1);
        let (listed, _) = numbers(&first(10), 10).await;
        assert_eq!((listed.items.len(), listed.next), (10, None));
        let (listed, calls) = numbers(&first(450), 1_000).await;
        assert_eq!((listed.items.len(), calls), (450, 3));
        let rest = Paging {
            all: true,
            cursor: listed.next,
            ..first(50)
        };
        let (listed, calls) = numbers(&rest, 1_000).await;
        assert_eq!((listed.items.len(), calls), (550, 3));
        assert_eq!(listed.items[0], 450);
    }

    #[tokio::test]
    async fn an_empty_page_is_not_the_end_and_a_repeated_one_is_an_error() {
        let mut pages =
            vec![(vec![], Some("a")), (vec![1], Some("b")), (vec![2], None)].into_iter();
        let nine = first(9);
        let listed = nine.gather(async |_, _| {
            let (items, next) = pages.next().unwrap();
            Ok((items, next.map(str::to_owned)))
        });
        assert_eq!(listed.await.unwrap().items, [1, 2]);
        let stuck = nine.gather(async |_, _| Ok((vec![1], Some("a".to_owned()))));
        assert!(stuck.await.is_err());
    }
}
