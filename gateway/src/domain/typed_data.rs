//! Typed data: schemas that owners and callers bring, and whether what comes in and goes out fits them.
//!
//! Schemas and data are foreign, and to read or to check one may take a while: both are done beside the tasks that serve.

use deskgate_protocol::run::{Effects, Outcome, Output, RunError, RunErrorCode, RunResult};
use deskgate_protocol::service::ServiceData;
use deskgate_protocol::{DeviceId, RunId};
use deskgate_schema::{DataSchema, Mismatch, UnsupportedSchema};
use serde_json::Value;

use super::refusal::{Flaw, Refusal};
use crate::store::admissions::InputSchema;
use crate::store::{self, Store};

/// Whether a schema can be used.
///
/// # Errors
/// [`Refusal::SchemaUnsupported`]: it cannot; the place is told below `pointer`. [`Refusal::Internal`]: the gateway is at fault.
pub async fn check_schema(schema: Value, pointer: &'static str) -> Result<(), Refusal> {
    let UnsupportedSchema(found) = match aside(move || DataSchema::read(schema).map(drop)).await? {
        Ok(()) => return Ok(()),
        Err(unsupported) => unsupported,
    };
    let pointer = format!("{pointer}{}", found.pointer);
    Err(Refusal::SchemaUnsupported(Flaw::new(pointer, "unsupported", found.detail)))
}

/// Whether the schemas of a service can be used.
///
/// # Errors
/// As of [`check_schema`].
pub async fn check_service(data: &ServiceData) -> Result<(), Refusal> {
    for (schema, pointer) in [(&data.input_schema, "/input_schema"), (&data.output_schema, "/output_schema")] {
        if let Some(schema) = schema {
            check_schema(schema.clone(), pointer).await?;
        }
    }
    Ok(())
}

/// Whether the data of an input fits a service's schema.
///
/// # Errors
/// [`Refusal::Invalid`]: it does not, or there is none. [`Refusal::Internal`]: the gateway is at fault.
pub(super) async fn check_input(InputSchema { schema, .. }: InputSchema, data: Option<&Value>) -> Result<(), Refusal> {
    const POINTER: &str = "/input/data";
    let Some(data) = data.cloned() else {
        let detail = "an object that fits the `input_schema` of the service";
        return Err(Refusal::Invalid(vec![Flaw::new(POINTER, "required", detail)]));
    };
    let checked = aside(move || DataSchema::read(schema).map(|schema| schema.check(&data))).await?;
    let fits = checked.map_err(|error| {
        tracing::error!(%error, "the schema of a service cannot be used");
        Refusal::Internal
    })?;
    fits.map_err(|Mismatch(found)| {
        let flaw = |found: deskgate_schema::Finding| {
            Flaw::new(format!("{POINTER}{}", found.pointer), "schema_mismatch", found.detail)
        };
        Refusal::Invalid(found.into_iter().map(flaw).collect())
    })
}

/// What is stored of a result that a device reports: as it is if its data fits the run's output. Data is from a device: what
/// does not fit is never passed on as a success.
///
/// # Errors
/// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
pub async fn check_outcome(
    store: &Store,
    device_id: DeviceId,
    run_id: RunId,
    outcome: Outcome,
) -> Result<Outcome, Refusal> {
    let Outcome::Succeeded { result, usage } = outcome else { return Ok(outcome) };
    let checked = match store.output_of_run(device_id, run_id).await? {
        None => Ok(RunResult { data: None, ..result }),
        Some(output) => aside(move || check_result(output, result)).await?,
    };
    Ok(match checked {
        Ok(result) => Outcome::Succeeded { result, usage },
        Err(why) => {
            tracing::warn!(%run_id, %device_id, why, "the device reported data that does not fit");
            let message = format!("The answer did not fit the schema: {why}.");
            let code = RunErrorCode::OutputMismatch;
            Outcome::Failed { error: RunError { code, message, retryable: true, effects: Effects::Possible }, usage }
        }
    })
}

fn check_result(output: Output, result: RunResult) -> Result<RunResult, String> {
    let schema = DataSchema::read(output.schema).map_err(|error| error.to_string())?;
    let data = result.data.as_deref().ok_or_else(|| "it has no data".to_owned())?;
    schema.check(data).map_err(|mismatch| mismatch.to_string())?;
    Ok(result)
}

/// The refusal of a run's own schema.
pub(super) fn output_not_taken() -> Refusal {
    let detail = "results of this service have the data that its own `output_schema` says, or none; leave `output` out";
    Refusal::Invalid(vec![Flaw::new("/output", "not_taken", detail)])
}

/// The refusal of work whose service is published again during each try.
pub(super) fn kept_changing() -> Refusal {
    store::Error::Unavailable("the service was published again and again".to_owned()).into()
}

/// Does what may take a while.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a schema could not be worked with");
        Refusal::Internal
    })
}
