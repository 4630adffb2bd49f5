//! The command line of the desktop: one file for each noun. It talks only to the agent's private
//! socket.

mod access;
mod allowlist;
mod app;
mod approvals;
mod autostart;
mod bundle;
mod call;
mod callback;
mod checks;
mod connection;
mod consent;
mod conversations;
mod daemon;
mod deliveries;
mod doctor;
mod export;
mod find;
mod hook;
mod identity;
mod key;
mod key_file;
mod list;
mod listen;
mod mcp;
mod notifications;
mod open;
mod operation;
mod provider;
mod rules;
mod runs;
mod service;
mod settings;
mod socket;
mod upgrade;

use std::pin::Pin;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use deskgate_program::exit;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::man;
use deskgate_program::output::Output;

use tokio_util::sync::CancellationToken;

use crate::config::Home;
use crate::local::HealthReport;
use socket::Agent;

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
    /// Start the agent in the background
    Start(daemon::Start),
    /// Stop the agent; runs in progress finish first, unless they wait for a decision
    Stop(daemon::Stop),
    /// How the agent, its line and its runs are
    Status,
    /// Open the management pages in your browser
    Open(open::Open),
    /// This device's identity
    #[command(subcommand)]
    Identity(identity::Identity),
    /// How the gateway is reached
    #[command(subcommand)]
    Connection(connection::Connection),
    /// Applications: the business systems that may call
    #[command(subcommand)]
    App(app::App),
    /// Application keys
    #[command(subcommand)]
    Key(key::Key),
    /// Incoming webhooks: signed events of other systems that become runs
    #[command(subcommand)]
    Hook(hook::Hook),
    /// Services: what callers can use
    #[command(subcommand)]
    Service(Box<service::Service>),
    /// Model providers and their keys
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Servers of tools that services may use (MCP)
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// External access to everything published
    #[command(subcommand)]
    Access(access::Access),
    /// Runs of this device's services
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Calls of tools that wait for your decision
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Conversations with this device's services
    #[command(subcommand)]
    Conversations(conversations::Conversations),
    /// Find a run, conversation, application, service, approval or key by its identifier or name
    Find(find::Find),
    /// Where applications' events are sent
    #[command(subcommand)]
    Callback(callback::Callback),
    /// The hosts that callbacks may go to
    #[command(subcommand)]
    Allowlist(allowlist::Allowlist),
    /// What receivers were told, and every attempt to tell them
    #[command(subcommand)]
    Deliveries(deliveries::Deliveries),
    /// Post an application's events to an address of this computer, as its callback would get them
    Listen(listen::Listen),
    /// What the desktop tells of by itself
    #[command(subcommand)]
    Notifications(notifications::Notifications),
    /// What is wrong on this computer, and what to do; ends with 10 if something fails
    Doctor(doctor::Doctor),
    /// Whether the gateway will let this version of the program in; 7 if not. Asks the running agent, or what it noted
    UpgradeCheck,
    /// The end of the agent's log
    Log(doctor::Log),
    /// Write what helps others to help you into one text file, without secrets
    Bundle(bundle::Make),
    /// Write the manual pages into a folder
    Man {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// What is chosen about the agent itself
    #[command(subcommand)]
    Settings(settings::Settings),
    /// Whether the agent starts when you log in
    #[command(subcommand)]
    Autostart(autostart::Autostart),
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Explain the exit codes
    #[command(after_help = exit::TABLE)]
    ExitCodes,
}

/// What signals ask of the agent.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Cancelled by the first SIGTERM or SIGINT: end, once runs in progress have.
    pub stop: CancellationToken,
    /// Cancelled by the second one: end at once.
    pub now: CancellationToken,
}

/// The agent itself, as `start --foreground` runs it until a signal asks it to end.
pub type RunAgent = fn(Home, Signals) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// What is wrong, as far as it can be told while no agent answers.
pub type Look = fn(Home) -> Pin<Box<dyn Future<Output = HealthReport> + Send>>;

/// What the command line does without asking an agent.
#[derive(Clone, Copy, Debug)]
pub struct Itself {
    /// Is the agent.
    pub run: RunAgent,
    /// Looks in its place.
    pub look: Look,
}

/// Runs the program.
pub async fn main(itself: Itself) -> ExitCode {
    let cli = Cli::parse();
    let out = Output { json: cli.json, quiet: cli.quiet };
    let ended = tokio::select! {
        ended = Box::pin(run(cli.command, out, itself)) => ended,
        interrupted = interrupted() => Err(interrupted),
    };
    match ended {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("{failure}");
            }
            failure.exit.into()
        }
    }
}

/// The agent itself ends in its own way on Ctrl-C; every other command just ends.
async fn interrupted() -> Failure {
    // Whether this is the agent is known when the signal comes, not yet when the program starts.
    if tokio::signal::ctrl_c().await.is_err() || daemon::runs_here() {
        std::future::pending::<()>().await;
    }
    Failure::new(Exit::Interrupted, "")
}

async fn run(command: Command, out: Output, itself: Itself) -> Result<(), Failure> {
    match command {
        Command::Start(start) => daemon::start(start, out, itself.run).await,
        Command::Stop(stop) => daemon::stop(Agent::find()?, stop, out).await,
        Command::Status => daemon::status(Agent::find()?, out).await,
        Command::Open(open) => open::run(Agent::find()?, open, out).await,
        Command::Identity(command) => identity::run(Agent::find()?, command, out, itself.run).await,
        Command::Connection(command) => connection::run(Agent::find()?, command, out).await,
        Command::App(command) => app::run(Agent::find()?, command, out).await,
        Command::Hook(command) => hook::run(Agent::find()?, command, out).await,
        Command::Key(command) => key::run(Agent::find()?, command, out).await,
        Command::Service(command) => service::run(Agent::find()?, *command, out).await,
        Command::Provider(command) => provider::run(Agent::find()?, command, out).await,
        Command::Mcp(command) => mcp::run(Agent::find()?, command, out).await,
        Command::Access(command) => access::run(Agent::find()?, command, out).await,
        Command::Runs(command) => runs::run(Agent::find()?, command, out).await,
        Command::Approvals(command) => approvals::run(Agent::find()?, command, out).await,
        Command::Conversations(command) => conversations::run(Agent::find()?, command, out).await,
        Command::Find(find) => find::run(Agent::find()?, find, out).await,
        Command::Callback(command) => callback::run(Agent::find()?, command, out).await,
        Command::Allowlist(command) => allowlist::run(Agent::find()?, command, out).await,
        Command::Deliveries(command) => deliveries::run(Agent::find()?, command, out).await,
        Command::Listen(listen) => listen::run(Agent::find()?, listen, out).await,
        Command::Notifications(command) => notifications::run(Agent::find()?, command, out).await,
        Command::Doctor(doctor) => doctor::run(Agent::find()?, doctor, itself.look, out).await,
        Command::UpgradeCheck => upgrade::check(Agent::find()?, out).await,
        Command::Log(log) => doctor::log(Agent::find()?, log, out).await,
        Command::Bundle(make) => bundle::run(Agent::find()?, make, out).await,
        Command::Man { folder } => man::write(Cli::command(), &folder, out),
        Command::Settings(command) => settings::run(Agent::find()?, command, out).await,
        Command::Autostart(command) => autostart::run(Agent::find()?, command, out).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "deskgate", &mut std::io::stdout());
            Ok(())
        }
        Command::ExitCodes => {
            print!("{}", exit::TABLE);
            Ok(())
        }
    }
}

/// How a pasted secret in a place for something else is named.
fn no_secret(what: &str, text: &str) -> Result<(), Failure> {
    match deskgate_protocol::secret::SecretKind::of(text) {
        Some(kind) => {
            Err(Failure::new(Exit::Usage, format!("{what}: this is {kind}, which does not belong on a command line")))
        }
        None => Ok(()),
    }
}
