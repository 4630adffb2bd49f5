//! Backups that somebody changed: nothing of them is executed, and what was changed is named.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use deskgate_tests::{GatewayProcess, Postgres};
use rustix::process::Signal;
use serde_json::json;

/// A folder in which the database's server could leave a file.
struct Witness(tempfile::TempDir);

impl Witness {
    async fn new(postgres: &Postgres) -> Self {
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("set");
        let witness = Self(folder);
        // The server's account can be heard here.
        postgres.try_run(&witness.command()).await.expect("a superuser may");
        assert!(witness.was_there());
        std::fs::remove_file(witness.file()).expect("removed");
        witness
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("was-here")
    }

    /// SQL that leaves the file.
    fn command(&self) -> String {
        format!("COPY (SELECT 1) TO PROGRAM 'cat > {}'", self.file().display())
    }

    fn was_there(&self) -> bool {
        self.file().exists()
    }
}

/// Functions, a constraint, a trigger, a default, a view and a rule that a backup of ours does not have, all of which
/// run a command wherever a superuser loads the rows. They were harmless when they were made.
async fn plant(postgres: &Postgres, witness: &Witness) {
    let harmless = "
        CREATE FUNCTION public.always() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
        ALTER TABLE public.gateway ADD CONSTRAINT always CHECK (public.always());
        ALTER TABLE public.deskgate_migrations ADD CONSTRAINT always CHECK (public.always());
        CREATE FUNCTION public.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
        CREATE TRIGGER noted BEFORE INSERT ON public.gateway FOR EACH ROW EXECUTE FUNCTION public.noted();
        ALTER TABLE public.gateway ALTER COLUMN singleton SET DEFAULT public.always();
        CREATE VIEW public.seen AS SELECT public.always() AS always;
        CREATE RULE noted AS ON UPDATE TO public.seen DO INSTEAD SELECT public.always();";
    postgres.try_run(harmless).await.expect("made");
    let command = witness.command().replace('\'', "''");
    let hostile = format!(
        "CREATE OR REPLACE FUNCTION public.always() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN EXECUTE '{command}';
            RETURN true; END $$;
        CREATE OR REPLACE FUNCTION public.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE '{command}';
            RETURN NEW; END $$;"
    );
    postgres.try_run(&hostile).await.expect("changed");
}

async fn back_up(gateway: &GatewayProcess, name: &str) -> String {
    let folder = gateway.folder().join(name).to_str().expect("a plain name").to_owned();
    gateway.command_line(&["backup", "create", &folder]).await.ok();
    folder
}

fn proof(folder: &str) -> PathBuf {
    Path::new(folder).join("backup.hmac")
}

#[tokio::test]
async fn nothing_that_stands_in_a_backup_is_executed_and_only_our_own_schema_comes_back() {
    let postgres = Postgres::start_exclusive().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    gateway.stop(Signal::TERM).await;
    let witness = Witness::new(&postgres).await;
    let schema = "SELECT conname AS name FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT rulename FROM pg_rewrite WHERE ev_class >= 16384
        UNION ALL SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef ORDER BY name";
    let before = postgres.rows(schema).await;
    plant(&postgres, &witness).await;
    assert_ne!(postgres.rows(schema).await, before);

    let backup = back_up(&gateway, "backup").await;
    let restore = ["backup", "restore", backup.as_str(), "--accept-risk", "replace-database"];
    for origin in ["proven", "unproven"] {
        if origin == "unproven" {
            std::fs::remove_file(proof(&backup)).expect("removed");
        }
        let accept: &[&str] = if origin == "unproven" { &["--unproven-origin"] } else { &[] };
        for place in [&[][..], &["--on-database-server"]] {
            let verify = [&["backup", "verify", &backup][..], place, accept].concat();
            let verified = gateway.command_line(&verify).await.ok();
            assert_eq!((&verified["differences"], &verified["origin"]), (&json!([]), &json!(origin)), "{verified}");
        }
        let restored = gateway.command_line(&[&restore[..], accept].concat()).await.ok();
        assert_eq!(restored["origin"], origin, "{restored}");
        assert!(!witness.was_there(), "a command of the backup ran");
        assert_eq!(postgres.rows(schema).await, before, "what was planted is gone");
    }
    gateway.restart().await;
}

#[tokio::test]
async fn the_rows_of_a_backup_are_put_back_by_an_account_that_can_own_tables_and_is_gone_afterwards() {
    let postgres = Postgres::start_exclusive().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    gateway.stop(Signal::TERM).await;
    let backup = back_up(&gateway, "backup").await;
    let owners = "SELECT relname, pg_get_userbyid(relowner) AS owner FROM pg_class
        WHERE relnamespace = 'public'::regnamespace ORDER BY relname";
    let (before, roles) = (postgres.rows(owners).await, "SELECT rolname FROM pg_roles ORDER BY rolname");
    let accounts = postgres.rows(roles).await;
    // A witness of the server's own writes down who makes tables, and what else he could do.
    postgres
        .try_run(
            "CREATE SCHEMA audit; CREATE TABLE audit.seen (tag text, who text, is_mighty boolean);
            GRANT USAGE ON SCHEMA audit TO PUBLIC; GRANT INSERT ON audit.seen TO PUBLIC;
            CREATE FUNCTION audit.note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO audit.seen SELECT tg_tag, session_user, bool_or(rolsuper OR rolcreaterole OR rolcreatedb
                    OR pg_has_role(session_user, 'pg_execute_server_program', 'MEMBER')
                    OR pg_has_role(session_user, 'pg_read_server_files', 'MEMBER')
                    OR pg_has_role(session_user, 'pg_write_server_files', 'MEMBER')
                    OR has_database_privilege(session_user, current_database(), 'CREATE'))
                FROM pg_roles WHERE rolname = session_user; END $$;
            CREATE EVENT TRIGGER note ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'CREATE FUNCTION')
                EXECUTE FUNCTION audit.note()",
        )
        .await
        .expect("made");
    gateway.command_line(&["backup", "restore", &backup, "--accept-risk", "replace-database"]).await.ok();
    let seen =
        postgres.rows("SELECT DISTINCT tag, is_mighty, who = current_user AS is_own FROM audit.seen ORDER BY 1").await;
    let of = |tag: &str| json!({ "tag": tag, "is_mighty": false, "is_own": false });
    assert_eq!(seen, [of("CREATE FUNCTION"), of("CREATE TABLE")]);
    assert_eq!(postgres.rows(owners).await, before, "the gateway's account owns all of it again");
    assert_eq!(postgres.rows(roles).await, accounts, "the account that was made for it is gone");
    postgres.try_run("DROP EVENT TRIGGER note; DROP SCHEMA audit CASCADE").await.expect("dropped");
    gateway.restart().await;
}

#[tokio::test]
async fn an_account_that_can_do_more_and_can_make_no_other_restores_nothing_and_is_told_what_to_do() {
    let postgres = Postgres::start_exclusive().await;
    let mighty = postgres.as_account("mighty", "CREATEDB IN ROLE pg_execute_server_program").await;
    let gateway = GatewayProcess::start(&mighty, &[]).await;
    let backup = back_up(&gateway, "backup").await;
    let refused = gateway.command_line(&["backup", "verify", "--on-database-server", &backup]).await;
    assert_eq!(refused.exit, 3, "{}", refused.stderr);
    for part in ["mighty", "can do more on its server", "ALTER ROLE mighty", "pg_hba.conf"] {
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
    // Without the membership it restores as itself: no other account is made.
    postgres.try_run("REVOKE pg_execute_server_program FROM mighty").await.expect("revoked");
    let verified = gateway.command_line(&["backup", "verify", "--on-database-server", &backup]).await.ok();
    assert_eq!(verified["differences"], json!([]), "{verified}");
}

#[tokio::test]
async fn an_altered_backup_is_refused_before_anything_of_it_is_read_and_the_altered_file_is_named() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let backup = back_up(&gateway, "backup").await;
    let file = |name: &str| Path::new(&backup).join(name);
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let lie = |bytes: &mut Vec<u8>| {
        *bytes = String::from_utf8_lossy(bytes).replace("\"devices\": 0", "\"devices\": 1").into_bytes();
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [(&str, Change<'_>); 5] = [
        ("database.dump", &flip),
        ("database.dump", &cut),
        ("backup.json", &lie),
        ("backup.hmac", &cut),
        ("backup.json", &|bytes| bytes.push(b' ')),
    ];
    for (name, change) in changes {
        let good = std::fs::read(file(name)).expect("readable");
        let mut bytes = good.clone();
        change(&mut bytes);
        assert_ne!(bytes, good);
        std::fs::write(file(name), bytes).expect("writable");
        // The key fits, so nobody is asked whether he believes it.
        for accept in [&[][..], &["--unproven-origin"]] {
            let no = gateway.command_line(&[&["backup", "verify", &backup][..], accept].concat()).await;
            assert_eq!(no.exit, 1, "{name}: {}", no.stderr);
            assert!(no.stderr.contains(name) && no.stderr.contains("damaged or altered"), "{name}: {}", no.stderr);
        }
        std::fs::write(file(name), good).expect("writable");
    }
    gateway.command_line(&["backup", "verify", &backup]).await.ok();

    // A dump that ends early, described as it is, by somebody without the key.
    std::fs::remove_file(proof(&backup)).expect("removed");
    let refused = gateway.command_line(&["backup", "verify", &backup]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    for part in ["backup.hmac is not there", "--unproven-origin", "No changes were made"] {
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
}

#[tokio::test]
async fn what_does_not_belong_into_a_backup_is_named() {
    let postgres = Postgres::start_exclusive().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    gateway.stop(Signal::TERM).await;
    for (number, (plant, uproot, named)) in [
        ("CREATE TABLE public.extra (a integer)", "DROP TABLE public.extra", "rows of table extra"),
        (
            "ALTER TABLE public.gateway ADD COLUMN more text",
            "ALTER TABLE public.gateway DROP COLUMN more",
            "rows with column more of table gateway",
        ),
        ("CREATE SEQUENCE public.extra", "DROP SEQUENCE public.extra", "SELECT pg_catalog.setval('public.extra'"),
        (
            "ALTER TABLE public.control_tokens DROP CONSTRAINT control_tokens_digest_check;
                INSERT INTO public.control_tokens (digest) VALUES ('short')",
            "DELETE FROM public.control_tokens WHERE octet_length(digest) < 32",
            "control_tokens_digest_check",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        postgres.try_run(plant).await.expect(plant);
        let backup = back_up(&gateway, &format!("backup-{number}")).await;
        postgres.try_run(uproot).await.expect(uproot);
        for command in [&["verify", &backup][..], &["restore", &backup, "--accept-risk", "replace-database"]] {
            let no = gateway.command_line(&[&["backup"], command].concat()).await;
            assert_eq!(no.exit, 1, "{named}: {}", no.stderr);
            assert!(no.stderr.contains(named), "{named} in {}", no.stderr);
        }
    }
    // What was there is there again after each of them.
    gateway.restart().await;
}

#[tokio::test]
async fn a_backup_comes_to_a_new_server_with_the_sealing_key_that_was_kept_or_by_a_spoken_word() {
    let (old_postgres, new_postgres) = (Postgres::start_exclusive().await, Postgres::start_exclusive().await);
    let old = GatewayProcess::start(&old_postgres, &[]).await;
    let backup = back_up(&old, "backup").await;
    let mut new = GatewayProcess::start(&new_postgres, &[]).await;
    new.stop(Signal::TERM).await;
    let restore = ["backup", "restore", backup.as_str(), "--accept-risk", "replace-database"];
    let refused = new.command_line(&restore).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    for part in ["another sealing key", new.state_dir().join("seal").to_str().expect("plain"), "--unproven-origin"] {
        assert!(refused.stderr.contains(part), "{part} in {}", refused.stderr);
    }
    let lost = new.command_line(&[&restore[..], &["--unproven-origin"]].concat()).await.ok();
    assert_eq!(lost["origin"], "unproven", "{lost}");
    std::fs::copy(old.state_dir().join("seal"), new.state_dir().join("seal")).expect("it was kept");
    assert_eq!(new.command_line(&restore).await.ok()["origin"], "proven");
    let of = "SELECT gateway_id FROM gateway";
    assert_eq!(new_postgres.rows(of).await, old_postgres.rows(of).await);
    new.restart().await;
}
