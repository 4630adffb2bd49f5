//! The life of a device's services at the gateway: published, disabled, enabled, unpublished.

use deskgate_protocol::EndpointId;
use deskgate_protocol::management::{
    EnableEndpoint, PreviewUnpublishing, PublishEndpoint, PublishedEndpoint, UnpublishEndpoint, UnpublishingPreview,
};
use deskgate_protocol::service::{check_description, check_name, check_tool_name};
use unicode_normalization::UnicodeNormalization;

use super::{Desktop, DesktopResult, ManagementError, conflict, invalid, not_found, quota_reached};
use crate::domain::typed_data;
use crate::store::endpoints::PublicationOutcome;

impl Desktop {
    /// Publishes a version of a service.
    ///
    /// # Errors
    /// `Invalid`: the name is not usable, nor is the tool's, the description is too long, or the version is 0. `NotFound`: the device has no
    /// such application. `Conflict`: the application was disabled, another service of it has the name, or the version
    /// does not follow the published one, or its runs are still being ended. `QuotaReached`: there are the most services that there may be. `Unavailable`:
    /// the database does not answer, or refuses the statement.
    pub async fn publish(&self, request: PublishEndpoint) -> DesktopResult<PublishedEndpoint> {
        check_name(&request.name).map_err(invalid)?;
        check_description(&request.description).map_err(invalid)?;
        if request.version == 0 {
            return Err(invalid("a service's versions are counted from 1".to_owned()));
        }
        typed_data::check_service(&request.data).await.map_err(|refusal| invalid(refusal.to_string()))?;
        request.data.tool_name.as_deref().map_or(Ok(()), check_tool_name).map_err(invalid)?;
        match self.store.publish(self.owner(), &request, &tool_name_of(&request.name)).await? {
            PublicationOutcome::Published(endpoint) => Ok(*endpoint),
            PublicationOutcome::NoSuchApplication => {
                Err(not_found(format!("there is no application {}", request.app_id)))
            }
            PublicationOutcome::Disabled => {
                Err(conflict("the application was disabled; nothing can be published for it any more".to_owned()))
            }
            PublicationOutcome::NameTaken => Err(conflict(format!(
                "the application already has a service named {:?}; choose another name",
                request.name
            ))),
            PublicationOutcome::WrongVersion { published } => Err(conflict(format!(
                "version {} cannot be published: the published version is {published}",
                request.version
            ))),
            PublicationOutcome::StillEnding => Err(conflict(
                "the service was unpublished, and its runs are still being ended; try again in a moment".to_owned(),
            )),
            PublicationOutcome::QuotaReached(reached) => Err(quota_reached(reached)),
        }
    }

    /// The services that were published here, also those that are not any more, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn endpoints(&self) -> DesktopResult<Vec<PublishedEndpoint>> {
        Ok(self.store.published_by(self.device_id).await?)
    }

    /// What unpublishing would end.
    ///
    /// # Errors
    /// `NotFound`: the device has no such service. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn preview_unpublishing(&self, request: PreviewUnpublishing) -> DesktopResult<UnpublishingPreview> {
        let preview = self.store.preview_unpublishing(self.device_id, request.endpoint_id).await?;
        preview.ok_or_else(|| unknown(request.endpoint_id))
    }

    /// Takes a service away from its callers, and ends its runs.
    ///
    /// # Errors
    /// `NotFound`: the device has no such service. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn unpublish(&self, request: UnpublishEndpoint) -> DesktopResult<PublishedEndpoint> {
        let UnpublishEndpoint { endpoint_id } = request;
        let unpublished = self.store.unpublish(self.owner(), endpoint_id, self.retention).await?;
        tracing::info!(%endpoint_id, device_id = %self.device_id, "service unpublished");
        unpublished.ok_or_else(|| unknown(endpoint_id))
    }

    /// Enables or disables a service.
    ///
    /// # Errors
    /// `NotFound`: the device has no such published service. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn enable_endpoint(&self, request: EnableEndpoint) -> DesktopResult<PublishedEndpoint> {
        let EnableEndpoint { endpoint_id, enabled } = request;
        let endpoint = self.store.enable_endpoint(self.owner(), endpoint_id, enabled).await?;
        tracing::info!(%endpoint_id, device_id = %self.device_id, enabled, "service enabled or disabled");
        endpoint.ok_or_else(|| unknown(endpoint_id))
    }
}

fn unknown(endpoint_id: EndpointId) -> ManagementError {
    not_found(format!("this gateway has no published service {endpoint_id} of this device"))
}

/// The most characters that a service's own name gives to that of its tool, which may get a number behind it.
const MAX_SLUG_CHARS: usize = 56;

/// The name of a service as a tool of MCP, as long as its owner chooses none.
fn tool_name_of(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.nfkd().flat_map(char::to_lowercase) {
        match letter {
            'ß' => slug.push_str("ss"),
            'a'..='z' | '0'..='9' => slug.push(letter),
            // The marks that decomposition leaves beside their letters.
            '\u{300}'..='\u{36f}' => {}
            _ if slug.ends_with('_') || slug.is_empty() => {}
            _ => slug.push('_'),
        }
        if slug.len() >= MAX_SLUG_CHARS {
            break;
        }
    }
    let slug = slug.trim_end_matches('_');
    format!("ask_{}", if slug.is_empty() { "service" } else { slug })
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::service::MAX_NAME_CHARS;

    #[test]
    fn a_tool_is_called_like_its_service() {
        let names = ["Invoices", "Größe & Prüfung (2)", "  -x-  ", "漢字", "Deskgate_run"].map(tool_name_of);
        assert_eq!(names, ["ask_invoices", "ask_grosse_prufung_2", "ask_x", "ask_service", "ask_deskgate_run"]);
        for name in ["a".repeat(MAX_NAME_CHARS), "ß".repeat(MAX_NAME_CHARS), "é ".repeat(MAX_NAME_CHARS / 2)] {
            let tool = tool_name_of(&name);
            assert!(check_tool_name(&tool).is_ok() && tool.len() <= 62, "{tool}");
        }
    }
}
