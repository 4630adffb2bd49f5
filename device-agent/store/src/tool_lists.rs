//! The tool lists of MCP servers: the newest of each server, and those that services are pinned to. A digest shows that
//! a list changed; the stored list shows what changed. A server at another address is another server.

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use rusqlite::params;

use super::{Error, Services};

/// A stored tool list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolList {
    /// The digest that pins the list.
    pub digest: Sha256Digest,
    /// The tools, as JSON.
    pub tools: String,
    /// When the server last sent this list.
    pub seen_at: Timestamp,
}

impl Services {
    /// Stores a list as the newest of a server at an address, and deletes those of that name that are neither the
    /// newest nor `pinned`, or come from another address.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn keep_tools(
        &self,
        server: &str,
        url: &str,
        list: StoredToolList,
        pinned: Vec<Sha256Digest>,
    ) -> Result<(), Error> {
        let (server, url) = (server.to_owned(), url.to_owned());
        self.store
            .durably(move |tx| {
                let StoredToolList { digest, tools, seen_at } = list;
                tx.execute(
                    "INSERT OR REPLACE INTO tool_list (server, url, digest, tools, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![server, url, digest.to_string(), tools, seen_at.to_string()],
                )?;
                let wanted: Vec<_> = pinned.iter().chain([&digest]).map(ToString::to_string).collect();
                let wanted = serde_json::to_string(&wanted).expect("texts are JSON");
                tx.execute(
                    "DELETE FROM tool_list WHERE server = ?1
                         AND (url <> ?2 OR digest NOT IN (SELECT value FROM json_each(?3)))",
                    params![server, url, wanted],
                )?;
                Ok(())
            })
            .await
    }

    /// The lists of a server at an address, the newest first.
    ///
    /// # Errors
    /// The database cannot be read, or a list is damaged.
    pub async fn tools_of(&self, server: &str, url: &str) -> Result<Vec<StoredToolList>, Error> {
        let (server, url) = (server.to_owned(), url.to_owned());
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT digest, tools, seen_at FROM tool_list WHERE server = ?1 AND url = ?2 ORDER BY n DESC",
                )?;
                let mut rows = statement.query([server, url])?;
                let mut lists = Vec::new();
                while let Some(row) = rows.next()? {
                    let (digest, seen_at): (String, String) = (row.get(0)?, row.get(2)?);
                    let damaged = || Error::damaged("a list of tools")(digest.clone());
                    lists.push(StoredToolList {
                        digest: digest.parse().map_err(|_| damaged())?,
                        tools: row.get(1)?,
                        seen_at: seen_at.parse().map_err(|_| damaged())?,
                    });
                }
                Ok(lists)
            })
            .await
    }

    /// Deletes every list of a server.
    ///
    /// # Errors
    /// The database cannot be read or written.
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
    use crate::Store;

    const SERVER_URL: &str = "https://a.example/";

    #[tokio::test]
    async fn the_newest_list_and_the_pinned_ones_are_kept_and_no_others() {
        let home = tempfile::tempdir().expect("temporary folder");
        let services = Store::open(home.path().join("deskgate.db")).await.expect("opens").services();
        let list = |tools: &str| StoredToolList {
            digest: Sha256Digest::of(tools.as_bytes()),
            tools: tools.to_owned(),
            seen_at: Timestamp::now(),
        };
        let kept = async |server: &str| {
            let lists = services.tools_of(server, SERVER_URL).await.expect("readable");
            lists.into_iter().map(|list| list.tools).collect::<Vec<_>>()
        };
        let keep = async |server: &str, list: StoredToolList, pinned: Vec<Sha256Digest>| {
            services.keep_tools(server, SERVER_URL, list, pinned).await.expect("kept")
        };
        keep("lab", list("other"), Vec::new()).await;
        keep("crm", list("one"), Vec::new()).await;
        keep("crm", list("two"), vec![list("one").digest]).await;
        assert_eq!(kept("crm").await, ["two", "one"]);
        keep("crm", list("one"), vec![list("one").digest, list("two").digest]).await;
        assert_eq!(kept("crm").await, ["one", "two"], "one that comes back is the newest");
        keep("crm", list("three"), Vec::new()).await;
        assert_eq!((kept("crm").await, kept("lab").await), (vec!["three".to_owned()], vec!["other".to_owned()]));
        let elsewhere = async || services.tools_of("crm", "https://b.example/").await.expect("readable").len();
        assert_eq!(elsewhere().await, 0, "at another address it is another server");
        services.keep_tools("crm", "https://b.example/", list("three"), Vec::new()).await.expect("kept");
        assert_eq!((kept("crm").await.len(), elsewhere().await), (0, 1), "it has moved");
        services.forget_tools("crm").await.expect("forgotten");
        assert_eq!(elsewhere().await, 0);
        assert_eq!((kept("crm").await.len(), kept("lab").await.len()), (0, 1));
    }
}
