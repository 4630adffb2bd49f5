//! `audit`: what was asked of this device, and what it said.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Subcommand;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records::given::GivenId;
use deskgate_program::terminal;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::chain::ChainCheck;
use deskgate_protocol::receipt::jws::SignedReceipt;
use serde_json::json;

use super::export::{PartialFile, create};
use super::socket::AgentClient;
use super::{approval, run};
use crate::local::{ListReceipts, MAX_RECEIPTS_PER_PAGE};

/// `deskgate audit …`
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Every receipt of this device, oldest first, one on each line: each offer of a gateway, and each outcome
    #[command(after_help = "A line is a compact JWS. Check them: deskgate verify-receipt --fingerprint SHA256:… FILE")]
    Export {
        /// Into a file, where nothing is yet; otherwise to the standard output
        file: Option<PathBuf>,
    },
    /// What was asked, decided and executed, newest first; the same as `approval log`
    Log {
        /// Of one run only
        #[arg(long)]
        run: Option<GivenId<RunId>>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
}

pub(super) async fn run(agent: AgentClient, command: AuditCommand, out: Output) -> Result<(), Failure> {
    match command {
        AuditCommand::Log { run, limit } => {
            let run = run::find_given(&agent, run).await?;
            approval::show_log(agent, run, limit, out).await
        }
        AuditCommand::Export { file: None } => {
            let failed = |error: std::io::Error| {
                terminal::end_if_closed(&error);
                Failure::new(Exit::Failed, format!("the export was not written to its end: {error}"))
            };
            write(agent, std::io::stdout().lock(), failed).await.map(drop)
        }
        AuditCommand::Export { file: Some(path) } => {
            let failed = |error: std::io::Error| Failure::file(&path, &error);
            let file = create(&path).map_err(failed)?;
            let part = PartialFile(&path);
            let receipts = write(agent, file, failed).await?;
            std::mem::forget(part);
            out.result("audit-exported/1", &json!({ "file": path, "receipts": receipts }), || {
                format!("{receipts} receipts written to {}, one on each line; the chain holds.", path.display())
            });
            Ok(())
        }
    }
}

/// Writes the chain and checks it meanwhile. Returns how many receipts were written.
async fn write(agent: AgentClient, to: impl Write, failed: impl Fn(std::io::Error) -> Failure) -> Result<u64, Failure> {
    let (mut to, mut check) = (BufWriter::new(to), ChainCheck::whole());
    let (mut after, mut count) = (0, 0);
    loop {
        let page = agent.request(ListReceipts { after, limit: MAX_RECEIPTS_PER_PAGE }).await?;
        if page.is_empty() {
            to.flush().map_err(failed)?;
            return Ok(count);
        }
        for receipt in page {
            let signed = SignedReceipt::read(&receipt).map_err(|error| broken(after + 1, &error.to_string()))?;
            if let Some(violation) = check.next(&signed).first() {
                return Err(broken(signed.receipt.device_seq, &violation.to_string()));
            }
            after = signed.receipt.device_seq;
            count += 1;
            writeln!(to, "{receipt}").map_err(&failed)?;
        }
    }
}

fn broken(seq: u64, why: &str) -> Failure {
    let message = format!(
        "receipt {seq} in this device's own database: {why}. The database was changed or is damaged; restore it, and tell \
         those who rely on its receipts"
    );
    Failure::new(Exit::CheckFailed, message)
}
