//! The data types under the agent's other crates: a service as its owner defined it, and the contract of tools.
//!
//! | module | contents |
//! |---|---|
//! | [`definition`], [`limits`], [`network`], [`protected`], [`protected_names`], [`folder_identity`], [`skill`], [`tool_name`], [`provider`], [`reasoning`], [`model_reads`], [`mcp_server`] | the definition, field by field |
//! | [`service_template`] | what a new service may begin as |
//! | [`approvals`] | which calls run, which ask first, which never run |
//! | [`service`], [`check`] | a service's draft and published version, and the results of its checks |
//! | [`tool`] | the contract of tools, and a call with what it would do |
//! | [`model_failure`] | why a model could not be used, in its provider's words |
//! | [`key_place`], [`names`], [`spending`], [`budget`] | where keys are kept; which names are valid; tokens and money, spent and allowed |
//!
//! Data only: this crate calls no provider, opens no database and runs no tool. The agent's `services` work with it.

pub mod approvals;
pub mod budget;
pub mod check;
pub mod definition;
pub mod folder_identity;
pub mod key_place;
pub mod limits;
pub mod mcp_server;
pub mod model_failure;
pub mod model_reads;
pub mod names;
pub mod network;
pub mod protected;
pub mod protected_names;
pub mod provider;
pub mod reasoning;
pub mod service;
pub mod service_template;
pub mod skill;
pub mod spending;
pub mod tool;
pub mod tool_name;
mod typed_data;

pub use approvals::ApprovalPolicy;
pub use budget::{Budget, BudgetLevel, BudgetScope, BudgetStatus, ExpectedCall};
pub use check::{Check, CheckReport, CheckResult};
pub use definition::{Definition, FieldError, InvalidDefinition};
pub use folder_identity::FolderIdentity;
pub use key_place::KeyPlace;
pub use limits::RunLimits;
pub use mcp_server::{MAX_MCP_SERVERS, McpServer};
pub use model_failure::{ModelFailure, ProviderErrorDetail};
pub use model_reads::ModelReads;
pub use names::{RESERVED_NAME, is_short_name};
pub use network::Network;
pub use protected::{ProtectedName, ProtectedPaths, is_taken_off};
pub use protected_names::PROTECTED_NAMES;
pub use provider::{Provider, SCRIPTED_PROVIDER};
pub use reasoning::{Effort, Reasoning, ReasoningSummaries};
pub use service::{Service, ServiceStage, Version};
pub use service_template::ServiceTemplate;
pub use skill::{Skill, SkillError};
pub use spending::{CostShownTo, MicroUsd, Spending};
pub use tool_name::ToolName;
pub use typed_data::TypedData;
