//! The command line of the desktop: one file for each noun. It talks only to the agent's private
//! socket.

mod access;
mod allowlist;
mod app;
mod approval;
mod audit;
mod autostart;
mod budget;
mod bundle;
mod call;
mod callback;
mod checks;
mod connection;
mod conversation;
mod ctrl_c;
mod daemon;
mod delivery;
mod doctor;
mod export;
mod files;
mod find;
mod help;
mod hook;
mod identity;
mod key;
mod key_file;
mod listen;
mod log;
mod mcp;
mod notification;
mod open;
mod operation;
mod pair;
mod provider;
mod quickstart;
mod rules;
mod run;
mod service;
mod service_life;
mod service_templates;
mod service_versions;
mod settings;
mod socket;
mod spending;
mod uninstall;
mod upgrade;
mod verify_receipt;

use std::pin::Pin;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use deskgate_program::exit;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::man;
use deskgate_program::output::Output;
use deskgate_program::terminal;

use tokio_util::sync::CancellationToken;

use crate::config::Home;
use crate::local::HealthReport;
use socket::AgentClient;

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(
    name = "deskgate",
    version,
    about = "Lets business backends use an assistant on this computer, under your rules."
)]
struct Cli {
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    /// Print failures only
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// From nothing to a finished run: an agent, an application with a key, and a published service for a folder
    Quickstart(quickstart::QuickstartArgs),
    /// Start the agent in the background
    Start(daemon::StartArgs),
    /// Stop the agent; runs in progress finish first, unless they wait for a decision
    Stop(daemon::StopArgs),
    /// Stop the agent and start it again
    Restart(daemon::RestartArgs),
    /// How the agent, its connection and its runs are
    Status,
    /// Open the management pages in your browser
    Open(open::OpenArgs),
    /// Pair this device with a gateway, by the invitation that its administrator gave you
    Pair(pair::PairArgs),
    /// This device's identity
    #[command(subcommand)]
    Identity(identity::IdentityCommand),
    /// How the gateway is reached
    #[command(subcommand, alias = "connections")]
    Connection(connection::ConnectionCommand),
    /// Applications: the business systems that may call
    #[command(subcommand, alias = "apps")]
    App(app::AppCommand),
    /// Application keys
    #[command(subcommand, alias = "keys")]
    Key(key::KeyCommand),
    /// Incoming webhooks: signed events of other systems that become runs
    #[command(subcommand, alias = "hooks")]
    Hook(hook::HookCommand),
    /// Services: what callers can use
    #[command(subcommand, alias = "services")]
    Service(Box<service::ServiceCommand>),
    /// Model providers and their keys
    #[command(subcommand, alias = "providers")]
    Provider(provider::ProviderCommand),
    /// MCP servers whose tools services may use
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// External access to everything published
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// Runs of this device's services
    #[command(subcommand, alias = "runs")]
    Run(run::RunCommand),
    /// How much models may use up in a month
    #[command(subcommand, alias = "budgets")]
    Budget(budget::BudgetCommand),
    /// What models used up in a month, by service
    Spending(spending::SpendingArgs),
    /// Tool calls that wait for your decision
    #[command(subcommand, alias = "approvals")]
    Approval(approval::ApprovalCommand),
    /// What was asked of this device, and what it said: receipts, and the log of approvals
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Check what a device signed about its runs; needs no agent
    VerifyReceipt(verify_receipt::VerifyReceiptArgs),
    /// Conversations with this device's services
    #[command(subcommand, alias = "conversations")]
    Conversation(conversation::ConversationCommand),
    /// Find a run, conversation, application, service, approval or key by its identifier or name
    Find(find::FindArgs),
    /// Where applications' events are sent
    #[command(subcommand, alias = "callbacks")]
    Callback(callback::CallbackCommand),
    /// The hosts that callbacks may go to
    #[command(subcommand)]
    Allowlist(allowlist::AllowlistCommand),
    /// What receivers were told, and every attempt to tell them
    #[command(subcommand, alias = "deliveries")]
    Delivery(delivery::DeliveryCommand),
    /// Post an application's events to an address of this computer, as its callback would get them
    Listen(listen::ListenArgs),
    /// What the desktop tells of by itself
    #[command(subcommand, alias = "notifications")]
    Notification(notification::NotificationCommand),
    /// What is wrong on this computer, and what to do; ends with 10 if something fails
    Doctor(doctor::DoctorArgs),
    /// Whether the gateway will let this version of the program in; 7 if not. Asks the running agent, or what it noted
    UpgradeCheck,
    /// The end of the agent's log, or its lines as they come
    Log(log::LogArgs),
    /// Write what helps others to help you into one text file, without secrets
    Bundle(bundle::BundleArgs),
    /// Write the manual pages into a folder
    Man {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// What is chosen about the agent itself
    #[command(subcommand)]
    Settings(settings::SettingsCommand),
    /// Whether the agent starts when you log in
    #[command(subcommand)]
    Autostart(autostart::AutostartCommand),
    /// End what the agent does on this computer, remove what is asked, and say what stays
    Uninstall(uninstall::UninstallArgs),
    /// Print the version
    Version,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Explain the exit codes
    #[command(after_help = exit::EXIT_CODE_TABLE)]
    ExitCodes,
}

/// Signals as requests to the agent.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Cancelled by the first SIGTERM or SIGINT: stop after the runs in progress.
    pub stop: CancellationToken,
    /// Cancelled by the second one: stop at once.
    pub now: CancellationToken,
}

/// The agent itself, as `start --foreground` runs it until a signal asks it to end.
pub type RunAgent = fn(Home, Signals) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Finds problems while no agent answers.
pub type OfflineCheck = fn(Home) -> Pin<Box<dyn Future<Output = HealthReport> + Send>>;

/// The functions that the command line needs from the agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentFunctions {
    /// Runs the agent.
    pub run: RunAgent,
    /// Finds problems without an agent.
    pub look: OfflineCheck,
}

/// Runs the program.
pub async fn main(itself: AgentFunctions) -> ExitCode {
    let cli: Cli = help::HELP.parse(Cli::command());
    let out = Output { json: cli.json, quiet: cli.quiet };
    let ended = tokio::select! {
        // A command that answers Ctrl-C ends by itself.
        biased;
        ended = Box::pin(execute(cli.command, out, itself)) => ended,
        interrupted = ctrl_c::interrupted() => Err(interrupted),
    };
    match ended {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            out.failure(&failure);
            failure.exit.into()
        }
    }
}

async fn execute(command: Command, out: Output, itself: AgentFunctions) -> Result<(), Failure> {
    match command {
        Command::Quickstart(quickstart) => quickstart::run(quickstart, out, itself.run).await,
        Command::Start(start) => daemon::start(start, out, itself.run).await,
        Command::Stop(stop) => daemon::stop(AgentClient::find()?, stop, out).await,
        Command::Restart(restart) => daemon::restart(AgentClient::find()?, restart, out, itself.run).await,
        Command::Status => daemon::status(AgentClient::find()?, out).await,
        Command::Open(open) => open::run(AgentClient::find()?, open, out).await,
        Command::Pair(pair) => pair::run(AgentClient::find()?, pair, out).await,
        Command::Identity(command) => identity::run(AgentClient::find()?, command, out, itself.run).await,
        Command::Connection(command) => connection::run(AgentClient::find()?, command, out).await,
        Command::App(command) => app::run(AgentClient::find()?, command, out).await,
        Command::Hook(command) => hook::run(AgentClient::find()?, command, out).await,
        Command::Key(command) => key::run(AgentClient::find()?, command, out).await,
        Command::Service(command) => Box::pin(service::run(AgentClient::find()?, *command, out)).await,
        Command::Provider(command) => provider::run(AgentClient::find()?, command, out).await,
        Command::Mcp(command) => mcp::run(AgentClient::find()?, command, out).await,
        Command::Access(command) => access::run(AgentClient::find()?, command, out).await,
        Command::Run(command) => run::run(AgentClient::find()?, command, out).await,
        Command::Budget(command) => budget::run(AgentClient::find()?, command, out).await,
        Command::Spending(args) => spending::run(AgentClient::find()?, args, out).await,
        Command::Approval(command) => approval::run(AgentClient::find()?, command, out).await,
        Command::Audit(command) => audit::run(AgentClient::find()?, command, out).await,
        Command::VerifyReceipt(args) => verify_receipt::run(&args, out).await,
        Command::Conversation(command) => conversation::run(AgentClient::find()?, command, out).await,
        Command::Find(find) => find::run(AgentClient::find()?, find, out).await,
        Command::Callback(command) => callback::run(AgentClient::find()?, command, out).await,
        Command::Allowlist(command) => allowlist::run(AgentClient::find()?, command, out).await,
        Command::Delivery(command) => delivery::run(AgentClient::find()?, command, out).await,
        Command::Listen(listen) => listen::run(AgentClient::find()?, listen, out).await,
        Command::Notification(command) => notification::run(AgentClient::find()?, command, out).await,
        Command::Doctor(doctor) => doctor::run(AgentClient::find()?, doctor, itself.look, out).await,
        Command::UpgradeCheck => upgrade::check(AgentClient::find()?, out).await,
        Command::Log(log) => log::run(AgentClient::find()?, log, out).await,
        Command::Bundle(make) => bundle::run(AgentClient::find()?, make, out).await,
        Command::Man { folder } => man::write(Cli::command(), &folder, out),
        Command::Settings(command) => settings::run(AgentClient::find()?, command, out).await,
        Command::Autostart(command) => autostart::run(AgentClient::find()?, command, out).await,
        Command::Uninstall(uninstall) => uninstall::run(AgentClient::find()?, uninstall, out).await,
        Command::Version => {
            let version = deskgate_protocol::VERSION;
            let value = serde_json::json!({ "version": version, "protocol": deskgate_protocol::PROTOCOL_RANGE });
            out.result("version/1", &value, || format!("deskgate {version}"));
            Ok(())
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "deskgate", &mut script);
            terminal::print_document(&script);
            Ok(())
        }
        Command::ExitCodes => {
            terminal::print(exit::EXIT_CODE_TABLE);
            Ok(())
        }
    }
}

/// Refuses a pasted secret in place of another value, without repeating it.
fn no_secret(what: &str, text: &str) -> Result<(), Failure> {
    match deskgate_protocol::secret::SecretKind::of(text) {
        Some(kind) => {
            Err(Failure::new(Exit::Usage, format!("{what}: this is {kind}, which does not belong on a command line")))
        }
        None => Ok(()),
    }
}
