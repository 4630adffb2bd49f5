//! `deliveries`: deliveries to receivers, with every attempt.

use clap::Subcommand;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records::deliveries as records;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{ListDeliveries, RecoverDeliveries, ResendDelivery, ShowDelivery, TriggerDelivery};
use deskgate_protocol::{DeliveryId, RunId, Timestamp};
use serde_json::json;

use super::app;
use super::socket::AgentClient;

/// `deskgate deliveries …`
#[derive(Debug, Subcommand)]
pub(super) enum DeliveriesCommand {
    /// Deliveries, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only deliveries older than this one
        #[arg(long, value_name = "DELIVERY")]
        before: Option<DeliveryId>,
        /// Only in this state: pending, delivered, exhausted or discarded
        #[arg(long, value_name = "STATE")]
        state: Option<DeliveryState>,
        /// Only of this application: its name or identifier, removed or not
        #[arg(long, value_name = "APP")]
        app: Option<String>,
        /// Only of this run
        #[arg(long, value_name = "RUN")]
        run: Option<RunId>,
    },
    /// One delivery with its attempts
    Show {
        /// Which
        delivery: DeliveryId,
    },
    /// Send one again, whatever came of it; the receiver knows it by the same event
    Resend {
        /// Which
        delivery: DeliveryId,
    },
    /// Send again everything that an application's callback did not take since a time
    Recover {
        /// The application: its name or identifier
        app: String,
        /// Since when, as in 2026-11-21T09:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Timestamp,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Send a sample of an event to an application's callback, and to whoever listens
    Trigger {
        /// The event, as in run.succeeded
        event: CallbackEvent,
        /// The application: its name or identifier
        #[arg(long)]
        app: String,
    },
}

pub(super) async fn run(agent: AgentClient, command: DeliveriesCommand, out: Output) -> Result<(), Failure> {
    match command {
        DeliveriesCommand::List { limit, before, state, app, run } => {
            let app_id = app::find_given(&agent, app).await?;
            let page = agent.manage(ListDeliveries { limit, before, app_id, run_id: run, state }).await?;
            out.result("deliveries/1", &page, || records::page(&page));
        }
        DeliveriesCommand::Show { delivery } => {
            let detail = agent.manage(ShowDelivery { delivery_id: delivery, wait_s: 0, seen: 0 }).await?;
            out.result("delivery/1", &detail, || records::detail(&detail));
        }
        DeliveriesCommand::Resend { delivery } => {
            let own = agent.manage(ResendDelivery { delivery_id: delivery }).await?;
            out.result("delivery-resent/1", &own, || {
                format!("{delivery} is sent again; see: deskgate deliveries show {delivery}")
            });
        }
        DeliveriesCommand::Recover { app, since, confirmation } => {
            let app_id = app::find(&agent, &app).await?;
            let recover = RecoverDeliveries { app_id, since, only_count: true };
            let count = agent.manage(recover).await?.deliveries;
            if count > 0 {
                confirmation.confirm(&format!("{count} deliveries since {since} are sent again."))?;
            }
            let recovered = agent.manage(RecoverDeliveries { only_count: false, ..recover }).await?;
            out.result("deliveries-recovered/1", &recovered, || {
                format!("{} deliveries are sent again.", recovered.deliveries)
            });
        }
        DeliveriesCommand::Trigger { event, app } => {
            let app_id = app::find(&agent, &app).await?;
            let queued = agent.manage(TriggerDelivery { app_id, kind: event }).await?;
            out.result("deliveries-triggered/1", &json!({ "deliveries": queued }), || records::list(&queued));
        }
    }
    Ok(())
}
