//! Lists of tools that servers gave: the newest of each server, and those that services were pinned to. A digest says
//! that something has changed; the list says what.

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use rusqlite::params;

use super::{Error, Services};

/// A list as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it is pinned by.
    pub digest: Sha256Digest,
    /// The tools, as JSON.
    pub tools: String,
    /// When it was last given.
    pub seen_at: Timestamp,
}

impl Services {
    /// Keeps a list as the newest of its server, and forgets those that are neither the newest nor `pinned`.
    pub async fn keep_tools(&self, server: &str, list: Kept, pinned: Vec<Sha256Digest>) -> Result<(), Error> {
        let server = server.to_owned();
        self.store
            .durably(move |tx| {
                let Kept { digest, tools, seen_at } = list;
                tx.execute(
                    "INSERT OR REPLACE INTO tool_list (server, digest, tools, seen_at) VALUES (?1, ?2, ?3, ?4)",
                    params![server, digest.to_string(), tools, seen_at.to_string()],
                )?;
                let wanted: Vec<_> = pinned.iter().chain([&digest]).map(ToString::to_string).collect();
                let wanted = serde_json::to_string(&wanted).expect("texts are JSON");
                tx.execute(
                    "DELETE FROM tool_list WHERE server = ?1 AND digest NOT IN (SELECT value FROM json_each(?2))",
                    params![server, wanted],
                )?;
                Ok(())
            })
            .await
    }

    /// The lists of a server, the newest first.
    pub async fn tools_of(&self, server: &str) -> Result<Vec<Kept>, Error> {
        let server = server.to_owned();
        self.store
            .lazily(move |tx| {
                let mut statement = tx
                    .prepare_cached("SELECT digest, tools, seen_at FROM tool_list WHERE server = ?1 ORDER BY n DESC")?;
                let mut rows = statement.query([server])?;
                let mut lists = Vec::new();
                while let Some(row) = rows.next()? {
                    let (digest, seen_at): (String, String) = (row.get(0)?, row.get(2)?);
                    let damaged = || Error::damaged("a list of tools")(digest.clone());
                    lists.push(Kept {
                        digest: digest.parse().map_err(|_| damaged())?,
                        tools: row.get(1)?,
                        seen_at: seen_at.parse().map_err(|_| damaged())?,
                    });
                }
                Ok(lists)
            })
            .await
    }

    /// Forgets every list of a server.
    pub async fn forget_tools(&self, server: &str) -> Result<(), Error> {
        let server = server.to_owned();
        self.store
            .durably(move |tx| {
                tx.execute("DELETE FROM tool_list WHERE server = ?1", [server])?;
                Ok(())
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn the_newest_list_and_the_pinned_ones_are_kept_and_no_others() {
        let home = tempfile::tempdir().expect("temporary folder");
        let services = Store::open(home.path().join("deskgate.db")).await.expect("opens").services();
        let list = |tools: &str| Kept {
            digest: Sha256Digest::of(tools.as_bytes()),
            tools: tools.to_owned(),
            seen_at: Timestamp::now(),
        };
        let kept = async |server: &str| {
            let lists = services.tools_of(server).await.expect("readable");
            lists.into_iter().map(|list| list.tools).collect::<Vec<_>>()
        };
        services.keep_tools("lab", list("other"), Vec::new()).await.expect("kept");
        services.keep_tools("crm", list("one"), Vec::new()).await.expect("kept");
        services.keep_tools("crm", list("two"), vec![list("one").digest]).await.expect("kept");
        assert_eq!(kept("crm").await, ["two", "one"]);
        services.keep_tools("crm", list("one"), vec![list("one").digest, list("two").digest]).await.expect("kept");
        assert_eq!(kept("crm").await, ["one", "two"], "one that comes back is the newest");
        services.keep_tools("crm", list("three"), Vec::new()).await.expect("kept");
        assert_eq!((kept("crm").await, kept("lab").await), (vec!["three".to_owned()], vec!["other".to_owned()]));
        services.forget_tools("crm").await.expect("forgotten");
        assert_eq!((kept("crm").await.len(), kept("lab").await.len()), (0, 1));
    }
}
