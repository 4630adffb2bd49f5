//! `service templates`: what a new service may begin as.

use deskgate_definition::ServiceTemplate;
use deskgate_program::output::Output;
use deskgate_program::records;
use serde_json::json;

/// Lists the templates.
pub(super) fn list(out: Output) {
    let all: Vec<_> = ServiceTemplate::ALL.into_iter().map(view).collect();
    out.result("service-templates/1", &json!({ "templates": all }), || {
        let table = records::list(&ServiceTemplate::ALL, "", &["NAME", "FOR", "WHAT IT MAY DO"], |template| {
            vec![template.as_str(), template.title(), template.may()]
        });
        format!(
            "{table}\nNext: deskgate service create NAME --app APP --dir FOLDER --template {}",
            ServiceTemplate::ReadOnly
        )
    });
}

fn view(template: ServiceTemplate) -> serde_json::Value {
    let definition = template.definition();
    json!({
        "name": template,
        "title": template.title(),
        "may": template.may(),
        "tools": definition.tools,
        "instructions": definition.instructions,
    })
}
