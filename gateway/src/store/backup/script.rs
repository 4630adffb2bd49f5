//! Reads the data out of what `pg_restore` writes of a dump, and executes none of its SQL: which table and which columns
//! come next is taken from it by name, everything else is refused.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::BackupError;

/// Bytes of one line; a row's largest value has a fraction of it.
const MAX_LINE_BYTES: u64 = 256 * 1024 * 1024;
/// Characters of a line that are shown.
const MAX_SHOWN_CHARS: usize = 80;
/// The lines before and between the tables' data that mean nothing here.
const IGNORED_LINES: [&str; 5] =
    ["--", "SET ", "SELECT pg_catalog.set_config('search_path', ", "\\restrict ", "\\unrestrict "];
/// The encoding in which the gateway's databases are, and their dumps.
const ENCODING_LINE: &str = "SET client_encoding = ";

/// The table that the following rows are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableHead {
    /// Its name.
    pub(super) table: String,
    /// The columns, in the order of the rows' values.
    pub(super) columns: Vec<String>,
}

/// A dump's data, table by table.
pub(super) struct Script<R> {
    reader: R,
}

impl<R: AsyncBufRead + Unpin> Script<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader }
    }

    /// The next table, if there is one. Its rows are to be read first.
    pub(super) async fn next_table(&mut self) -> Result<Option<TableHead>, BackupError> {
        let mut line = Vec::new();
        while self.line(&mut line).await? {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if let Some(rest) = text.strip_prefix("COPY ") {
                return table_head(rest).map(Some).ok_or_else(|| foreign(text));
            }
            let is_ignored = text.is_empty() || IGNORED_LINES.iter().any(|start| text.starts_with(start));
            let is_another_encoding = text.starts_with(ENCODING_LINE) && text != "SET client_encoding = 'UTF8';";
            if !is_ignored || is_another_encoding {
                return Err(foreign(text));
            }
        }
        Ok(None)
    }

    /// Reads the next row of the table as it is, with its line end; false after the last one.
    pub(super) async fn next_row(&mut self, row: &mut Vec<u8>) -> Result<bool, BackupError> {
        let mut line = Vec::new();
        if !self.line(&mut line).await? {
            return Err(BackupError::CutOff("a table's rows"));
        }
        if line == b"\\.\n" {
            return Ok(false);
        }
        row.extend_from_slice(&line);
        Ok(true)
    }

    /// A whole line; false at the end.
    async fn line(&mut self, line: &mut Vec<u8>) -> Result<bool, BackupError> {
        line.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', line).await;
        read.map_err(|source| BackupError::Io { path: "pg_restore".into(), source })?;
        match line.last() {
            None => Ok(false),
            Some(b'\n') => Ok(true),
            Some(_) => Err(BackupError::CutOff("a line")),
        }
    }
}

fn foreign(line: &str) -> BackupError {
    BackupError::Foreign(line.chars().take(MAX_SHOWN_CHARS).collect())
}

/// Reads `public.runs (run_id, "user") FROM stdin;`.
fn table_head(text: &str) -> Option<TableHead> {
    let (table, rest) = identifier(text.strip_prefix("public.")?)?;
    let mut rest = rest.strip_prefix(" (")?;
    let mut columns = Vec::new();
    loop {
        let (column, after) = identifier(rest)?;
        columns.push(column);
        match after.strip_prefix(", ") {
            Some(next) => rest = next,
            None => return (after == ") FROM stdin;").then_some(TableHead { table, columns }),
        }
    }
}

/// An identifier as `pg_dump` writes it, and what follows.
fn identifier(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let end = quoted.find('"')?;
        let (name, rest) = (&quoted[..end], &quoted[end + 1..]);
        // A quote inside would be doubled; no name of ours has one.
        return (!name.is_empty() && !rest.starts_with('"')).then(|| (name.to_owned(), rest));
    }
    let end = text.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))?;
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

/// A name as an SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tables with their rows, or the refusal.
    async fn read(text: &str) -> Result<Vec<(String, Vec<String>, String)>, String> {
        let mut script = Script::new(text.as_bytes());
        let mut tables = Vec::new();
        while let Some(head) = script.next_table().await.map_err(|error| error.to_string())? {
            let mut rows = Vec::new();
            while script.next_row(&mut rows).await.map_err(|error| error.to_string())? {}
            tables.push((head.table, head.columns, String::from_utf8(rows).expect("text")));
        }
        Ok(tables)
    }

    #[tokio::test]
    async fn the_rows_of_each_table_are_read_as_they_are() {
        let text = "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\nSET client_encoding = 'UTF8';\n\
            SELECT pg_catalog.set_config('search_path', '', false);\n\
            COPY public.runs (run_id, \"user\") FROM stdin;\n1\tCOPY public.x (y) FROM stdin;\n2\t\\\\.\n\\.\n\n\n\
            COPY public.gateway (singleton) FROM stdin;\n\\.\n\n\\unrestrict abc\n";
        let tables = read(text).await.expect("good");
        let runs = "1\tCOPY public.x (y) FROM stdin;\n2\t\\\\.\n".to_owned();
        assert_eq!(tables[0], ("runs".to_owned(), vec!["run_id".to_owned(), "user".to_owned()], runs));
        assert_eq!(tables[1], ("gateway".to_owned(), vec!["singleton".to_owned()], String::new()));
    }

    #[tokio::test]
    async fn whatever_is_no_data_is_named_and_refused() {
        for text in [
            "CREATE TABLE public.x (y integer);\n",
            "DROP TABLE public.runs;\n",
            "SELECT pg_catalog.setval('public.x', 1, true);\n",
            "SELECT pg_read_file('/etc/passwd');\n",
            "SET client_encoding = 'SJIS';\n",
            "COPY public.runs FROM stdin;\n",
            "COPY public.runs (a) FROM PROGRAM 'id';\n",
            "COPY public.runs (a) FROM stdin; DROP TABLE runs;\n",
            "COPY public.runs (a, (SELECT 1)) FROM stdin;\n",
            "COPY public.\"a\"\"b\" (a) FROM stdin;\n",
            "COPY pg_catalog.pg_authid (a) FROM stdin;\n",
            "COPY (SELECT 1) TO PROGRAM 'id';\n",
            "\\! id\n",
            "\\copy x from program 'id'\n",
        ] {
            let no = read(text).await.expect_err(text);
            assert!(no.contains(text.trim_end()), "{text} in {no}");
        }
        let cut = "COPY public.runs (a) FROM stdin;\n1\n";
        assert!(read(cut).await.expect_err("cut off").contains("breaks off in the middle of a table's rows"));
        assert!(read(&cut[..cut.len() - 1]).await.expect_err("cut off").contains("in the middle of a line"));
    }
}
