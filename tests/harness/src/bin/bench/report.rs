//! The results: a table on the screen, and target/bench/results.json.

use anyhow::Context;
use deskgate_harness::report;
use serde_json::{Map, Value, json};

/// Every result's name in results.json, with its explanation on the screen.
pub(crate) const METRICS: [(&str, &str); 54] = [
    ("accept_vs_pgbench", "accepted runs per second over pgbench's one row a commit in such a table; at least 1.0"),
    ("accept_vs_pgbench_bare_row", "the same over rows with two indexes and no constraints"),
    ("accept_vs_http_ceiling", "accepted runs per second over a POST that does nothing on the same HTTP stack"),
    ("get_run_per_s_vs_http_ceiling", "readings of a run per second over the same POST that does nothing"),
    ("hook_vs_submit", "signed events per second that become runs over submitted runs per second"),
    ("deliver_vs_bare_client", "callbacks confirmed per second over what a client that only posts gets answered"),
    ("accept_p99_ms", "99 of 100 submissions at half of the most are accepted within this; ms from their schedule"),
    ("accept_with_worker_vs_alone", "accepted per second while a device drains the queue, over none connected"),
    (
        "openai_accept_vs_native",
        "responses of OpenAI's API accepted per second in the background, over runs; at least 0.8",
    ),
    ("mcp_call_vs_native", "calls of a tool of MCP that do not wait, accepted per second over runs; at least 0.7"),
    ("accept_two_replicas_vs_one", "accepted per second by two gateways on one database, over one gateway"),
    ("tunnel_throughput_vs_openssh", "bytes per second through our SSH at both ends, over OpenSSH at both ends"),
    ("tunnel_rtt_vs_openssh", "a small question and its answer through the same; below 1 is faster"),
    (
        "file_through_tunnel_vs_openssh",
        "bytes per second of a 64 MiB file to a run, over scp's by OpenSSH's connection; at least 0.8",
    ),
    ("artifact_through_tunnel_vs_openssh", "the same of one that a run hands out; at least 0.8"),
    (
        "accept_p99_beside_transfer",
        "99 of 100 submissions are accepted within this, beside files to a device, over alone; at most 1.2",
    ),
    ("files_rss_gateway_mib", "how far the gateway's memory strays while 2 GiB of files pass; MiB, at most 10"),
    ("files_rss_device_mib", "the same of the desktop's agent; MiB, at most 10"),
    ("start_ms", "from the start of a gateway until it is ready, its private database included; ms"),
    (
        "reconnect_ms_p50",
        "from the return of a line that was cut for 3 s until a waiting run has ended; ms, at most 300",
    ),
    ("submit_to_final_ms_p50_builtin", "from the POST to the final record, gateway inside the desktop; ms"),
    ("submit_to_final_ms_p99_builtin", "the same, 99 of 100; ms"),
    ("submit_to_final_ms_p999_builtin", "the same, 999 of 1,000: shows stalls; ms"),
    ("submit_to_final_ms_p50_ssh", "from the POST to the final record, device behind SSH; ms, aim under 5"),
    ("submit_to_final_ms_p99_ssh", "the same, 99 of 100; ms"),
    ("submit_to_final_ms_p999_ssh", "the same, 999 of 1,000: shows stalls; ms"),
    (
        "drain_after_quiet_night_vs_fresh",
        "working off behind a million ended runs, planned while nothing waited, over the same without; at least 0.9",
    ),
    ("claim_million_vs_thousand", "taking 16 of a million queued runs over taking 16 of a thousand; at most 1.5"),
    ("drain_one_device", "runs a second that one agent finishes over what is accepted with none; at least 0.15"),
    ("drain_eight_devices", "the same of eight agents; at least 0.3"),
    ("cpu_us_per_run", "processor time of all programs for a run that one agent finishes; us, at most 700"),
    ("statements_per_s_500_idle_devices", "what 500 connected devices with nothing to do ask the database; at most 30"),
    ("list_page100_vs_page1", "the hundredth page of a list of a million runs over the first; at most 1.5"),
    ("event_latency_ms_p50", "from a device's frame to the socket of one who follows the run; ms"),
    ("event_latency_ms_p99", "the same, 99 of 100; ms"),
    ("event_latency_ms_p50_1000", "the same to 1,000 who follow the run, until each of them has it; ms"),
    ("event_latency_ms_p99_1000", "the same, 99 of 100; ms"),
    ("kib_per_stream", "what the gateway holds for each open stream; KiB, at most 40"),
    ("streams_5000_mib", "what the gateway holds for 5,000 open streams on as many runs; MiB, at most 200"),
    ("streams_5000_idle_cpu_percent", "of one core, what it uses for them while nothing happens"),
    ("rss_gateway_idle_mib", "the gateway with a connected device and nothing to do; MiB, aim 20"),
    ("agent_overhead_ms_p50", "a turn that reads a small file, with an assistant that answers at once; ms"),
    (
        "refused_offers_per_run",
        "offers that a device refused, for each of 60 runs of a service of one place; at most 0.05",
    ),
    ("one_place_time_ratio", "the time that these 60 runs took over the work that is in them; at most 1.05"),
    ("eight_reads_vs_one", "a turn that reads eight files over one that reads one; 1.5 is the aim"),
    (
        "model_input_cached",
        "of what a model read in a run of 50 turns, the share that its vendor's cache had; 0.85 is the aim",
    ),
    ("agent_overhead_http_ms_p50", "the same with a model behind HTTP on loopback, less that server's own time; ms"),
    ("rss_device_idle_mib", "the desktop's agent, connected over SSH, with nothing to do; MiB, aim 20"),
    ("rss_device_8_active_mib", "the same with 8 runs that have read 20 files each and wait for their model; MiB"),
    ("page_ms_p50", "a management page, with 100,000 runs in the store; ms, at most 50"),
    ("page_ms_p99", "the same, 99 of 100; ms"),
    ("grep_vs_ripgrep", "Grep over 50,000 files over ripgrep's program; at most 1.3"),
    ("glob_vs_ripgrep", "Glob over the same, newest first, over ripgrep's list in any order; at most 1.3"),
    ("rss_gateway_100k_queued_mib", "the gateway after accepting 100,000 runs that wait; MiB, aim 40"),
];

/// What must hold: a full run that finds it broken fails.
const LIMITS: [(&str, Limit); 7] = [
    ("openai_accept_vs_native", Limit::AtLeast(0.8)),
    ("mcp_call_vs_native", Limit::AtLeast(0.7)),
    ("file_through_tunnel_vs_openssh", Limit::AtLeast(0.8)),
    ("artifact_through_tunnel_vs_openssh", Limit::AtLeast(0.8)),
    ("accept_p99_beside_transfer", Limit::AtMost(1.2)),
    ("files_rss_gateway_mib", Limit::AtMost(10.0)),
    ("files_rss_device_mib", Limit::AtMost(10.0)),
];

/// The limit of a result.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    /// What is wrong with a value, as the rest of a sentence.
    fn flaw(self, value: f64) -> Option<String> {
        match self {
            _ if value.is_nan() => Some("is no number".to_owned()),
            Self::AtLeast(least) if value < least => Some(format!("is {value:.3}, and must be at least {least}")),
            Self::AtMost(most) if value > most => Some(format!("is {value:.3}, and must be at most {most}")),
            Self::AtLeast(_) | Self::AtMost(_) => None,
        }
    }
}

/// The results so far.
pub(crate) struct BenchReport {
    quick: bool,
    values: Vec<(&'static str, f64)>,
    parts: Map<String, Value>,
}

impl BenchReport {
    /// An empty report.
    pub(crate) fn new(quick: bool) -> Self {
        Self { quick, values: Vec::new(), parts: Map::new() }
    }

    /// Records a result.
    pub(crate) fn value(&mut self, name: &'static str, value: f64) {
        println!("  {name} = {value:.3}");
        self.values.push((name, value));
    }

    /// Records a part of a result.
    pub(crate) fn part(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        println!("    {name}: {value}");
        self.parts.insert(name.to_owned(), value);
    }

    /// Prints the table and writes the file.
    ///
    /// # Errors
    /// A limit is broken, if the run was no quick one; or the file cannot be written.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        println!();
        for (name, explanation) in METRICS {
            if let Some((_, value)) = self.values.iter().find(|(measured, _)| *measured == name) {
                println!("{name:<32} {value:>9.3}  {explanation}");
            }
        }
        if self.quick {
            println!("\nA quick run: it shows that everything works. Its numbers mean little.");
        }
        let mut results: Map<String, Value> =
            self.values.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        results.insert("quick".to_owned(), self.quick.into());
        results.insert("machine".to_owned(), report::machine());
        results.insert("parts".to_owned(), self.parts.clone().into());
        let path = report::folder("bench")?.join("results.json");
        std::fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")
            .with_context(|| path.display().to_string())?;
        println!("\nWritten to {}", path.display());
        let measured = |name: &str| self.values.iter().find(|(measured, _)| *measured == name).map(|(_, value)| *value);
        let broken = LIMITS.iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit.flaw(measured(name)?)?)));
        let broken: Vec<_> = broken.collect();
        anyhow::ensure!(self.quick || broken.is_empty(), "limits are broken: {}", broken.join("; "));
        Ok(())
    }
}
