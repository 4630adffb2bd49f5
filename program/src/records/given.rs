//! An identifier as somebody types it: whole, or its end as a list on a terminal shows it.

use std::fmt::Display;
use std::str::FromStr;

use super::Noun;
use crate::exit::{Exit, Failure};
use crate::look::SHORT_ID_CHARS;

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
    /// The whole identifier; `by_end` looks for those that end as it was given.
    ///
    /// # Errors
    /// Those of the search; no identifier ends like this, or several do.
    pub async fn resolve<L>(
        self,
        noun: &Noun,
        by_end: impl AsyncFnOnce(&str) -> Result<L, Failure>,
    ) -> Result<I, Failure>
    where
        L: IntoIterator<Item = I>,
    {
        let end = match self {
            Self::Whole(id) => return Ok(id),
            Self::End(end) => end,
        };
        let found = by_end(&end).await?;
        only_one(noun, &end, found)
    }
}

/// The one record that ends like this.
///
/// # Errors
/// None or several do. The message names them, and the command that lists all.
pub fn only_one<I: Display>(noun: &Noun, end: &str, found: impl IntoIterator<Item = I>) -> Result<I, Failure> {
    let Noun { singular, plural, list } = noun;
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(found).map(|id| format!("\n  {id}")).collect::<String>();
            Err(Failure::new(Exit::Failed, format!("several {plural} end in {end}; give more of it, or all:{all}")))
        }
        (None, _) => {
            Err(Failure::new(Exit::Failed, format!("there is no {singular} that ends in {end}; see: {list} --json")))
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
        let ending = |end: &str| all.into_iter().filter(|id| id.to_string().ends_with(end)).collect::<Vec<_>>();
        let find =
            async |end: &str| given(end).expect("an end").resolve(&RUNS, async |end: &str| Ok(ending(end))).await;
        assert_eq!(find("4a4f7").await.expect("one").to_string(), ids[0]);
        let two = find("a4f7").await.expect_err("two").message;
        assert!(two.starts_with("several runs end in a4f7; ") && ids.iter().all(|id| two.contains(id)), "{two}");
        assert!(find("ffff").await.expect_err("none").message.ends_with("see: deskgate run list --json"));
    }
}
