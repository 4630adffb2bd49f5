//! What model calls cost: the profiles' tables, and the owner's own in `prices.toml`.

use std::path::Path;

use deskgate_definition::MicroUsd;
use serde::Deserialize;

use super::TokenUsage;

/// The size limit of the owner's table, in bytes.
const MAX_TABLE_BYTES: u64 = 256 * 1024;

/// Prices in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of what the model reads.
    pub input: f64,
    /// Of what it reads from the cache; absent: as any other.
    pub cached_input: Option<f64>,
    /// Of what is written to the cache; absent: as any other.
    pub cache_write: Option<f64>,
    /// Of what it writes.
    pub output: f64,
    /// What a long request costs; absent: as any other.
    pub long: Option<LongRequest>,
}

/// What a request costs that reads much.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongRequest {
    /// It reads more tokens than this.
    pub above_tokens: u64,
    /// All it reads costs so many times as much ...
    pub input_times: f64,
    /// ... and all it writes so many times.
    pub output_times: f64,
}

impl Prices {
    /// The prices of a request that reads so many tokens.
    pub fn of_request(&self, input_tokens: u64) -> Self {
        match self.long {
            Some(long) if input_tokens > long.above_tokens => Self {
                input: self.input * long.input_times,
                cached_input: self.cached_input.map(|price| price * long.input_times),
                cache_write: self.cache_write.map(|price| price * long.input_times),
                output: self.output * long.output_times,
                long: None,
            },
            _ => *self,
        }
    }

    /// What these tokens cost.
    pub fn cost(&self, tokens: &TokenUsage) -> MicroUsd {
        let TokenUsage { input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, .. } = *tokens;
        let plain = input_tokens.saturating_sub(cached_input_tokens).saturating_sub(cache_write_tokens);
        let Self { input, cached_input, cache_write, output, .. } = self.of_request(input_tokens);
        let millionths = plain as f64 * input
            + cached_input_tokens as f64 * cached_input.unwrap_or(input)
            + cache_write_tokens as f64 * cache_write.unwrap_or(input)
            + output_tokens as f64 * output;
        MicroUsd::of_dollars(millionths / 1e6)
    }

    fn are_amounts(&self) -> bool {
        let times = self.long.map(|long| [long.input_times, long.output_times]).into_iter().flatten().map(Some);
        let all = [Some(self.input), self.cached_input, self.cache_write, Some(self.output)].into_iter().chain(times);
        all.flatten().all(|price| (0.0..=1e6).contains(&price))
    }
}

/// The owner's table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    #[serde(default)]
    prices: Vec<OwnPrice>,
}

/// The owner's price of a model. Members are not flattened, so that a wrong one is found.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnPrice {
    /// The provider's name in services; absent: any.
    provider: Option<String>,
    /// The model's name, or with `*` how it begins.
    model: String,
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    output: f64,
    long: Option<LongRequest>,
}

impl OwnPrice {
    fn is_of(&self, provider: &str, model: &str) -> bool {
        let named = match self.model.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => model == self.model,
        };
        named && self.provider.as_deref().is_none_or(|name| name == provider)
    }

    fn prices(&self) -> Prices {
        let Self { input, cached_input, cache_write, output, long, .. } = *self;
        Prices { input, cached_input, cache_write, output, long }
    }
}

/// The owner's price of a model: the first in the table that names it. `None`: there is none, or no table.
///
/// # Errors
/// The table cannot be read, or what is wrong in it.
pub(super) fn own_price(table: &Path, provider: &str, model: &str) -> Result<Option<Prices>, String> {
    let text = match std::fs::metadata(table).and_then(|found| match found.len() > MAX_TABLE_BYTES {
        true => Err(std::io::Error::other("it is larger than 256 KiB")),
        false => std::fs::read_to_string(table),
    }) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let PriceTable { prices } = toml::from_str(&text).map_err(|error| error.to_string())?;
    if let Some(wrong) = prices.iter().find(|own| !own.prices().are_amounts()) {
        return Err(format!("the prices of {} must be US dollars for a million tokens", wrong.model));
    }
    Ok(prices.iter().find(|own| own.is_of(provider, model)).map(OwnPrice::prices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = Prices { input: 4.0, cached_input: Some(0.4), cache_write: Some(5.0), output: 20.0, long: None };
        let tokens = TokenUsage {
            input_tokens: 1_000_000,
            cached_input_tokens: 500_000,
            cache_write_tokens: 100_000,
            output_tokens: 10_000,
            ..TokenUsage::default()
        };
        assert_eq!(prices.cost(&tokens), MicroUsd::of_dollars(1.6 + 0.2 + 0.5 + 0.2));
        let plain = Prices { cached_input: None, cache_write: None, ..prices };
        assert_eq!(plain.cost(&tokens), MicroUsd::of_dollars(4.2));
        // A vendor that counts more from its cache than it read costs no less than nothing.
        let odd = TokenUsage { input_tokens: 1, cached_input_tokens: 10, ..TokenUsage::default() };
        assert_eq!(prices.cost(&odd), MicroUsd(4));
    }

    #[test]
    fn a_request_that_reads_much_costs_more_as_a_whole() {
        let long = LongRequest { above_tokens: 1_000, input_times: 2.0, output_times: 1.5 };
        let prices = Prices { input: 4.0, cached_input: Some(1.0), cache_write: None, output: 20.0, long: Some(long) };
        let reading = |input_tokens| TokenUsage {
            input_tokens,
            cached_input_tokens: 500,
            output_tokens: 10,
            ..TokenUsage::default()
        };
        assert_eq!(prices.cost(&reading(1_000)), MicroUsd(500 * 4 + 500 + 200));
        assert_eq!(prices.cost(&reading(1_001)), MicroUsd(501 * 8 + 1_000 + 300));
    }

    #[test]
    fn the_owners_table_goes_first_and_its_mistakes_are_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = folder.path().join("prices.toml");
        assert_eq!(own_price(&table, "work", "m-1"), Ok(None));
        let write = |text: &str| std::fs::write(&table, text).expect("writable");
        write(
            "[[prices]]\nprovider = \"work\"\nmodel = \"m-*\"\ninput = 1\noutput = 2\n\
             [[prices]]\nmodel = \"m-1\"\ninput = 3\noutput = 4.5\n",
        );
        let input = |provider: &str, model: &str| {
            own_price(&table, provider, model).expect("a table").map(|prices| prices.input)
        };
        assert_eq!((input("work", "m-1"), input("other", "m-1"), input("other", "m-2")), (Some(1.0), Some(3.0), None));
        for wrong in [
            "[[prices]]\nmodel = \"m\"\ninput = -1\noutput = 2\n",
            "[[prices]]\nmodel = \"m\"\ninput = 1\n",
            "[[prices]]\nmodel = \"m\"\ninput = 1\noutput = 2\nlong = { above_tokens = 5, input_times = 2, output_times = -1 }\n",
            "[[prices]]\nmodel = \"m\"\ninput = 1\noutput = 2\nlong = { above_tokens = 5 }\n",
            "[[prices]]\nmodel = \"m\"\ninput = 1\noutput = 2\ncurrency = \"EUR\"\n",
            "prices = 3",
        ] {
            write(wrong);
            assert!(own_price(&table, "work", "m").is_err(), "{wrong}");
        }
    }
}
