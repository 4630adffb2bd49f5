//! Joins the public address to the device service: serves the devices that connect there with an account.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::control::service::ControlService;
use crate::http::hosted::AccountArrival;

/// The time for sending the answer, after which the connection begins.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the devices that connected with an account, until the services close.
pub(super) async fn receive(mut arrivals: mpsc::Receiver<AccountArrival>, service: ControlService) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            () = service.stop.cancelled() => break,
            Some(_) = sessions.join_next() => {}
            arrival = arrivals.recv() => match arrival {
                Some(arrival) => {
                    let service = service.clone();
                    sessions.spawn(async move { serve(arrival, &service).await });
                }
                None => break,
            },
        }
    }
    // Sessions say goodbye by themselves when the gateway stops.
    while sessions.join_next().await.is_some() {}
}

async fn serve(arrival: AccountArrival, service: &ControlService) {
    let (grant, is_for_transfers) = (arrival.grant.clone(), arrival.is_for_transfers);
    match timeout(UPGRADE_TIMEOUT, arrival.stream()).await {
        Ok(Ok((stream, _lodging))) if is_for_transfers => service.serve_account_transfers(stream).await,
        Ok(Ok((stream, _lodging))) => service.serve_account(stream, grant).await,
        Ok(Err(error)) => tracing::debug!(%error, "a device was gone before its line began"),
        Err(_) => tracing::debug!("a device did not take the answer to its upgrade"),
    }
}
