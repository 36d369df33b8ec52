//! Samples in the text format that Prometheus reads (OpenMetrics 1.0).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Sample;
use super::sample::METRICS;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
struct Samples(Vec<Sample>);

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let labels = |sample: &Sample| {
            vec![("rank".to_owned(), sample.rank.to_string()), ("host".to_owned(), sample.host.to_string())]
        };
        let mut gauge = encoder.encode_descriptor(
            "mapwire_rank_joined",
            "Whether the rank has joined and not left",
            None,
            MetricType::Gauge,
        )?;
        for sample in &self.0 {
            let is_there = sample.pid != 0 && !sample.state.is_gone();
            ConstGauge::new(u64::from(is_there)).encode(gauge.encode_family(&labels(sample))?)?;
        }
        for (first, metric) in METRICS.iter().enumerate() {
            let same = |at: &usize| METRICS[*at].name == metric.name;
            if (0..first).any(|at| same(&at)) {
                continue;
            }
            let kind = if metric.is_gauge { MetricType::Gauge } else { MetricType::Counter };
            let name = format!("mapwire_{}", metric.name);
            let mut family = encoder.encode_descriptor(&name, metric.help, None, kind)?;
            for sample in self.0.iter().filter(|sample| sample.at_ns != 0) {
                for at in (first..METRICS.len()).filter(same) {
                    let mut labels = labels(sample);
                    labels.extend(METRICS[at].label.map(|(name, value)| (name.to_owned(), value.to_owned())));
                    let place = family.encode_family(&labels)?;
                    match metric.is_gauge {
                        true => ConstGauge::new(sample.words[at]).encode(place)?,
                        false => ConstCounter::new(sample.words[at]).encode(place)?,
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn text(samples: Vec<Sample>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Samples(samples)));
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_described_once_and_has_a_line_a_rank() {
        let mut samples = vec![Sample::absent(0, 0), Sample::absent(1, 1), Sample::absent(2, 1)];
        samples[0].publish(1, &[5; 63]);
        samples[1].publish(1, &[6; 63]);
        let text = text(samples);
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert_eq!(text.matches("# TYPE mapwire_datagrams_rejected counter").count(), 1);
        assert!(text.contains("mapwire_bytes_sent_total{rank=\"1\",host=\"1\"} 6\n"), "{text}");
        assert!(text.contains("mapwire_link_rtt_ns{rank=\"0\",host=\"0\"} 5\n"), "{text}");
        assert!(text.contains("mapwire_datagrams_rejected_total{rank=\"0\",host=\"0\",cause=\"tag\"} 5\n"), "{text}");
        assert!(text.contains("mapwire_rank_joined{rank=\"2\",host=\"1\"} 0\n"), "{text}");
        assert!(!text.contains("mapwire_bytes_sent_total{rank=\"2\""), "it has published nothing");
    }
}
