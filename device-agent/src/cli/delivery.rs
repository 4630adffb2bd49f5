//! `delivery`: deliveries to receivers, with every attempt.

use clap::Subcommand;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records::Noun;
use deskgate_program::records::deliveries as records;
use deskgate_program::records::given::GivenId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{
    ListDeliveries, RecordKind, RecoverDeliveries, ResendDelivery, ShowDelivery, TriggerDelivery,
};
use deskgate_protocol::{DeliveryId, RunId, Timestamp};
use serde_json::json;

use super::socket::AgentClient;
use super::{app, run};

const DELIVERIES: Noun = Noun { singular: "delivery", plural: "deliveries", list: "deskgate delivery list" };

/// `deskgate delivery …`
#[derive(Debug, Subcommand)]
pub(super) enum DeliveryCommand {
    /// Deliveries, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only deliveries older than this one
        #[arg(long, value_name = "DELIVERY")]
        before: Option<GivenId<DeliveryId>>,
        /// Only in this state: pending, delivered, exhausted or discarded
        #[arg(long, value_name = "STATE")]
        state: Option<DeliveryState>,
        /// Only of this application: its name or identifier, removed or not
        #[arg(long, value_name = "APP")]
        app: Option<String>,
        /// Only of this run
        #[arg(long, value_name = "RUN")]
        run: Option<GivenId<RunId>>,
    },
    /// One delivery with its attempts
    Show {
        /// Its identifier, or the end of it as `delivery list` shows it
        delivery: GivenId<DeliveryId>,
    },
    /// Send one again, whatever came of it; the receiver knows it by the same event
    Resend {
        /// Its identifier, or the end of it as `delivery list` shows it
        delivery: GivenId<DeliveryId>,
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

pub(super) async fn run(agent: AgentClient, command: DeliveryCommand, out: Output) -> Result<(), Failure> {
    match command {
        DeliveryCommand::List { limit, before, state, app, run } => {
            let app_id = app::find_given(&agent, app).await?;
            let run_id = run::find_given(&agent, run).await?;
            let before = match before {
                Some(before) => Some(find(&agent, before).await?),
                None => None,
            };
            let page = agent.manage(ListDeliveries { limit, before, app_id, run_id, state }).await?;
            out.result("deliveries/1", &page, || records::page(&page));
        }
        DeliveryCommand::Show { delivery } => {
            let delivery_id = find(&agent, delivery).await?;
            let detail = agent.manage(ShowDelivery { delivery_id, wait_s: 0, seen: 0 }).await?;
            out.result("delivery/1", &detail, || records::detail(&detail));
        }
        DeliveryCommand::Resend { delivery } => {
            let delivery = find(&agent, delivery).await?;
            let own = agent.manage(ResendDelivery { delivery_id: delivery }).await?;
            out.result("delivery-resent/1", &own, || {
                format!("{delivery} is sent again; see: deskgate delivery show {delivery}")
            });
        }
        DeliveryCommand::Recover { app, since, confirmation } => {
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
        DeliveryCommand::Trigger { event, app } => {
            let app_id = app::find(&agent, &app).await?;
            let queued = agent.manage(TriggerDelivery { app_id, kind: event }).await?;
            out.result("deliveries-triggered/1", &json!({ "deliveries": queued }), || records::list(&queued));
        }
    }
    Ok(())
}

/// A delivery by its identifier, or by the end of it.
async fn find(agent: &AgentClient, given: GivenId<DeliveryId>) -> Result<DeliveryId, Failure> {
    given.resolve(&DELIVERIES, async |end: &str| agent.by_end(RecordKind::Delivery, end).await).await
}
