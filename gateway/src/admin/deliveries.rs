//! Hosts that callbacks may go to, and deliveries: the commands, and the running gateway's answers.

use std::path::Path;

use clap::Subcommand;
use deskgate_protocol::delivery::DeliveryState;
use deskgate_protocol::management::{ListDeliveries, RecordKind, RecoverDeliveries, Recovery};
use deskgate_protocol::{DeliveryId, RunId, Timestamp};
use serde_json::json;

use super::applications::find as find_application;
use super::client::{done, find_by_end, send_request, unexpected};
use super::runs::find as find_run;
use super::{AdminErrorCode, AdminReply, AdminRequest};
use crate::domain::destinations::HostName;
use crate::store::Store;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records::Noun;
use deskgate_program::records::deliveries as records;
use deskgate_program::records::given::GivenId;

/// `deskgate-gateway admin allowlist …`
#[derive(Debug, Subcommand)]
pub enum AllowlistCommand {
    /// Every host that callbacks may go to; none: no callback is sent anywhere
    Show,
    /// Allow one host more
    Add {
        /// Its exact name, such as hooks.example.com
        host: String,
    },
    /// Allow one host no more; its callbacks fail from the next attempt on
    Remove {
        /// Its exact name
        host: String,
    },
}

const DELIVERIES: Noun =
    Noun { singular: "delivery", plural: "deliveries", list: "deskgate-gateway admin delivery list" };

/// `deskgate-gateway admin delivery …`
#[derive(Debug, Subcommand)]
pub enum DeliveryCommand {
    /// Deliveries of all applications, newest first
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
        /// Only of this application, by its name or identifier
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
    /// Send one again, whatever came of it
    Resend {
        /// Its identifier, or the end of it as `delivery list` shows it
        delivery: GivenId<DeliveryId>,
    },
    /// Send again everything that an application's callback did not take since a time
    Recover {
        /// The application: its name or identifier
        #[arg(long, value_name = "APP")]
        app: String,
        /// Since when, as in 2026-11-21T09:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Timestamp,
        /// Only count them
        #[arg(long)]
        count: bool,
    },
}

/// Runs a command about hosts.
pub(super) async fn allowlist(socket: &Path, command: AllowlistCommand, out: Output) -> Result<(), Failure> {
    match command {
        AllowlistCommand::Show => {}
        AllowlistCommand::Add { host } => done(socket, AdminRequest::AllowlistAdd { host }).await?,
        AllowlistCommand::Remove { host } => done(socket, AdminRequest::AllowlistRemove { host }).await?,
    }
    match send_request(socket, AdminRequest::Allowlist).await? {
        AdminReply::Hosts { hosts } => {
            out.result("allowlist/1", &json!({ "hosts": hosts }), || match hosts.as_slice() {
                [] => "No host is allowed: no callback is sent anywhere.".to_owned(),
                hosts => hosts.join("\n"),
            });
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

/// A delivery by its identifier, or by the end of it.
async fn find(socket: &Path, given: GivenId<DeliveryId>) -> Result<DeliveryId, Failure> {
    given.resolve(&DELIVERIES, async |end: &str| find_by_end(socket, RecordKind::Delivery, end).await).await
}

/// Runs a command about deliveries.
pub(super) async fn delivery(socket: &Path, command: DeliveryCommand, out: Output) -> Result<(), Failure> {
    let asked = match command {
        DeliveryCommand::List { limit, before, state, app, run } => {
            let before = match before {
                Some(before) => Some(find(socket, before).await?),
                None => None,
            };
            let app_id = match app {
                Some(app) => Some(find_application(socket, &app).await?),
                None => None,
            };
            let run_id = match run {
                Some(run) => Some(find_run(socket, run).await?),
                None => None,
            };
            AdminRequest::DeliveryList(ListDeliveries { limit, before, app_id, run_id, state })
        }
        DeliveryCommand::Show { delivery } => AdminRequest::DeliveryShow { delivery_id: find(socket, delivery).await? },
        DeliveryCommand::Resend { delivery } => {
            let delivery_id = find(socket, delivery).await?;
            done(socket, AdminRequest::DeliveryResend { delivery_id }).await?;
            AdminRequest::DeliveryShow { delivery_id }
        }
        DeliveryCommand::Recover { app, since, count } => {
            let app_id = find_application(socket, &app).await?;
            AdminRequest::DeliveryRecover(RecoverDeliveries { app_id, since, only_count: count })
        }
    };
    match send_request(socket, asked).await? {
        AdminReply::Deliveries(page) => out.result("deliveries/1", &page, || records::page(&page)),
        AdminReply::Delivery(detail) => out.result("delivery/1", &detail, || records::detail(&detail)),
        AdminReply::Recovered(recovery) => {
            out.result("deliveries-recovered/1", &recovery, || format!("{} deliveries", recovery.deliveries));
        }
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

/// Answers requests about hosts and deliveries.
pub(super) async fn answer(store: &Store, asked: AdminRequest) -> Result<AdminReply, AdminReply> {
    let unknown = |id: DeliveryId| no(AdminErrorCode::NotFound, format!("there is no delivery {id}"));
    match asked {
        AdminRequest::Allowlist => Ok(AdminReply::Hosts { hosts: store.allowed_hosts().await? }),
        AdminRequest::AllowlistAdd { host } => {
            store.allow_host(name(&host)?.as_str()).await?;
            tracing::info!("a host was added to those that callbacks may go to");
            Ok(AdminReply::Done)
        }
        AdminRequest::AllowlistRemove { host } => match store.disallow_host(name(&host)?.as_str()).await? {
            true => {
                tracing::info!("a host was taken from those that callbacks may go to");
                Ok(AdminReply::Done)
            }
            false => Err(no(AdminErrorCode::NotFound, format!("{host:?} is not on the list"))),
        },
        AdminRequest::DeliveryList(sought) => Ok(AdminReply::Deliveries(store.own_deliveries(None, &sought).await?)),
        AdminRequest::DeliveryShow { delivery_id } => {
            let detail = store.own_delivery(None, delivery_id).await?;
            detail.map(|detail| AdminReply::Delivery(Box::new(detail))).ok_or_else(|| unknown(delivery_id))
        }
        AdminRequest::DeliveryResend { delivery_id } => {
            store.own_delivery(None, delivery_id).await?.ok_or_else(|| unknown(delivery_id))?;
            match store.resend_delivery(None, delivery_id).await? {
                true => Ok(AdminReply::Done),
                false => {
                    Err(no(AdminErrorCode::Refused, "nothing is sent where this went: its owner must enable it first"))
                }
            }
        }
        AdminRequest::DeliveryRecover(RecoverDeliveries { app_id, since, only_count }) => {
            let deliveries = match only_count {
                true => store.count_failed_deliveries(None, app_id, since).await?,
                false => store.recover_deliveries(None, app_id, since).await?,
            };
            Ok(AdminReply::Recovered(Recovery { deliveries }))
        }
        _ => Err(no(AdminErrorCode::Invalid, "this is asked elsewhere")),
    }
}

fn name(host: &str) -> Result<HostName, AdminReply> {
    HostName::parse(host).map_err(|wrong| no(AdminErrorCode::Invalid, format!("{host:?}: {wrong}")))
}

fn no(code: AdminErrorCode, message: impl Into<String>) -> AdminReply {
    AdminReply::No { code, message: message.into() }
}
