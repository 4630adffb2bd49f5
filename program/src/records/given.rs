//! An identifier as somebody types it: whole, or its end as a list on a terminal shows it.

use std::fmt::Display;
use std::str::FromStr;

use super::Noun;
use crate::exit::{Exit, Failure};
use crate::look::SHORT_ID_CHARS;

/// How many of the newest records the end of an identifier is looked for among; a list of theirs shows no more.
pub const MAX_SEARCHED: u32 = 100;

/// An identifier on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenId<I> {
    /// All of it.
    Whole(I),
    /// Its last characters, at least four.
    End(String),
}

/// The last characters of an identifier, in a text that is written as they are: `…a4f7` or `a4f7`.
pub fn end_of_id(text: &str) -> Option<&str> {
    let end = text.strip_prefix('…').or_else(|| text.strip_prefix("...")).unwrap_or(text);
    let is_end = (SHORT_ID_CHARS..32).contains(&end.len())
        && end.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_end.then_some(end)
}

impl<I: FromStr> FromStr for GivenId<I> {
    type Err = I::Err;

    fn from_str(text: &str) -> Result<Self, I::Err> {
        match text.parse() {
            Ok(id) => Ok(Self::Whole(id)),
            Err(error) => end_of_id(text).map(|end| Self::End(end.to_owned())).ok_or(error),
        }
    }
}

impl<I: Display> GivenId<I> {
    /// The whole identifier; an end is looked for among the newest records.
    ///
    /// # Errors
    /// Those of the search; none of them ends like this, or several do.
    pub async fn among<L>(self, noun: &Noun, newest: impl AsyncFnOnce() -> Result<L, Failure>) -> Result<I, Failure>
    where
        L: IntoIterator<Item = I>,
    {
        let end = match self {
            Self::Whole(id) => return Ok(id),
            Self::End(end) => end,
        };
        let Noun { singular, plural, list } = noun;
        let mut matching = newest().await?.into_iter().filter(|id| id.to_string().ends_with(&end));
        match (matching.next(), matching.next()) {
            (Some(id), None) => Ok(id),
            (Some(one), Some(other)) => Err(Failure::new(
                Exit::Failed,
                format!("several {plural} end in {end}, such as {one} and {other}; give the whole identifier"),
            )),
            (None, _) => Err(Failure::new(
                Exit::Failed,
                format!(
                    "none of the newest {plural} ends in {end}; give the whole identifier of the {singular}, see: {list} --json"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::RunId;

    use super::*;

    const RUNS: Noun = Noun { singular: "run", plural: "runs", list: "deskgate run list" };

    fn given(text: &str) -> Option<GivenId<RunId>> {
        text.parse().ok()
    }

    #[test]
    fn an_identifier_is_given_whole_or_by_its_end() {
        let whole = "run_0192a7c41f3b7d2e8a90b1c2d3e4a4f7";
        assert_eq!(given(whole), whole.parse().ok().map(GivenId::Whole));
        for end in ["…a4f7", "...a4f7", "a4f7"] {
            assert_eq!(given(end), Some(GivenId::End("a4f7".to_owned())));
        }
        for wrong in ["", "a4f", "…", "A4F7", "run_", "shop", "app_0192a7c41f3b7d2e8a90b1c2d3e4a4f7", &"a".repeat(32)]
        {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn an_end_that_none_or_several_have_is_refused_with_the_next_step() {
        let ids = ["run_0192a7c41f3b7d2e8a90b1c2d3e4a4f7", "run_0192a7c41f3b7d2e8a90b1c2d3e5a4f7"];
        let all = ids.map(|id| id.parse::<RunId>().expect("an identifier"));
        let find = async |end: &str| given(end).expect("an end").among(&RUNS, async || Ok(all)).await;
        assert_eq!(find("4a4f7").await.expect("one").to_string(), ids[0]);
        assert!(find("a4f7").await.expect_err("two").message.starts_with("several runs end in a4f7, such as run_"));
        assert!(find("ffff").await.expect_err("none").message.ends_with("see: deskgate run list --json"));
    }
}
